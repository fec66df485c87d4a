"""Random ids. The state machines have no source of randomness."""

from __future__ import annotations

import base64
import os
import uuid
from typing import Final

#: The hexadecimal digit with the variant of RFC 4122 in its two upper bits.
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def fresh_id() -> str:
    """Return a random UUID as text, for a member id: ``str(uuid.uuid4())`` in a third of the time.

    Thousands of members may join at once.
    """
    digits = os.urandom(16).hex()
    return (
        f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-"
        f"{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
    )


def fresh_topic_id() -> bytes:
    """Return a random UUID as 16 bytes."""
    return uuid.uuid4().bytes


def fresh_cluster_id() -> str:
    """Return a random UUID in Kafka's text format: 22 characters of base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
