"""The topic ids of the simulated clusters, which name topics by name only."""

from __future__ import annotations

from typing import Final

_SIZE: Final = 16


def topic_id(name: str) -> bytes:
    """Return the id of a topic: its name, filled with zeros. Worlds create no topic twice."""
    encoded = name.encode()
    assert 0 < len(encoded) <= _SIZE, f"the name {name!r} does not fit into {_SIZE} bytes"
    return encoded.ljust(_SIZE, b"\0")


def topic_name(number: bytes) -> str:
    """Return the name of the topic with an id."""
    return bytes(number).rstrip(b"\0").decode()
