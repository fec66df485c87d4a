"""Runner of scenarios with requests of consumer groups (KIP-848), against a broker.

Each line of a scenario is a request; the lines below it are the response. A member is named by a
letter, which is also its member id. It remembers its epoch, and sends what the line says.

=====================================  ============================================================
``create TOPIC COUNT``                 create a topic; ``grow TOPIC COUNT``, ``delete TOPIC``;
                                       ``known=yes`` waits until the group's shard knows the growth
``select NAME``                        select the group of the following lines
``join NAME [TOPIC ...]``              ConsumerGroupHeartbeat, epoch 0, with all fields
``beat NAME [TOPIC ...]``              ConsumerGroupHeartbeat, its epoch; only the fields given
``leave NAME``                         epoch -1; ``epoch=-2`` for a static member
``describe``                           ConsumerGroupDescribe; ``describe-classic`` DescribeGroups
``list``                               ListGroups, this group's line; ``delete-group``
``commit NAME TOPIC P OFFSET``         OffsetCommit; ``fetch NAME TOPIC P``; ``forget TOPIC P``
``fetch-all NAME``                     OffsetFetch of all topics
``classic-join NAME``                  JoinGroup, SyncGroup, Heartbeat and LeaveGroup with an
``classic-sync | -beat | -leave NAME`` id given by the broker; ``classic-commit`` as ``commit``
``classic-response NAME``              the response to a JoinGroup with ``parked=yes``
=====================================  ============================================================

Options: ``epoch=``, ``owned=TOPIC:0,1`` (``owned=none`` for an empty list), ``regex=``,
``instance=``, ``rack=``, ``assignor=``, ``rebalance=``, ``id=`` the member id, ``v=`` the version,
``plus=`` a number to add to the epoch. ``until=`` repeats a heartbeat until its response has an
assignment. For classic members: ``protocol=A,B``, ``give=TOPIC:0,1`` is the leader's assignment to
itself, ``give-NAME=`` that to another member, ``data=`` their user data, ``malformed=yes``.
``once=yes`` shows the response to the first JoinGroup, MEMBER_ID_REQUIRED, which is otherwise
repeated with the id. ``parked=yes`` waits until the broker has received JoinGroup, but not for its
response.
From ``v=10`` on OffsetCommit and OffsetFetch have topic ids. ``was-TOPIC`` is the id of the topic
before it was deleted and created again; an unknown topic has an unknown id, ``zero`` the zero id.
The value ``empty`` stands for an empty text, ``null`` for none.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterable
from typing import Any

from interop.oracle.actors import error_name
from interop.oracle.connection import Connection, NoResponseError, Pending
from interop.repeated_request import repeat
from partage.model.errors import ErrorCode
from partage.store.shard_log import shard_of
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupTopicPartitions,
)
from partage.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from partage.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsTopic
from partage.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
)
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupAssignment, SyncGroupRequest
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import ZERO_UUID

_RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_UNKNOWN_TOPIC = bytes(15) + b"u"
_JOIN_GROUP_VERSION = 9


class ConsumerGroupScript:
    """The run of one scenario.

    Args:
        connection: a connection to the coordinator.
        prefix: begins the names of topics and groups.
        group: the group, until a line selects another one.
    """

    def __init__(self, connection: Connection, prefix: str, group: str = "g") -> None:
        self._connection = connection
        self._prefix = prefix
        self._group = prefix + group
        self._neighbour = _neighbour(self._group)
        self._epochs: dict[str, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._classic: dict[str, tuple[str, int]] = {}
        self._parked: dict[str, tuple[Connection, Pending[JoinGroupResponse]]] = {}
        self._find_coordinator()

    def _find_coordinator(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        describe = DescribeGroupsRequest(groups=[self._group])

        def ask() -> int:
            found = self._connection.ask(FIND_COORDINATOR, request, 4).coordinators[0].error_code
            if not found:
                found = self._connection.ask(DESCRIBE_GROUPS, describe, 5).groups[0].error_code
            return int(found)

        repeat(ask, lambda error: not error)

    @property
    def group(self) -> str:
        """The full name of the selected group."""
        return self._group

    def reconnect(self, connection: Connection) -> None:
        """Use another connection, after a restart of the coordinator."""
        self._connection = connection
        self._find_coordinator()

    def run(self, line: str) -> list[str]:
        """Send the request of a line, and return its response."""
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        response: list[str] = getattr(self, f"_{verb.replace('-', '_')}")(names, options)
        return [self.clean(text) for text in response]

    def clean(self, text: str) -> str:
        """Replace ids and prefixes, which each run has its own, by names."""
        for name, topic_id in self._topic_ids.items():
            text = text.replace(_base64(topic_id), f"ID-OF-{name}")
        for name, (member_id, _) in self._classic.items():
            text = re.sub(rf"(?<![\w-]){re.escape(member_id)}(?![\w-])", f"ID-OF-{name}", text)
        return text.replace(self._prefix, "")

    def _ask(self, api: Any, request: Any, options: dict[str, str], version: int) -> Any:
        return repeat(
            lambda: self._connection.ask(api, request, int(options.get("v", version))),
            lambda response: getattr(response, "error_code", 0) not in _RETRIED,
        )

    # Topics.

    def _create(self, names: list[str], options: dict[str, str]) -> list[str]:
        topic = CreatableTopic(
            name=self._prefix + names[0],
            num_partitions=int(names[1]),
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        result = self._ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), options, 7).topics[0]
        if names[0] in self._topic_ids:
            self._topic_ids[f"was-{names[0]}"] = self._topic_ids[names[0]]
        self._topic_ids[names[0]] = bytes(result.topic_id)
        self._wait_for_topic(names[0], int(names[1]))
        return [error_name(result.error_code)]

    def _wait_for_topic(self, topic: str, count: int) -> None:
        """Wait until the group's shard knows a new topic, with a member of another group."""
        everything = f"[{topic}:{_comma_separated(range(count))}]"
        group, self._group = self._group, self._neighbour

        def join() -> str:
            joined = self._join(["probe", topic], {})[0]
            self._leave(["probe"], {})
            return joined

        repeat(join, lambda joined: everything in joined)
        self._group = group

    def _grow(self, names: list[str], options: dict[str, str]) -> list[str]:
        topic = CreatePartitionsTopic(name=self._prefix + names[0], count=int(names[1]))
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        result = self._ask(CREATE_PARTITIONS, request, options, 3).results[0]
        if "known" in options:
            self._wait_for_topic(names[0], int(names[1]))
        return [error_name(result.error_code)]

    def _delete(self, names: list[str], options: dict[str, str]) -> list[str]:
        topic = DeleteTopicsTopic(name=self._prefix + names[0])
        request = DeleteTopicsRequest(topics=[topic], timeout_ms=10_000)
        return [error_name(self._ask(DELETE_TOPICS, request, options, 6).responses[0].error_code)]

    # Consumer members.

    def _join(self, names: list[str], options: dict[str, str]) -> list[str]:
        full = {"epoch": "0", "owned": "none", "rebalance": "60000", **options}
        return self._heartbeat(names[0], names[1:], full)

    def _beat(self, names: list[str], options: dict[str, str]) -> list[str]:
        topics = names[1:] or None
        if topics == ["none"]:
            topics = []
        return repeat(
            lambda: self._heartbeat(names[0], topics, options),
            lambda response: "until" not in options or "[" in response[0],
        )

    def _leave(self, names: list[str], options: dict[str, str]) -> list[str]:
        return self._heartbeat(names[0], None, {"epoch": "-1", **options})

    def _heartbeat(self, name: str, topics: list[str] | None, options: dict[str, str]) -> list[str]:
        epoch = int(options.get("epoch", self._epochs.get(name, 0)))
        if "plus" in options:
            epoch += int(options["plus"])
        request = ConsumerGroupHeartbeatRequest(
            group_id=_text(options.get("group", self._group)) or "",
            member_id=_text(options.get("id", name)) or "",
            member_epoch=epoch,
            instance_id=_text(options.get("instance")),
            rack_id=_text(options.get("rack")),
            rebalance_timeout_ms=int(options.get("rebalance", -1)),
            subscribed_topic_names=(
                None if topics is None else [self._prefix + topic for topic in topics]
            ),
            subscribed_topic_regex=self._regex(options.get("regex")),
            server_assignor=_text(options.get("assignor")),
            topic_partitions=self._owned(options.get("owned")),
        )
        response = self._ask(CONSUMER_GROUP_HEARTBEAT, request, options, 1)
        if response.error_code:
            epoch_text = f" epoch {response.member_epoch}" if response.member_epoch else ""
            return [f"{error_name(response.error_code)}{epoch_text}: {response.error_message}"]
        self._epochs[name] = response.member_epoch
        shown = f"epoch {response.member_epoch}"
        if response.member_id != name:
            shown += " with a new id" if response.member_id else f" id {response.member_id}"
        if response.assignment is not None:
            shown += f" {self._partitions(response.assignment.topic_partitions)}"
        if "interval" in options:
            shown += f" interval {response.heartbeat_interval_ms}"
        return [shown]

    def _regex(self, text: str | None) -> str | None:
        if text is None or text == "empty":
            return _text(text)
        return self._prefix + text if "raw" not in text else text.removeprefix("raw")

    def _owned(self, text: str | None) -> list[ConsumerGroupTopicPartitions] | None:
        if text is None or text == "null":
            return None
        if text == "none":
            return []
        owned = []
        for part in text.split("/"):
            name, _, numbers = part.partition(":")
            owned.append(
                ConsumerGroupTopicPartitions(
                    topic_id=self._topic_ids.get(name, _UNKNOWN_TOPIC),
                    partitions=[int(number) for number in numbers.split(",")],
                )
            )
        return owned

    def _partitions(self, topics: Any) -> str:
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        shown = sorted(
            f"{names.get(bytes(topic.topic_id), '?')}:{_comma_separated(topic.partitions)}"
            for topic in topics
        )
        return f"[{' '.join(shown)}]"

    def _describe(self, names: list[str], options: dict[str, str]) -> list[str]:
        request = ConsumerGroupDescribeRequest(
            group_ids=[self._group], include_authorized_operations=False
        )
        group = self._ask(CONSUMER_GROUP_DESCRIBE, request, options, 1).groups[0]
        if group.error_code:
            return [
                f"{error_name(group.error_code)} state {group.group_state!r}: {group.error_message}"
            ]
        lines = [
            f"{group.group_state} epoch {group.group_epoch} assignment {group.assignment_epoch}"
            f" assignor {group.assignor_name}"
        ]
        for member in sorted(group.members, key=lambda each: self.clean(each.member_id)):
            fields = [
                f"{member.member_id} epoch {member.member_epoch} type {member.member_type}",
                f"topics {','.join(sorted(member.subscribed_topic_names))}",
            ]
            if member.subscribed_topic_regex is not None:
                fields.append(f"regex {member.subscribed_topic_regex!r}")
            if member.instance_id is not None:
                fields.append(f"instance {member.instance_id}")
            if member.rack_id is not None:
                fields.append(f"rack {member.rack_id}")
            fields.append(f"has {self._partitions(member.assignment.topic_partitions)}")
            fields.append(f"target {self._partitions(member.target_assignment.topic_partitions)}")
            lines.append(" ".join(fields))
        return lines

    # Any group.

    def _select(self, names: list[str], options: dict[str, str]) -> list[str]:
        self._group = self._prefix + names[0]
        return []

    def _list(self, names: list[str], options: dict[str, str]) -> list[str]:
        types = [options["type"]] if "type" in options else []
        states = [options["state"]] if "state" in options else []
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        response = self._ask(LIST_GROUPS, request, options, 5)
        return [
            f"{group.group_id} {group.protocol_type} {group.group_state} {group.group_type}"
            for group in response.groups
            if group.group_id == self._group
        ] or ["not listed"]

    def _delete_group(self, names: list[str], options: dict[str, str]) -> list[str]:
        request = DeleteGroupsRequest(groups_names=[self._group])
        return [error_name(self._ask(DELETE_GROUPS, request, options, 2).results[0].error_code)]

    # Offsets.

    def _commit(self, names: list[str], options: dict[str, str]) -> list[str]:
        name, topic, partition, offset = names
        position = OffsetCommitPartition(
            partition_index=int(partition), committed_offset=int(offset), committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch(name, options),
            member_id=_text(options.get("id", name)) or "",
            group_instance_id=_text(options.get("instance")),
            topics=[
                OffsetCommitTopic(
                    name=self._prefix + topic, topic_id=self._id(topic), partitions=[position]
                )
            ],
        )
        response = self._ask(OFFSET_COMMIT, request, options, 9)
        (result,) = response.topics
        assert result.topic_id == (ZERO_UUID if result.name else self._id(topic))
        return [error_name(result.partitions[0].error_code)]

    def _id(self, topic: str) -> bytes:
        return ZERO_UUID if topic == "zero" else self._topic_ids.get(topic, _UNKNOWN_TOPIC)

    def _epoch(self, name: str, options: dict[str, str]) -> int:
        return int(options.get("epoch", self._epochs.get(name, -1))) + int(options.get("plus", 0))

    def _fetch(self, names: list[str], options: dict[str, str]) -> list[str]:
        name, topic, partition = names
        wanted = OffsetFetchTopic(
            name=self._prefix + topic,
            topic_id=self._id(topic),
            partition_indexes=[int(partition)],
        )
        found = self._fetch_topics(name, [wanted], options)
        if found.error_code:
            return [error_name(found.error_code)]
        (of_topic,) = found.topics
        assert of_topic.topic_id == (ZERO_UUID if of_topic.name else self._id(topic))
        (result,) = of_topic.partitions
        return [f"{error_name(result.error_code)} {result.committed_offset}"]

    def _fetch_all(self, names: list[str], options: dict[str, str]) -> list[str]:
        found = self._fetch_topics(names[0], None, options)
        if found.error_code:
            return [error_name(found.error_code)]
        return sorted(
            f"{topic.name or f'ID-OF-{self._name(topic.topic_id)}'}"
            f" {result.partition_index} {result.committed_offset}"
            for topic in found.topics
            for result in topic.partitions
        ) or ["nothing"]

    def _name(self, topic_id: bytes) -> str:
        return {known: name for name, known in self._topic_ids.items()}.get(bytes(topic_id), "?")

    def _fetch_topics(
        self, name: str, topics: list[OffsetFetchTopic] | None, options: dict[str, str]
    ) -> OffsetFetchGroupResult:
        group = OffsetFetchGroup(
            group_id=self._group,
            member_id=_text(options.get("id", name)),
            member_epoch=self._epoch(name, options),
            topics=topics,
        )
        request = OffsetFetchRequest(groups=[group])
        result: OffsetFetchGroupResult = self._ask(OFFSET_FETCH, request, options, 9).groups[0]
        return result

    def _forget(self, names: list[str], options: dict[str, str]) -> list[str]:
        topic, partition = names
        of_topic = OffsetDeleteTopic(
            name=self._prefix + topic,
            partitions=[OffsetDeletePartition(partition_index=int(partition))],
        )
        request = OffsetDeleteRequest(group_id=self._group, topics=[of_topic])
        response = self._ask(OFFSET_DELETE, request, options, 0)
        if response.error_code:
            return [error_name(response.error_code)]
        return [error_name(response.topics[0].partitions[0].error_code)]

    # Classic members.

    def _classic_join(self, names: list[str], options: dict[str, str]) -> list[str]:
        name, *topics = names
        member_id, generation = self._classic.get(name, ("", 0))
        request = self._join_group(topics, _text(options.get("id", member_id)) or "", options)
        if "parked" in options and (request.member_id or request.group_instance_id):
            return self._park(name, request)
        response = self._ask(JOIN_GROUP, request, options, _JOIN_GROUP_VERSION)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            if "once" not in options:
                return self._classic_join(names, {**options, "id": response.member_id})
            self._classic[name] = (response.member_id, generation)
        return self._joined(name, response)

    def _park(self, name: str, request: JoinGroupRequest) -> list[str]:
        """Send JoinGroup on another connection, and wait until the broker has received it."""
        connection = Connection(self._connection.bootstrap, "parked")
        pending = connection.begin(JOIN_GROUP, request, _JOIN_GROUP_VERSION)
        self._parked[name] = connection, pending
        if request.member_id:
            self._classic[name] = (request.member_id, self._classic.get(name, ("", 0))[1])
        describe = DescribeGroupsRequest(groups=[self._group])
        group = repeat(
            lambda: self._connection.ask(DESCRIBE_GROUPS, describe, 6).groups[0],
            lambda group: self._is_answered(name) or _has_parked(group, request),
        )
        if self._is_answered(name):
            return [f"answered, {self._classic_response([name], {})[0]}"]
        return [f"parked, {group.group_state}, {len(group.members)} members"]

    def _is_answered(self, name: str) -> bool:
        try:
            self._parked[name][1].peek(0)
        except NoResponseError:
            return False
        return True

    def _classic_response(self, names: list[str], options: dict[str, str]) -> list[str]:
        if names[0] not in self._parked:
            return ["answered before"]
        connection, pending = self._parked.pop(names[0])
        with connection:
            return self._joined(names[0], pending.result())

    def _join_group(
        self, topics: list[str], member_id: str, options: dict[str, str]
    ) -> JoinGroupRequest:
        metadata = encode_subscription(
            Subscription(
                topics=[self._prefix + topic for topic in topics],
                owned_partitions=self._by_name(options.get("owned")),
            ),
            1,
        )
        if "malformed" in options:
            metadata = b"\0"
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            group_instance_id=_text(options.get("instance")),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                JoinGroupProtocol(name=protocol, metadata=metadata)
                for protocol in options.get("protocol", "range").split(",")
            ],
        )

    def _joined(self, name: str, response: JoinGroupResponse) -> list[str]:
        if not response.error_code:
            self._classic[name] = (response.member_id, response.generation_id)
        leader = f" leader {response.leader}" if response.leader else ""
        return [
            f"{error_name(response.error_code)} generation {response.generation_id}"
            f" protocol {response.protocol_name}{leader}"
        ]

    def _classic_sync(self, names: list[str], options: dict[str, str]) -> list[str]:
        member_id, generation = self._classic.get(names[0], (names[0], 1))
        given = {member_id: b"malformed"} if "malformed" in options else {member_id: b""}
        for option, partitions in options.items():
            if option.startswith("give"):
                _, _, other = option.partition("-")
                given[self._classic[other][0] if other else member_id] = encode_assignment(
                    Assignment(
                        assigned_partitions=self._by_name(partitions),
                        user_data=options["data"].encode() if "data" in options else None,
                    ),
                    1,
                )
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=int(options.get("epoch", generation)),
            member_id=member_id,
            group_instance_id=_text(options.get("instance")),
            protocol_type="consumer",
            protocol_name=options.get("protocol", "range"),
            assignments=[
                SyncGroupAssignment(member_id=each, assignment=assignment)
                for each, assignment in given.items()
            ],
        )
        response = self._ask(SYNC_GROUP, request, options, 5)
        shown = f"{len(response.assignment)} bytes"
        if response.assignment and not response.error_code:
            shown = self._assigned_by_name(bytes(response.assignment))
        return [f"{error_name(response.error_code)} {shown}"]

    def _by_name(self, text: str | None) -> list[ConsumerTopicPartitions]:
        parts = [part.partition(":") for part in (text or "").split("/") if part]
        return [
            ConsumerTopicPartitions(
                topic=self._prefix + name, partitions=list(map(int, numbers.split(",")))
            )
            for name, _, numbers in parts
        ]

    def _assigned_by_name(self, data: bytes) -> str:
        version = int.from_bytes(data[:2], "big")
        try:
            assigned = decode_assignment(data).assigned_partitions
        except MalformedError:
            return data.decode()
        shown = sorted(
            f"{each.topic.removeprefix(self._prefix)}:{_comma_separated(each.partitions)}"
            for each in assigned
        )
        return f"version {version} [{' '.join(shown)}]"

    def _classic_beat(self, names: list[str], options: dict[str, str]) -> list[str]:
        member_id, generation = self._classic.get(names[0], (names[0], 1))
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=int(options.get("epoch", generation)),
            member_id=member_id,
            group_instance_id=_text(options.get("instance")),
        )
        return [error_name(self._ask(HEARTBEAT, request, options, 4).error_code)]

    def _classic_commit(self, names: list[str], options: dict[str, str]) -> list[str]:
        member_id, generation = self._classic[names[0]]
        return self._commit(names, {"epoch": str(generation), "id": member_id, **options})

    def _classic_leave(self, names: list[str], options: dict[str, str]) -> list[str]:
        member_id, _ = self._classic.get(names[0], (names[0], 1))
        members = [
            LeaveGroupMember(member_id=member_id, group_instance_id=_text(options.get("instance")))
        ]
        request = LeaveGroupRequest(group_id=self._group, members=members)
        response = self._ask(LEAVE_GROUP, request, options, 5)
        if response.error_code:
            return [error_name(response.error_code)]
        return [error_name(response.members[0].error_code)]

    def _describe_classic(self, names: list[str], options: dict[str, str]) -> list[str]:
        request = DescribeGroupsRequest(groups=[self._group])
        group = self._ask(DESCRIBE_GROUPS, request, options, 6).groups[0]
        return [
            f"{error_name(group.error_code)} {group.group_state!r} {len(group.members)} members:"
            f" {group.error_message}"
        ]

    def _wait(self, names: list[str], options: dict[str, str]) -> list[str]:
        """Wait for a state that the broker reaches by itself: ``wait STATE EPOCH``."""
        return repeat(
            lambda: self._describe([], {}),
            lambda found: found[0].startswith(" ".join(names)),
        )


def _has_parked(group: DescribedGroup, request: JoinGroupRequest) -> bool:
    """True if the group is joining, and has the member of the request."""
    instance_id = request.group_instance_id
    return group.group_state == "PreparingRebalance" and any(
        request.member_id == member.member_id
        or (instance_id is not None and instance_id == member.group_instance_id)
        for member in group.members
    )


def _text(value: str | None) -> str | None:
    """Return the value of an option; ``empty`` stands for an empty text, ``null`` for none."""
    return None if value == "null" else "" if value == "empty" else value


def _comma_separated(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _neighbour(group: str) -> str:
    """Return another group of the same shard, for 8 and for 50 shards."""
    names = (f"{group}-neighbour-{number}" for number in itertools.count())
    return next(name for name in names if shard_of(name, 200) == shard_of(group, 200))


def _base64(topic_id: bytes) -> str:
    """Return a topic id as Kafka shows it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
