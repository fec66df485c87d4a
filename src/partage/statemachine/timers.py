"""The description of a timer, for the documentation."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

Key = TypeVar("Key")


class TimerFacts(msgspec.Struct, Generic[Key], frozen=True, gc=False):
    """One use of a timer, as text. ``delay`` may name a field of the settings in braces."""

    key: Key
    armed: str
    delay: str
    fires: str
