"""Typed timer keys. Each shard has at most one timer of each kind."""

from __future__ import annotations

import msgspec

from partage.statemachine.timers import TimerFacts


class TimeoutCheckTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The next search for transactions whose timeout has passed."""


class IdExpiryTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The next search for expired transactional ids."""


TransactionTimerKey = TimeoutCheckTimer | IdExpiryTimer

#: The timers, for the documentation.
TIMERS: tuple[TimerFacts[type[TransactionTimerKey]], ...] = (
    TimerFacts(
        TimeoutCheckTimer,
        "a transaction is open",
        "{abort_check_interval_ms}",
        "each transaction that is older than its timeout is aborted with the next epoch",
    ),
    TimerFacts(
        IdExpiryTimer,
        "the shard has transactional ids",
        "{expiry_check_interval_ms}",
        "each id without an open transaction that was unused for `transactional.id.expiration.ms` "
        "is removed; a shard with many ids checks 1,000 of them at a time",
    ),
)
