"""What a topic may be called, as Kafka has it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: Topics that the coordinators keep their state in, and the one they tell what happened in.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__group_events"})
NAME_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]*")


def fault_in_name(name: str) -> str | None:
    """What is wrong with a topic's name; `None` if nothing is."""
    if name in ("", ".", ".."):
        return f"{name!r} is not a topic name"
    if len(name) > NAME_MAX:
        return f"a topic name has at most {NAME_MAX} characters, not {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def colliding(name: str, names: Iterable[str]) -> str | None:
    """Another name that differs only in having '.' for '_': metrics could not tell them apart."""
    unified = name.replace(".", "_")
    if "_" not in unified:
        return None
    return next((other for other in names if other.replace(".", "_") == unified), None)
