"""How long the owner of a session may answer without having asked.

ZooKeeper ends a session no sooner than its timeout after its leader last heard of it; only then
somebody else takes over. The leader hears of a session when it begins, when its client connects
again, and when the server that the client is connected to answers the leader's pings, twice a tick;
but not by what that server asks it in the client's name. So an answer from the leader shows that it
has heard of what had come to that server half a tick before the question did: both took the same
way from there, in order. That is what was answered half a tick before the question was sent. What
was only sent by then may have been long under way, and have come together with it. A session lasts
two ticks at least (``minSessionTimeout``), so half a tick is a quarter of it at most.

Whoever answers within one timeout of such a sending answers before any successor. The clock has to
count the time that a process, or its machine, was suspended.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

_KEPT_SHARE: Final = 0.1  # of the timeout, for what passes between looking and sending
#: Of the timeout, until the leader has heard for sure: half a tick and more.
_TOLD_SHARE: Final = 1 / 3


class _Asked(NamedTuple):
    """A question to the leader: when it was sent, and when its answer was there."""

    sent_ms: int
    answered_ms: int


class Lease:
    """The right to answer, until a time on the clock that ``now_ms`` is of.

    Its session, which lasts ``timeout_ms``, was begun after ``begun_ms``.
    """

    def __init__(self, timeout_ms: int, begun_ms: int) -> None:
        self.length_ms = round(timeout_ms * (1 - _KEPT_SHARE))
        self._told_ms = round(timeout_ms * _TOLD_SHARE)
        #: What was asked last; of the first the leader has heard for sure.
        self._asked = deque([_Asked(begun_ms, begun_ms)])
        self._until_ms: int | None = None

    def renew(self, sent_ms: int, answered_ms: int) -> None:
        """ZooKeeper's leader has answered by ``answered_ms`` what was sent at ``sent_ms``."""
        asked = self._asked
        asked.append(_Asked(max(sent_ms, asked[-1].sent_ms), answered_ms))
        while len(asked) > 1 and asked[1].answered_ms <= sent_ms - self._told_ms:
            asked.popleft()
        self._until_ms = asked[0].sent_ms + self.length_ms

    def suspend(self) -> None:
        """The connection is lost: be silent until something sent from now on is answered."""
        self._until_ms = None

    def holds(self, now_ms: int) -> bool:
        """Whether nobody else can have taken over yet."""
        return self._until_ms is not None and now_ms < self._until_ms
