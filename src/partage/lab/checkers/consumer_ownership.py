"""Rules about partitions of the group with the consumer protocol.

- ``consumer-ownership``: a partition is given to a member only after its previous owner reported a
  heartbeat without it, or was removed. No two members own a partition, whatever their protocols. A
  member that was removed may not know it yet. Members do not count if a copy of a request that
  reports partitions arrived late or from a rogue client: the copy confirms on their behalf, in
  Kafka too.
- ``consumer-reconciliation``: an assignment grows only by free partitions of the member's target,
  and shrinks only by partitions that the member reported to have given up. The state of the member
  fits. The target gives each partition to one member.
- ``consumer-responses``: a response shows the stored assignment, and omits only one that the
  member was told before.
"""

from __future__ import annotations

from collections import defaultdict

from partage.lab.checkers.assignments import decode_partitions
from partage.lab.checkers.consumer_epochs import reported_partitions
from partage.lab.checkers.consumer_group_log import (
    LogChangeKey,
    LoggedGroup,
    LoggedMember,
    LoggedPartition,
)
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import (
    ConsumerTopicsChanged,
    History,
    MemberExpired,
    MemberOwnershipChanged,
    OwnershipChanged,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.lab.names import CONSUMER_GROUP, ROGUE_MEMBER
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.apis.join_group import JoinGroupRequest
from partage.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from partage.wire.consumer_protocol import decode_subscription

_STABLE, _UNREVOKED, _UNRELEASED = 0, 1, 2
_STATIC_LEAVE = -2
_GROUP, _MEMBER, _TARGET, _ASSIGNMENT = 3, 5, 6, 8
_Partitions = frozenset[LoggedPartition]


class ConsumerOwnershipChecker:
    """Follows which member has which partition: in the log, on the wire, and in the members."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._granted: dict[str, _Partitions] = {}  # by responses, and not given up since
        self._shown: dict[str, _Partitions] = {}  # the last assignment in a response
        # what each member reported since its last assignment record; None for nothing
        self._reports: dict[str, list[_Partitions | None]] = defaultdict(list)
        self._owned: dict[str, MemberOwnershipChanged] = {}  # by process
        self._zombies: set[str] = set()  # processes whose member was removed
        self._impersonated: set[str] = set()  # members
        self._rogue_named: set[str] = set()  # members that a rogue client has named
        self._connections: dict[str, int] = {}  # the newest of each client
        self._topics: dict[bytes, str] = {}  # names of existing topics
        # the newest connection on which each classic member joined or synchronized
        self._classic_connections: dict[str, int] = {}
        self._upgrade_epoch = 0
        states.on_record(self._on_record)
        history.subscribe(ConsumerTopicsChanged, self._on_topics)
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(RequestReceived, self._on_classic_request)
        history.subscribe(ResponseSent, self._on_sync_response)
        history.subscribe(MemberOwnershipChanged, self._on_owned)
        history.subscribe(MemberExpired, self._on_expired)
        history.subscribe(OwnershipChanged, self._on_classic_owned)

    def _on_topics(self, entry: ConsumerTopicsChanged) -> None:
        self._topics = {topic_id: name for name, topic_id, _ in entry.topics}

    # The wire

    def _on_request(self, entry: RequestReceived) -> None:
        request = entry.message
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        name, owned = request.member_id, reported_partitions(request.topic_partitions)
        is_late = entry.connection < self._connections.get(entry.client, 0)
        self._connections[entry.client] = max(
            entry.connection, self._connections.get(entry.client, 0)
        )
        if request.member_epoch < 0:
            owned = frozenset()
        if entry.client == ROGUE_MEMBER:
            self._rogue_named.add(name)
        if owned is not None and (is_late or entry.client == ROGUE_MEMBER):
            self._impersonated.add(name)
        if owned is not None and name in self._granted:
            self._granted[name] &= owned
        self._reports[name].append(owned)

    def _on_response(self, entry: ResponseSent) -> None:
        request, response = entry.request.message, entry.message
        if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.member_epoch < 0:
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            return
        name, assignment = request.member_id, response.assignment
        shown = self._shown.get(name, frozenset())
        if assignment is not None:
            found = reported_partitions(assignment.topic_partitions)
            assert found is not None
            shown = found
        elif request.member_epoch == 0:
            _break("consumer-responses", f"{name} joined and got no assignment")
        # the response with a changed assignment may have gone to a rogue client, and got lost
        is_known = assignment is None and name in self._rogue_named
        if not is_known and not any(
            _has(group, name, response.member_epoch, shown) for group in self._possible(entry)
        ):
            stored = self._states.durable[-1].members.get(name)
            what = "was told" if assignment is None else "gets"
            _break("consumer-responses", f"{name} {what} {_text(shown)}, stored is {stored}")
        if assignment is None:
            return
        self._shown[name] = shown
        if entry.request.connection < self._connections.get(entry.request.client, 0):
            return  # the member has closed this connection
        self._check_granted(name, shown)
        self._granted[name] = self._granted.get(name, frozenset()) | shown

    # Members with the classic protocol

    def _on_classic_request(self, entry: RequestReceived) -> None:
        """Note the partitions that a member reports to own: JoinGroup confirms a revocation."""
        request = entry.message
        if not isinstance(request, JoinGroupRequest | SyncGroupRequest):
            return
        if request.group_id != CONSUMER_GROUP:
            return
        newest = self._classic_connections.get(entry.client, -1)
        self._classic_connections[entry.client] = max(newest, entry.connection)
        if isinstance(request, SyncGroupRequest):
            return
        name = request.member_id or _instance_key(request.group_instance_id)
        subscription = decode_subscription(request.protocols[0].metadata)
        owned = self._states.to_ids(
            TopicPartition(topic.topic, index)
            for topic in subscription.owned_partitions
            for index in topic.partitions
        )
        if entry.connection < newest:
            self._impersonated.add(name)
        if name in self._granted:
            self._granted[name] &= owned
        self._reports[name].append(owned)

    def _on_sync_response(self, entry: ResponseSent) -> None:
        """Check the partitions that a member gets; in a classic group, its leader decides."""
        request, response = entry.request.message, entry.message
        if not isinstance(request, SyncGroupRequest) or request.group_id != CONSUMER_GROUP:
            return
        assert isinstance(response, SyncGroupResponse)
        if response.error_code:
            return
        name = request.member_id
        shown = self._states.to_ids(decode_partitions(bytes(response.assignment)))
        groups = self._possible(entry)
        if all(group.epoch is not None for group in groups):
            generation = request.generation_id
            if not any(self._fits(group, name, generation, shown) for group in groups):
                stored = self._states.durable[-1].members.get(name)
                _break("consumer-responses", f"{name} gets {_text(shown)}, stored is {stored}")
            if entry.request.connection >= self._classic_connections.get(entry.request.client, 0):
                self._check_granted(name, shown)
        self._granted[name] = self._granted.get(name, frozenset()) | shown

    def _fits(self, group: LoggedGroup, name: str, epoch: int, shown: _Partitions) -> bool:
        member = group.members.get(name)
        if member is None or member.epoch != epoch:
            return False
        return self._states.with_current_ids(member.assigned) == shown

    def _on_classic_owned(self, entry: OwnershipChanged) -> None:
        if entry.group_id != CONSUMER_GROUP:
            return
        self._on_owned(
            MemberOwnershipChanged(
                at_ms=entry.at_ms,
                process=entry.process,
                group_id=entry.group_id,
                member_id=entry.member_id,
                epoch=entry.generation,
                partitions=tuple(sorted(self._states.to_ids(entry.partitions))),
            )
        )

    def _on_expired(self, entry: MemberExpired) -> None:
        """Forget what a removed member has: it may join again under its id, and report it."""
        if entry.group_id == CONSUMER_GROUP:
            self._granted.pop(entry.member_id, None)

    def _check_granted(self, name: str, shown: _Partitions) -> None:
        members = self._states.durable[-1].stored_members()
        for other, granted in self._granted.items():
            both = granted & shown
            if other != name and both and other in members and other not in self._impersonated:
                _break("consumer-ownership", f"{name} gets {_text(both)}, which {other} still has")

    def _possible(self, entry: ResponseSent) -> list[LoggedGroup]:
        return self._states.possible(entry)

    # The members

    def _on_owned(self, entry: MemberOwnershipChanged) -> None:
        self._owned[entry.process] = entry
        if not entry.partitions:
            self._zombies.discard(entry.process)
            return
        members = self._states.durable[-1].stored_members()
        if not self._is_entitled(entry, members):
            return
        for other in self._owned.values():
            both = frozenset(entry.partitions).intersection(other.partitions)
            if other.process != entry.process and both and self._is_entitled(other, members):
                _break(
                    "consumer-ownership",
                    f"{_text(both)} is owned by {entry.process} (epoch {entry.epoch}) and by "
                    f"{other.process} (epoch {other.epoch})",
                )

    def _is_entitled(self, entry: MemberOwnershipChanged, members: dict[str, LoggedMember]) -> bool:
        member = members.get(entry.member_id)
        if member is None or entry.process in self._zombies:
            return False
        if member.is_classic and member.instance_id is not None:
            # A generation may have included a static member that did not join it.
            return entry.epoch >= self._upgrade_epoch
        return entry.member_id not in self._impersonated

    # The log

    def _on_record(
        self, at_ms: int, key: LogChangeKey, before: LoggedGroup, after: LoggedGroup
    ) -> None:
        if key.type == _MEMBER and key.name in after.members and after.epoch is None:
            self._zombies -= {  # the group is upgraded, and the member stays
                each.process for each in self._owned.values() if each.member_id == key.name
            }
        if key.type == _GROUP and before.epoch is None and after.epoch is not None:
            self._upgrade_epoch = after.epoch
        if key.type == _TARGET:
            _check_target(after)
        elif key.type == _MEMBER and key.name not in after.members:
            self._zombies |= {
                each.process for each in self._owned.values() if each.member_id == key.name
            }
        elif key.type == _ASSIGNMENT and not key.is_tombstone:
            self._check_holders(after, key.name)
            old = before.members.get(key.name)
            new = after.members[key.name]
            if new.epoch > 0 and after.epoch is not None:  # not in an upgrade
                if old is not None and old.is_stored and old.epoch != _STATIC_LEAVE:
                    self._check_steps(key.name, old, new)
                self._check_state(after, key.name)
            reports = self._reports[key.name]
            del reports[:-1]

    def _check_holders(self, group: LoggedGroup, name: str) -> None:
        held = group.members[name].held
        for other, member in group.members.items():
            if other != name and (both := held & member.held):
                _break("consumer-reconciliation", f"{name} gets {_text(both)} of {other}")

    def _check_steps(self, name: str, old: LoggedMember, new: LoggedMember) -> None:
        if foreign := frozenset(new.assigned) - frozenset(old.assigned) - new.target:
            _break("consumer-reconciliation", f"{name} gets {_text(foreign)} beside its target")
        for place, epoch in new.assigned.items():
            expected = old.assigned.get(place, new.epoch)
            if epoch != expected:
                _break("consumer-reconciliation", f"{name} has {place} since {epoch}: {expected}")
        released = old.held - new.held
        reports = [*self._reports[name], *self._reports[_instance_key(new.instance_id)]]
        if new.is_classic:  # it reports names of topics
            released = self._states.with_current_ids(released)
        for place in sorted(released):
            if not any(report is not None and place not in report for report in reports):
                texts = [None if report is None else _text(report) for report in reports]
                _break("consumer-reconciliation", f"{name} did not give up {place}: {texts}")
        if foreign := frozenset(new.pending) - old.held:
            _break("consumer-reconciliation", f"{name} must revoke {_text(foreign)}")

    def _check_state(self, group: LoggedGroup, name: str) -> None:
        member = group.members[name]
        missing = self._subscribed(group, member) - frozenset(member.assigned)
        others = {
            place for other, each in group.members.items() if other != name for place in each.held
        }
        match member.state:
            case 0:
                fits = member.epoch == group.target_epoch and not missing and not member.pending
            case 1:
                fits = bool(member.pending)
            case _:
                blocked = (member.target - frozenset(member.assigned)) & others
                fits = bool(blocked) and not missing - others and not member.pending
        if not fits or (member.state != _UNREVOKED and frozenset(member.assigned) - member.target):
            _break("consumer-reconciliation", f"{name} lacks {_text(missing)}: {member}")

    def _subscribed(self, group: LoggedGroup, member: LoggedMember) -> _Partitions:
        """Return the part of a target whose topics certainly are in the subscription."""
        names = {*member.topics, *group.regexes.get(member.regex or "", ())}
        return frozenset(
            place for place in member.target if self._topics.get(place[0], "") in names
        )


def _instance_key(instance_id: str | None) -> str:
    """Return the key of what a static member reports before it knows its member id."""
    return f"instance {instance_id}"


def _check_target(group: LoggedGroup) -> None:
    owners: dict[LoggedPartition, str] = {}
    for name, member in group.members.items():
        for place in sorted(member.target):
            if place in owners:
                _break("consumer-reconciliation", f"{owners[place]} and {name} both get {place}")
            owners[place] = name


def _has(group: LoggedGroup, name: str, epoch: int, assigned: _Partitions) -> bool:
    member = group.members.get(name)
    return member is not None and member.epoch == epoch and frozenset(member.assigned) == assigned


def _text(partitions: _Partitions) -> str:
    return " ".join(f"{topic_id.hex()[:4]}-{index}" for topic_id, index in sorted(partitions))


def _break(rule: str, description: str) -> None:
    raise RuleViolationError(rule, description)
