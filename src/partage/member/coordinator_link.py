"""The link between a member and its coordinator: lookup, session and back-off.

`CoordinatorLink` holds this state; the handlers of `MembershipStateMachine` decide with it.
"""

from __future__ import annotations

from typing import Final

from partage.member.handler_context import HandlerContext
from partage.member.outcome import Disconnect, FindCoordinator
from partage.member.settings import MemberSettings
from partage.member.timers import MemberTimer

#: A rebalance is often followed at once by another one, which assigns the partitions that the first
#: one revoked (KIP-429). A member learns of it only from a heartbeat. So the first heartbeat
#: interval is shorter by this factor, and each one doubles.
_QUICKER: Final = 16


class CoordinatorLink:
    """The connection to the coordinator, the session over it, and the back-off after failures."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._serial = 0
        # The serial of the FindCoordinator action that found it
        self.coordinator_serial: int | None = None
        self.lookup_serial: int | None = None
        # Serial and time of the heartbeat in flight.
        self.heartbeat_in_flight: tuple[int, int] | None = None
        self._heartbeat_delay_ms = settings.heartbeat_interval_ms  # Delay until the next heartbeat
        self.session_deadline_ms: int | None = None  # None while the session is not timed
        # True after a whole session without a response that confirms membership
        self.is_session_expired = False
        self.is_backing_off = False
        self._failures = 0

    def next_serial(self) -> int:
        """Return a unique number."""
        self._serial += 1
        return self._serial

    def continue_serials(self, former: CoordinatorLink) -> None:
        """Continue after the serials of a member that this one replaces."""
        self._serial = former._serial

    # Lookup

    def start_lookup(self, context: HandlerContext) -> None:
        """Start looking up the coordinator."""
        self.lookup_serial = self.next_serial()
        context.add_action(FindCoordinator(serial=self.lookup_serial))

    def accept_coordinator(self, serial: int) -> bool:
        """Store the found coordinator; return False if this lookup is outdated."""
        if serial != self.lookup_serial:
            return False
        self.lookup_serial, self.coordinator_serial = None, serial
        return True

    def clear_coordinator(self) -> None:
        """Forget the connection and the heartbeat in flight."""
        self.coordinator_serial = self.heartbeat_in_flight = None

    def disconnect(self, context: HandlerContext) -> None:
        """Close the connection: the peer is not the coordinator, or does not respond."""
        if self.coordinator_serial is not None:
            context.add_action(Disconnect(serial=self.coordinator_serial))
            self.clear_coordinator()

    # Session

    def start_session(self, context: HandlerContext) -> None:
        """Start timing the session: the coordinator has just responded."""
        self.heartbeat_in_flight = None
        self._heartbeat_delay_ms = max(1, self._settings.heartbeat_interval_ms // _QUICKER)
        context.arm_timer(MemberTimer.HEARTBEAT, self._heartbeat_delay_ms)
        self._set_session_start(context, context.at_ms)

    def schedule_heartbeat(self, context: HandlerContext) -> None:
        """Arm the timer of the next heartbeat, with a doubled delay up to the usual interval."""
        self._heartbeat_delay_ms = min(
            2 * self._heartbeat_delay_ms, self._settings.heartbeat_interval_ms
        )
        context.arm_timer(MemberTimer.HEARTBEAT, self._heartbeat_delay_ms)

    def stop_session(self, context: HandlerContext) -> None:
        """Stop timing the session: the member is in no generation, or its request is parked."""
        self.heartbeat_in_flight = self.session_deadline_ms = None
        context.cancel_timer(MemberTimer.HEARTBEAT)
        context.cancel_timer(MemberTimer.SESSION)

    def extend_session(self, context: HandlerContext, sent_ms: int) -> None:
        """Extend the session after the heartbeat sent at ``sent_ms`` was accepted.

        The coordinator received it at ``sent_ms`` or later, so the session lasts at least from
        then. A response that took longer than a session, for example after a stall of the process,
        proves nothing.
        """
        if sent_ms + self._settings.session_timeout_ms > context.at_ms:
            self.is_session_expired = False
            self._set_session_start(context, sent_ms)

    def _set_session_start(self, context: HandlerContext, began_ms: int) -> None:
        self.set_session_deadline(context, began_ms + self._settings.session_timeout_ms)

    def set_session_deadline(self, context: HandlerContext, deadline_ms: int) -> None:
        """Time the session until a deadline."""
        self.session_deadline_ms = deadline_ms
        context.timers.append((MemberTimer.SESSION, deadline_ms))

    def expire_session(self, context: HandlerContext) -> None:
        """Mark the session as expired: other members may own the partitions."""
        self.is_session_expired = True
        context.arm_timer(MemberTimer.SESSION, self._settings.session_timeout_ms)

    def check_session_deadline(self, at_ms: int) -> None:
        """Mark the session as expired if its deadline has passed.

        This runs before each event is handled, so that a stalled process notices with its first
        event.
        """
        if self.session_deadline_ms is not None and at_ms >= self.session_deadline_ms:
            self.is_session_expired = True

    # Back-off

    def next_backoff_ms(self) -> int:
        """Count one more failure and return the time to wait, in ms."""
        settings = self._settings
        wait_ms = settings.retry_backoff_ms * 2 ** min(self._failures, 20)
        self._failures += 1
        return min(int(wait_ms), settings.retry_backoff_max_ms)

    def start_backoff(self, context: HandlerContext) -> None:
        """Start a back-off: retry nothing before the timer fires."""
        self.is_backing_off = True
        context.arm_timer(MemberTimer.RETRY, self.next_backoff_ms())

    def stop_backoff(self, context: HandlerContext) -> None:
        """Cancel the back-off."""
        if self.is_backing_off:
            self.is_backing_off = False
            context.cancel_timer(MemberTimer.RETRY)

    def reset_backoff(self) -> None:
        """Reset the failure count after a success, unless a back-off is in progress."""
        if not self.is_backing_off:
            self._failures = 0
