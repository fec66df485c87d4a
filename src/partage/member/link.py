"""The link between a member and its coordinator: lookup, session and back-off.

`CoordinatorLink` holds this state; the handlers of `MembershipStateMachine` decide with it.
"""

from __future__ import annotations

from typing import Final

from partage.member.outcome import Disconnect, FindCoordinator
from partage.member.settings import MemberSettings
from partage.member.timers import Timer
from partage.member.turn import Turn

#: A rebalance is often followed at once by another one, which assigns the partitions that the first
#: one revoked (KIP-429). A member learns of it only from a heartbeat. So the first heartbeat
#: interval is shorter by this factor, and each one doubles.
_QUICKER: Final = 16


class Link:
    """The connection to the coordinator, the session over it, and the back-off after failures."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._serial = 0
        # The serial of the FindCoordinator action that found it
        self.coordinator: int | None = None
        self.finding: int | None = None
        self.heartbeat: tuple[int, int] | None = None  # Serial and time of the heartbeat in flight
        self._pace_ms = settings.heartbeat_interval_ms  # Delay until the next heartbeat
        self.session_ends_ms: int | None = None  # None while the session is not timed
        # True after a whole session without a response that confirms membership
        self.is_lapsed = False
        self.is_backing_off = False
        self._failures = 0

    def next_serial(self) -> int:
        """Return a unique number."""
        self._serial += 1
        return self._serial

    # Lookup

    def find(self, turn: Turn) -> None:
        """Start looking up the coordinator."""
        self.finding = self.next_serial()
        turn.do(FindCoordinator(serial=self.finding))

    def found(self, serial: int) -> bool:
        """Store the found coordinator; return False if this lookup is outdated."""
        if serial != self.finding:
            return False
        self.finding, self.coordinator = None, serial
        return True

    def lost(self) -> None:
        """Forget the connection and the heartbeat in flight."""
        self.coordinator = self.heartbeat = None

    def drop(self, turn: Turn) -> None:
        """Close the connection: the peer is not the coordinator, or does not respond."""
        if self.coordinator is not None:
            turn.do(Disconnect(serial=self.coordinator))
            self.lost()

    # Session

    def time_session(self, turn: Turn) -> None:
        """Start timing the session: the coordinator has just responded."""
        self.heartbeat = None
        self._pace_ms = max(1, self._settings.heartbeat_interval_ms // _QUICKER)
        turn.arm(Timer.HEARTBEAT, self._pace_ms)
        self._session_from(turn, turn.at_ms)

    def time_heartbeat(self, turn: Turn) -> None:
        """Arm the timer of the next heartbeat, with a doubled delay up to the usual interval."""
        self._pace_ms = min(2 * self._pace_ms, self._settings.heartbeat_interval_ms)
        turn.arm(Timer.HEARTBEAT, self._pace_ms)

    def untime_session(self, turn: Turn) -> None:
        """Stop timing the session: the member is in no generation, or its request is parked."""
        self.heartbeat = self.session_ends_ms = None
        turn.cancel(Timer.HEARTBEAT)
        turn.cancel(Timer.SESSION)

    def alive(self, turn: Turn, sent_ms: int) -> None:
        """Extend the session after the heartbeat sent at ``sent_ms`` was accepted.

        The coordinator received it at ``sent_ms`` or later, so the session lasts at least from
        then. A response that took longer than a session, for example after a stall of the process,
        proves nothing.
        """
        if sent_ms + self._settings.session_timeout_ms > turn.at_ms:
            self.is_lapsed = False
            self._session_from(turn, sent_ms)

    def _session_from(self, turn: Turn, began_ms: int) -> None:
        self.session_ends_ms = began_ms + self._settings.session_timeout_ms
        turn.timers.append((Timer.SESSION, self.session_ends_ms))

    def lapse(self, turn: Turn) -> None:
        """Mark the session as expired: other members may own the partitions."""
        self.is_lapsed = True
        turn.arm(Timer.SESSION, self._settings.session_timeout_ms)

    def look_at_clock(self, at_ms: int) -> None:
        """Mark the session as expired if its deadline has passed.

        This runs before each event is handled, so that a stalled process notices with its first
        event.
        """
        if self.session_ends_ms is not None and at_ms >= self.session_ends_ms:
            self.is_lapsed = True

    # Back-off

    def backoff_ms(self) -> int:
        """Count one more failure and return the time to wait, in ms."""
        settings = self._settings
        wait_ms = settings.retry_backoff_ms * 2 ** min(self._failures, 20)
        self._failures += 1
        return min(int(wait_ms), settings.retry_backoff_max_ms)

    def back_off(self, turn: Turn) -> None:
        """Start a back-off: retry nothing before the timer fires."""
        self.is_backing_off = True
        turn.arm(Timer.RETRY, self.backoff_ms())

    def stop_backing_off(self, turn: Turn) -> None:
        """Cancel the back-off."""
        if self.is_backing_off:
            self.is_backing_off = False
            turn.cancel(Timer.RETRY)

    def healed(self) -> None:
        """Reset the failure count after a success, unless a back-off is in progress."""
        if not self.is_backing_off:
            self._failures = 0
