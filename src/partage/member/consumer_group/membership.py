"""The state of a member with the consumer group protocol, and the queries of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partage.member.consumer_group.outcome import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.consumer_group.states import (
    ACTIVE_CONSUMER_STATES,
    IN_GROUP_STATES,
    ConsumerMemberState,
)
from partage.member.coordinator_link import CoordinatorLink
from partage.member.events import LeaveRequested
from partage.member.member import CommitIdentity
from partage.member.outcome import CallListener
from partage.model.topic_partition import TopicPartition

Partitions = frozenset[TopicPartition]
#: Partitions by topic id and number, as the coordinator knows them.
IdPartitions = frozenset[tuple[bytes, int]]
_NOTHING: Partitions = frozenset()

_S = ConsumerMemberState


class SentHeartbeat(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The heartbeat in flight.

    ``subscription`` is the subscription that the coordinator knows if it accepts the heartbeat.
    ``has_nothing_to_revoke`` is True if the member owned no partition outside its assignment.
    """

    serial: int
    sent_ms: int
    is_acknowledgement: bool
    subscription: tuple[frozenset[str], str | None]
    has_nothing_to_revoke: bool


class ConsumerMembership:
    """The state of one member, and the queries of it.

    Args:
        settings: The identity and the timeouts of the member.
        make_member_id: Returns a new unique member id (KIP-1082). A dynamic member takes another
            one after each leave, so that a late leave request cannot remove the new membership.
    """

    def __init__(self, settings: ConsumerMemberSettings, make_member_id: Callable[[], str]) -> None:
        self.settings = settings
        self.link = CoordinatorLink(settings)
        self.state = _S.UNSUBSCRIBED
        self._make_member_id = make_member_id
        self.member_id = make_member_id()
        self._needs_member_id = False  # True after a leave
        self.epoch = JOIN_EPOCH  # JOIN_EPOCH unless the member is in the group
        self.topics: frozenset[str] = frozenset()
        self.regex: str | None = None
        self.accepted_subscription: tuple[frozenset[str], str | None] | None = None
        # The coordinator may have stored a regular expression: one was sent and not removed since
        self.may_have_regex = False
        # The partitions, each with the id of its topic.
        self.owned_ids: dict[TopicPartition, bytes] = {}
        self.assignment: IdPartitions | None = None  # None until the first one
        self.topic_names: dict[bytes, str] = {}
        self.resolving_serial: int | None = None
        self.in_flight: SentHeartbeat | None = None
        self.is_heartbeat_due = False  # Send a heartbeat as soon as possible
        self.is_full_heartbeat_needed = True  # The coordinator may not know every field
        self.needs_acknowledgement = False  # of the current assignment
        self.is_assigned_call_due = False  # for a round without new partitions
        self.open_callback: CallListener | None = None
        self.has_lost_partitions = False  # and the listener is still to be called
        self.is_release_lost = False  # The partitions of the leave are lost, not revoked
        self.is_subscription_refused = False  # by the last answered heartbeat
        self.awaited_serial: int | None = None  # of the heartbeat that leaves
        self.may_be_member = False  # The coordinator may know the member id
        self.is_in_poll = False
        # True between start and leave; after a leave, the member starts again if it is True.
        self.is_membership_wanted = False
        self.leave_request = LeaveRequested(at_ms=0, reason="")
        self._interval_ms = settings.heartbeat_interval_ms
        # Send time of the last accepted heartbeat with nothing to revoke.
        self._clean_ms: int | None = None

    # Queries of the shell

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id (KIP-345)."""
        return self.settings.instance_id is not None

    @property
    def is_in_group(self) -> bool:
        """True if the member is in the group, as far as it knows."""
        return self.epoch > JOIN_EPOCH

    @property
    def owned(self) -> Partitions:
        """The partitions that the member owns."""
        return frozenset(self.owned_ids)

    @property
    def has_coordinator(self) -> bool:
        """True if the coordinator is connected, and the session has not expired."""
        return self.link.coordinator_serial is not None and not self.link.is_session_expired

    @property
    def session_deadline_ms(self) -> int | None:
        """The time at which the session may end; None outside the group."""
        return self.link.session_deadline_ms

    @property
    def deliverable(self) -> Partitions:
        """Partitions whose records may be delivered to the user now.

        It is empty outside the group and after a session without a response. It excludes partitions
        outside the assignment or the subscription, and those of an open callback. The shell sends
        `Polled` first, so that a stalled process does not rely on outdated state.
        """
        if not self.is_in_group or self.link.is_session_expired or self.has_lost_partitions:
            return _NOTHING
        if self.state is _S.PREPARE_LEAVING:
            return _NOTHING
        in_callback = set() if self.open_callback is None else set(self.open_callback.partitions)
        return frozenset(
            partition
            for partition in self.owned - self.partitions_to_revoke()
            if partition not in in_callback
            and (self.regex is not None or partition[0] in self.topics)
        )

    @property
    def commit_identity(self) -> CommitIdentity | None:
        """Identity for offset commits; None while the coordinator cannot accept a commit."""
        if not self.is_in_group or self.state not in IN_GROUP_STATES:
            return None
        return CommitIdentity(
            generation=self.epoch,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
        )

    def partitions_to_revoke(self) -> Partitions:
        """Owned partitions that the assignment does not contain."""
        assignment = self.assignment or frozenset()
        return frozenset(
            partition
            for partition, topic_id in self.owned_ids.items()
            if (topic_id, partition[1]) not in assignment
        )

    def partitions_to_add(self) -> dict[TopicPartition, bytes]:
        """Assigned partitions of known topics that the member does not own."""
        return {
            partition: topic_id
            for topic_id, number in self.assignment or frozenset()
            if (name := self.topic_names.get(topic_id)) is not None
            and (partition := TopicPartition(name, number)) not in self.owned_ids
        }

    def unknown_topic_ids(self) -> frozenset[bytes]:
        """Assigned topics whose names are not known."""
        assigned = {topic_id for topic_id, _ in self.assignment or frozenset()}
        return frozenset(assigned - self.topic_names.keys())

    # Leave

    @property
    def leave_epoch_to_send(self) -> int:
        """The epoch with which this member leaves by default: a static one keeps its partitions."""
        return STATIC_LEAVE_EPOCH if self.is_static else LEAVE_EPOCH

    @property
    def requested_leave_epoch(self) -> int | None:
        """The epoch with which this member leaves as requested; None if it sends none."""
        sends = self.leave_request.sends_leave_group
        if sends:
            return LEAVE_EPOCH
        return self.leave_epoch_to_send if sends is None or self.is_static else None

    @property
    def is_leave_due(self) -> bool:
        """True if the heartbeat that leaves is to be sent as soon as there is a coordinator."""
        has_left_epoch = self.state in (_S.PREPARE_LEAVING, _S.LEAVING) and not self.is_in_group
        return has_left_epoch and self.may_be_member and self.requested_leave_epoch is not None

    # What the state requires

    @property
    def must_be_polled(self) -> bool:
        """True if the poll timer runs while the user is not in poll."""
        if self.settings.max_poll_interval_ms is None:
            return False
        is_revoking = self.state is _S.PREPARE_LEAVING and self.is_in_group
        return is_revoking or self.state in ACTIVE_CONSUMER_STATES

    @property
    def needs_coordinator(self) -> bool:
        """True if the member takes part in the group, or has yet to leave it."""
        is_leaving = self.is_leave_due or self.awaited_serial is not None
        return self.is_in_group or is_leaving or self.state in ACTIVE_CONSUMER_STATES

    @property
    def is_reporting(self) -> bool:
        """True if the member sends heartbeats at an interval."""
        return self.is_in_group or self.state is _S.JOINING
