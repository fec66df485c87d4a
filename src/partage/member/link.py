"""What a member knows of its coordinator, and whether the coordinator may still know it.

`Link` holds what heartbeats, sessions and back-offs are about, for `membership` to decide by.
"""

from __future__ import annotations

from typing import Final

from partage.member.outcome import Disconnect, FindCoordinator
from partage.member.settings import MemberSettings
from partage.member.timers import Timer
from partage.member.turn import Turn

#: A rebalance is often followed by another at once, in which is given out what the first one
#: revoked (KIP-429), and only heartbeats tell: the first one comes this much sooner than usual,
#: and each takes twice as long as the one before.
_QUICKER: Final = 16


class Link:
    """The way to the coordinator, the session over it, and the patience when it fails."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._serial = 0
        self.coordinator: int | None = None  # the serial of the FindCoordinator that found it
        self.finding: int | None = None
        self.heartbeat: tuple[int, int] | None = None  # serial and time of the one under way
        self._pace_ms = settings.heartbeat_interval_ms  # until the next one
        self.session_ends_ms: int | None = None  # while the session is timed
        self.is_lapsed = False  # a whole session has passed without a sign that we are known
        self.is_backing_off = False
        self._failures = 0

    def next_serial(self) -> int:
        """A number that nothing else has."""
        self._serial += 1
        return self._serial

    # Finding and losing.

    def find(self, turn: Turn) -> None:
        """Look for the coordinator."""
        self.finding = self.next_serial()
        turn.do(FindCoordinator(serial=self.finding))

    def found(self, serial: int) -> bool:
        """The coordinator is found; False if nobody waits for that any more."""
        if serial != self.finding:
            return False
        self.finding, self.coordinator = None, serial
        return True

    def lost(self) -> None:
        """The connection is gone, and what was asked over it."""
        self.coordinator = self.heartbeat = None

    def drop(self, turn: Turn) -> None:
        """Drop the connection: who is at its other end is no coordinator, or does not answer."""
        if self.coordinator is not None:
            turn.do(Disconnect(serial=self.coordinator))
            self.lost()

    # The session.

    def time_session(self, turn: Turn) -> None:
        """From here on the session is timed: the coordinator has just answered us."""
        self.heartbeat = None
        self._pace_ms = max(1, self._settings.heartbeat_interval_ms // _QUICKER)
        turn.arm(Timer.HEARTBEAT, self._pace_ms)
        self._session_from(turn, turn.at_ms)

    def time_heartbeat(self, turn: Turn) -> None:
        """One is due now: the next follows, at the usual interval once the group is at rest."""
        self._pace_ms = min(2 * self._pace_ms, self._settings.heartbeat_interval_ms)
        turn.arm(Timer.HEARTBEAT, self._pace_ms)

    def untime_session(self, turn: Turn) -> None:
        """We are in no generation, or parked: there is no session to keep."""
        self.heartbeat = self.session_ends_ms = None
        turn.cancel(Timer.HEARTBEAT)
        turn.cancel(Timer.SESSION)

    def alive(self, turn: Turn, sent_ms: int) -> None:
        """A heartbeat of ``sent_ms`` was accepted: that is when the session began, at the latest.

        One that took longer than a session, perhaps because this process stood still, proves
        nothing; the next one will.
        """
        if sent_ms + self._settings.session_timeout_ms > turn.at_ms:
            self.is_lapsed = False
            self._session_from(turn, sent_ms)

    def _session_from(self, turn: Turn, began_ms: int) -> None:
        self.session_ends_ms = began_ms + self._settings.session_timeout_ms
        turn.timers.append((Timer.SESSION, self.session_ends_ms))

    def lapse(self, turn: Turn) -> None:
        """The session is over, as far as we can tell; what was owned may be somebody else's."""
        self.is_lapsed = True
        turn.arm(Timer.SESSION, self._settings.session_timeout_ms)

    def look_at_clock(self, at_ms: int) -> None:
        """Before anything else: a process that stood still learns it from the first event."""
        if self.session_ends_ms is not None and at_ms >= self.session_ends_ms:
            self.is_lapsed = True

    # Patience.

    def backoff_ms(self) -> int:
        """How long to wait after one more failure."""
        settings = self._settings
        wait_ms = settings.retry_backoff_ms * 2 ** min(self._failures, 20)
        self._failures += 1
        return min(int(wait_ms), settings.retry_backoff_max_ms)

    def back_off(self, turn: Turn) -> None:
        """Wait before anything is tried again."""
        self.is_backing_off = True
        turn.arm(Timer.RETRY, self.backoff_ms())

    def stop_backing_off(self, turn: Turn) -> None:
        """Nothing is to be tried again."""
        if self.is_backing_off:
            self.is_backing_off = False
            turn.cancel(Timer.RETRY)

    def healed(self) -> None:
        """It went well: failures count from here, unless one is being waited out."""
        if not self.is_backing_off:
            self._failures = 0
