"""The time for which the owner of a ZooKeeper session may reply without asking ZooKeeper.

Another broker can take over only after the session expired. ZooKeeper's leader expires a session at
the earliest one timeout after it last heard of the session. It hears of a session in three ways:
when the session begins, when its client reconnects, and when the client's server answers the
leader's pings, twice a tick. It does not hear of a session by the requests that the server
forwards.

So a reply from the leader shows only this: the leader has heard of all client messages that reached
the server half a tick before the request did. Both took the same way in order. Messages that were
answered half a tick before the request was sent are surely among them. Messages that were only sent
by then may have been delayed and have arrived together with the request. A session lasts at least
two ticks (``minSessionTimeout``), so half a tick is at most a quarter of the session timeout.

A broker that replies within one timeout after such a message replies before any successor does. The
clock must count the time during which the process or its machine was suspended.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

_SAFETY_SHARE: Final = 0.1  # of the timeout, for the time between check and reply
#: Of the timeout: the leader has heard of a message after this time, which is more than half a
#: tick.
_PROPAGATION_SHARE: Final = 1 / 3


class _Probe(NamedTuple):
    """A request to the leader: when it was sent, and when its reply arrived."""

    sent_ms: int
    answered_ms: int


class Lease:
    """The right to reply, until a time on the clock of ``now_ms``.

    Args:
        timeout_ms: The session timeout that the servers granted.
        begun_ms: A time before the session began.
    """

    def __init__(self, timeout_ms: int, begun_ms: int) -> None:
        self.length_ms = round(timeout_ms * (1 - _SAFETY_SHARE))
        self._propagation_ms = round(timeout_ms * _PROPAGATION_SHARE)
        #: The latest requests. The leader has surely heard of the first one.
        self._probes = deque([_Probe(begun_ms, begun_ms)])
        self._until_ms: int | None = None

    def renew(self, sent_ms: int, answered_ms: int) -> None:
        """Renew the lease after a reply of ZooKeeper's leader.

        Args:
            sent_ms: When the request was sent.
            answered_ms: When its reply arrived.
        """
        asked = self._probes
        asked.append(_Probe(max(sent_ms, asked[-1].sent_ms), answered_ms))
        while len(asked) > 1 and asked[1].answered_ms <= sent_ms - self._propagation_ms:
            asked.popleft()
        self._until_ms = asked[0].sent_ms + self.length_ms

    def invalidate(self) -> None:
        """End the lease after a lost connection, until a request that is sent from now on has a
        reply.
        """
        self._until_ms = None

    def is_valid(self, now_ms: int) -> bool:
        """True if no other broker can have taken over yet."""
        return self._until_ms is not None and now_ms < self._until_ms
