"""Rule ``lease``: a broker of a cluster acts only while ZooKeeper cannot have ended its session.

Another broker may take over its shards as soon as the session has ended. Two things follow for
responses that only a coordinator can send, and for the removal of members that missed a deadline:

- A broker does neither after ZooKeeper's leader ended its session, whether or not another broker
  has taken over.
- A broker cannot know that its session lives if the leader answered no request that it sent within
  the last session timeout. It does neither then, even if the session does live.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Final

from partage.lab.checkers.ledger import Ledger
from partage.lab.checkers.shard_ownership import coordinated_group
from partage.lab.history import (
    BrokerDied,
    History,
    MemberExpired,
    ResponseSent,
    RuleViolationError,
    ShardAcquired,
    ZooKeeperAnswered,
    ZooKeeperSessionExpired,
)
from partage.model.settings import GroupSettings

_RULE: Final = "lease"


class LeasesChecker:
    """Tracks until when the session of each broker surely lives, and whether it was ended."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        # times of the answers of the leader, and the session end that the broker knew then
        self._answered_ms: dict[int, list[int]] = defaultdict(list)
        self._known_until_ms: dict[int, list[int]] = defaultdict(list)
        self._expired_ms: dict[int, int] = {}
        history.subscribe(ZooKeeperAnswered, self._on_answered)
        history.subscribe(ZooKeeperSessionExpired, self._on_session_expired)
        history.subscribe(ShardAcquired, self._on_acquired)
        history.subscribe(BrokerDied, self._on_died)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(MemberExpired, self._on_member_expired)

    def _on_answered(self, entry: ZooKeeperAnswered) -> None:
        known = self._known_until_ms[entry.broker]
        self._answered_ms[entry.broker].append(entry.at_ms)
        known.append(max(entry.session_until_ms, known[-1] if known else 0))

    def _on_session_expired(self, entry: ZooKeeperSessionExpired) -> None:
        self._expired_ms[entry.broker] = entry.at_ms

    def _on_acquired(self, entry: ShardAcquired) -> None:
        """Forget the end of the former session: the broker has a new one."""
        self._expired_ms.pop(entry.broker, None)

    def _on_died(self, entry: BrokerDied) -> None:
        self._expired_ms.pop(entry.broker, None)
        self._answered_ms.pop(entry.broker, None)
        self._known_until_ms.pop(entry.broker, None)

    def _on_response(self, entry: ResponseSent) -> None:
        asked = entry.request
        if asked.broker in self._answered_ms and coordinated_group(entry) is not None:
            self._check(asked.broker, entry.at_ms, f"responded to {asked}: {entry.message}")

    def _on_member_expired(self, entry: MemberExpired) -> None:
        self._check(entry.broker, entry.at_ms, f"removed {entry.member_id}: {entry.reason}")

    def _check(self, broker: int, at_ms: int, what: str) -> None:
        """Check an act of a broker at a time, which may be reported later."""
        expired_ms = self._expired_ms.get(broker)
        if expired_ms is not None and at_ms > expired_ms:
            late_ms = at_ms - expired_ms
            raise RuleViolationError(
                _RULE, f"broker {broker}, whose session ended {late_ms} ms before, {what}"
            )
        count = bisect_right(self._answered_ms.get(broker, []), at_ms)
        if count and at_ms > self._known_until_ms[broker][count - 1]:
            late_ms = at_ms - self._known_until_ms[broker][count - 1]
            raise RuleViolationError(
                _RULE,
                f"broker {broker}, whose session may have ended {late_ms} ms before, {what}",
            )
