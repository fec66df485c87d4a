"""The lease of a member: the time for which it is certainly in its generation, by its clock.

The coordinator starts a session when it receives a request. The member sent that request no later,
so a session counted from the send time ends first. This holds for any response delay and any
suspension of the process. Work that must not run twice at the same time relies on this lease.
"""

from __future__ import annotations

from typing import Final

from partage.member.events import (
    Event,
    HeartbeatResponseReceived,
    JoinResponseReceived,
    SyncResponseReceived,
)
from partage.member.outcome import DiscardAssignment, Outcome, SendHeartbeat, SendSync
from partage.member.settings import MemberSettings
from partage.member.state_machine import MembershipStateMachine
from partage.member.states import MemberState
from partage.model.errors import ErrorCode

#: States whose heartbeats belong to a complete generation. Only then does an accepted session
#: outlast the time for which the group waits for a member's SyncGroup.
_SYNCED: Final = frozenset({MemberState.RECONCILING, MemberState.STABLE})


class LeaseTracker:
    """A wrapper of a member core that computes the end of the member's lease."""

    def __init__(self, core: MembershipStateMachine, settings: MemberSettings) -> None:
        self._core = core
        self._settings = settings
        self._rejoin_timeout_ms = 0  # how long the group waits for this member to rejoin
        self._sent: dict[int, int] = {}
        # last send time of a request that was answered without a rebalance
        self._stable_ms: int | None = None
        self._heard_ms = 0  # last send time of a request that renewed the session

    @property
    def expires_ms(self) -> int | None:
        """The time until which no other member can have this member's place; None if it has none.

        Each heartbeat renews the session, even one that is answered with REBALANCE_IN_PROGRESS. But
        a rebalance that the member does not join may end without it. Such a rebalance began after
        the last heartbeat that was answered without an error.
        """
        if self._stable_ms is None:
            return None
        return min(
            self._heard_ms + self._settings.session_timeout_ms,
            self._stable_ms + self._rejoin_timeout_ms,
        )

    def handle(self, event: Event) -> Outcome:
        """Handle an event; see `MemberCore.handle`."""
        outcome = self._core.handle(event)
        if not self._core.is_in_generation or any(
            isinstance(action, DiscardAssignment) for action in outcome.actions
        ):
            self._sent.clear()
            self._stable_ms = None
            return outcome
        if isinstance(event, JoinResponseReceived) and event.generation == self._core.generation:
            self._rejoin_timeout_ms = self._rejoin_timeout_of(event)
        if isinstance(event, HeartbeatResponseReceived | SyncResponseReceived):
            sent_ms = self._sent.pop(event.serial, None)
            if sent_ms is not None:
                self._note(sent_ms, event)
        for action in outcome.actions:
            match action:
                case SendHeartbeat(serial=serial) if self._core.state in _SYNCED:
                    self._sent[serial] = event.at_ms
                case SendSync(serial=serial):
                    self._sent[serial] = event.at_ms
        return outcome

    def _rejoin_timeout_of(self, joined: JoinResponseReceived) -> int:
        """Return how long the coordinator that sent this response waits for a member to rejoin.

        JoinGroup v0 has no rebalance timeout: the session timeout is used for both, and a heartbeat
        during a rebalance does not renew the session. Old coordinators are recognised by a missing
        protocol type in the response (KIP-559). Some of them do wait longer; the lease is then too
        short, which is safe.
        """
        settings = self._settings
        if joined.protocol_type is None:
            return min(settings.session_timeout_ms, settings.rebalance_timeout_ms)
        return settings.rebalance_timeout_ms

    def _note(self, sent_ms: int, event: HeartbeatResponseReceived | SyncResponseReceived) -> None:
        if event.error is ErrorCode.NONE:
            self._stable_ms = max(sent_ms, self._stable_ms or sent_ms)
        elif event.error is not ErrorCode.REBALANCE_IN_PROGRESS or isinstance(
            event, SyncResponseReceived
        ):
            return
        self._heard_ms = max(sent_ms, self._heard_ms)
