"""Rule ``consumer-delivery``: a member with the consumer protocol delivers only what it has.

- No member delivers records of a partition that the coordinator has assigned to another member.
- No member delivers records of a partition that the last assignment it received does not contain.
  It adds partitions only after it has revoked those that are no longer assigned.
- The first heartbeat of a member on each connection has all fields: the coordinator may be new.
- No member delivers records after the coordinator removed it for missing a deadline. The member
  must notice in time by its own clock, even if its process was paused or cut off.

A member that an administrator or another process with its instance id removed cannot know it. A
member does not count either if copies of its heartbeats arrived late or from a rogue client.
"""

from __future__ import annotations

from partage.lab.checkers.consumer_group_log import LoggedPartition
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import (
    History,
    MemberAssignmentReceived,
    MemberDelivered,
    MemberExpired,
    MemberOwnershipChanged,
    OwnershipChanged,
    RecordsDelivered,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.lab.names import CONSUMER_GROUP, ROGUE_MEMBER
from partage.model.settings import GroupSettings
from partage.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class ConsumerDeliveriesChecker:
    """Compares each delivery with the assignments in the log, and with removed members."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._expired: dict[str, MemberExpired] = {}
        self._impersonated: set[str] = set()
        self._connections: dict[str, int] = {}  # the newest of each client
        self._received: dict[str, frozenset[LoggedPartition]] = {}  # by process
        self._owned: dict[str, frozenset[LoggedPartition]] = {}  # by process
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(MemberExpired, self._on_expired)
        history.subscribe(MemberAssignmentReceived, self._on_received)
        history.subscribe(MemberOwnershipChanged, self._on_owned)
        history.subscribe(MemberDelivered, self._on_delivered)
        self._classic: dict[str, OwnershipChanged] = {}  # by process
        history.subscribe(OwnershipChanged, self._on_classic_owned)
        history.subscribe(RecordsDelivered, self._on_records)

    def _on_request(self, entry: RequestReceived) -> None:
        request = entry.message
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            before = self._connections.get(entry.client, -1)
            is_first = entry.connection > before and entry.client != ROGUE_MEMBER
            if is_first and request.member_epoch >= 0 and request.topic_partitions is None:
                _break(f"{request} is the first on its connection, and lacks fields")
            newest = max(entry.connection, before)
            self._connections[entry.client] = newest
            if entry.connection < newest or entry.client == ROGUE_MEMBER:
                self._impersonated.add(request.member_id)

    def _on_response(self, entry: ResponseSent) -> None:
        request = entry.request.message
        is_accepted = not getattr(entry.message, "error_code", 0)
        if isinstance(request, ConsumerGroupHeartbeatRequest) and is_accepted:
            self._expired.pop(request.member_id, None)

    def _on_expired(self, entry: MemberExpired) -> None:
        if entry.group_id == CONSUMER_GROUP:
            self._expired[entry.member_id] = entry

    def _on_received(self, entry: MemberAssignmentReceived) -> None:
        self._received[entry.process] = frozenset(entry.partitions)

    def _on_owned(self, entry: MemberOwnershipChanged) -> None:
        before = self._owned.get(entry.process, frozenset())
        self._owned[entry.process] = owned = frozenset(entry.partitions)
        received = self._received.get(entry.process, frozenset())
        if owned - before and owned - received:
            _break(f"{entry.process} adds {_text(owned - before)} before {_text(owned - received)}")

    def _on_delivered(self, entry: MemberDelivered) -> None:
        received = self._received.get(entry.process, frozenset())
        if foreign := frozenset(entry.partitions) - received:
            _break(f"{entry.process} delivers {_text(foreign)}, which it must revoke")
        if entry.member_id in self._impersonated:
            return
        expired = self._expired.get(entry.member_id)
        if expired is not None:
            late_ms = entry.at_ms - expired.at_ms
            _break(f"{entry.process} delivers {late_ms} ms after its removal: {expired.reason}")
        self._check_holders(entry.process, entry.member_id, frozenset(entry.partitions))

    def _check_holders(
        self, process: str, member_id: str, partitions: frozenset[LoggedPartition]
    ) -> None:
        members = self._states.durable[-1].stored_members()
        if member_id not in members:
            return
        for name, member in members.items():
            both = partitions.intersection(member.assigned)
            if name != member_id and both:
                _break(f"{process} delivers {_text(both)}, which {name} has")

    # Members with the classic protocol

    def _on_classic_owned(self, entry: OwnershipChanged) -> None:
        if entry.group_id == CONSUMER_GROUP:
            self._classic[entry.process] = entry

    def _on_records(self, entry: RecordsDelivered) -> None:
        if entry.group_id != CONSUMER_GROUP:
            return
        owned = self._classic[entry.process]
        member = self._states.durable[-1].stored_members().get(owned.member_id)
        if member is None or owned.generation < member.previous_epoch:
            return  # removed, or a static member that has not joined the newest generation
        partitions = self._states.to_ids([entry.partition])
        self._check_holders(entry.process, owned.member_id, partitions)


def _text(partitions: frozenset[LoggedPartition]) -> str:
    return " ".join(f"{topic_id.hex()[:4]}-{index}" for topic_id, index in sorted(partitions))


def _break(description: str) -> None:
    raise RuleViolationError("consumer-delivery", description)
