"""The decision to use the bootstrap addresses again.

With the strategy ``rebootstrap``, a client that can reach no known broker tries them, too
(KIP-899). It closes all connections and forgets all brokers in two cases: no metadata arrived for
some time, or a broker requires it (KIP-1102). The module does no I/O.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

#: Values of ``metadata.recovery.strategy``.
MetadataRecoveryStrategy: TypeAlias = Literal["none", "rebootstrap"]


class MetadataRecovery:
    """The time without metadata of one client, by the rules of Kafka's Java client.

    Args:
        strategy: With ``none``, a client never rebootstraps.
        trigger_ms: ``metadata.recovery.rebootstrap.trigger.ms``.
    """

    def __init__(self, strategy: MetadataRecoveryStrategy, trigger_ms: int) -> None:
        self.may_rebootstrap = strategy == "rebootstrap"
        self._trigger_ms = trigger_ms
        self._waiting_since_ms: int | None = None
        self._attempts = 0  # number of attempts in flight
        self._has_failed = False  # since the last metadata or rebootstrap
        self._is_required = False

    def on_attempt(self, now_ms: int) -> None:
        """Handle the start of a metadata request.

        The first one since a success starts the time. If all earlier ones were abandoned, the time
        starts again. One of `on_metadata`, `on_failure` and `on_abandoned` must follow.
        """
        is_first = not self._attempts and not self._has_failed
        if self._waiting_since_ms is None or is_first:
            self._waiting_since_ms = now_ms
        self._attempts += 1

    def on_metadata(self) -> None:
        """Handle metadata that has brokers."""
        self._attempts -= 1
        self._waiting_since_ms = None
        self._has_failed = False

    def on_failure(self) -> None:
        """Handle a failed metadata request, or metadata without brokers."""
        self._attempts -= 1
        self._has_failed = True

    def on_abandoned(self) -> None:
        """Handle a metadata request that the user cancelled; it says nothing about the brokers."""
        self._attempts -= 1

    def on_required(self) -> None:
        """Handle REBOOTSTRAP_REQUIRED: the client rebootstraps before its next request."""
        self._is_required = self.may_rebootstrap

    def on_rebootstrap(self, now_ms: int) -> None:
        """Handle a rebootstrap: the time starts again."""
        self._waiting_since_ms = now_ms
        self._has_failed = False
        self._is_required = False

    def is_due(self, now_ms: int) -> bool:
        """True if the client must rebootstrap now."""
        return self._is_required or (self._has_failed and self.remaining_ms(now_ms) == 0)

    def remaining_ms(self, now_ms: int) -> int | None:
        """Return the time until a rebootstrap without metadata; None if there will be none."""
        if not self.may_rebootstrap or self._waiting_since_ms is None:
            return None
        return max(0, self._waiting_since_ms + self._trigger_ms + 1 - now_ms)
