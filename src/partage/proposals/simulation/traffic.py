"""Counts of the coordinator's messages and bytes."""

from __future__ import annotations

from collections import Counter

import msgspec


class Traffic(msgspec.Struct):
    """The messages through the coordinator since the last `Traffic.take`.

    ``messages`` and ``bytes`` count by the name of the message type, ``cpu_ns`` the time in the
    coordinator's state machine.
    """

    messages: Counter[str] = msgspec.field(default_factory=Counter)
    bytes: Counter[str] = msgspec.field(default_factory=Counter)
    cpu_ns: int = 0

    def count(self, name: str, size: int) -> None:
        """Count one message of ``size`` bytes."""
        self.messages[name] += 1
        self.bytes[name] += size

    def copy(self) -> Traffic:
        """Return the counts so far."""
        return Traffic(self.messages.copy(), self.bytes.copy(), self.cpu_ns)

    def take(self) -> Traffic:
        """Return the counts, and start again from zero."""
        taken = Traffic(self.messages, self.bytes, self.cpu_ns)
        self.messages, self.bytes, self.cpu_ns = Counter(), Counter(), 0
        return taken
