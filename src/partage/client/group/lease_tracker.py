"""How long a member is surely in its generation, by its own clock.

The coordinator counts a session from when it last heard of the member. That was no earlier than the
member sent what was then accepted, so a session counted from there ends first, however long the
answer took and however long the process stood still. It is what work may rest on that must not be
done by two at a time.
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

#: Heartbeats sent in these are of a generation that is complete: only there does a session that
#: was accepted outlast the time that the group waits for a member to sync.
_SYNCED: Final = frozenset({MemberState.RECONCILING, MemberState.STABLE})


class LeaseTracker:
    """A member's core that notes, in passing, until when the member has its place."""

    def __init__(self, core: MembershipStateMachine, settings: MemberSettings) -> None:
        self._core = core
        self._settings = settings
        self._rejoin_timeout_ms = 0  # how long the group waits for the member to join again
        self._sent: dict[int, int] = {}
        self._stable_ms: int | None = None  # when there was no rebalance
        self._heard_ms = 0  # when the coordinator heard of the member

    @property
    def expires_ms(self) -> int | None:
        """Until when nobody else can have this member's place; None if it has none.

        Its session begins anew with each heartbeat, also with one that is told of a rebalance. But
        a rebalance that the member does not join may end without it: it began after the last
        heartbeat that was told of none.
        """
        if self._stable_ms is None:
            return None
        return min(
            self._heard_ms + self._settings.session_timeout_ms,
            self._stable_ms + self._rejoin_timeout_ms,
        )

    def handle(self, event: Event) -> Outcome:
        """See `Membership.handle`."""
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
        """How long a coordinator waits that answered so.

        JoinGroup v0 has no rebalance timeout: there the session timeout stands for both, and a
        heartbeat in a rebalance begins no session. We know the old ones by their not saying what
        the group's protocol type is (KIP-559); that some do wait longer is no loss.
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
