"""Read a live group for ``partage lab whatif``, without changing it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.offsets import list_offsets
from partage.console.common.output import count, format_partitions
from partage.console.groups.describe import (
    CONSUMER,
    GroupDescription,
    MemberDescription,
    describe_groups,
)
from partage.console.groups.offsets_topic import read_last_generation
from partage.coordinator.records import GroupRecord
from partage.lab.whatif.live_group import LiveGroup, LiveMember, LivePartition
from partage.model.topic_partition import TopicPartition
from partage.wire.consumer_protocol import decode_assignment
from partage.wire.primitives import MalformedError

#: Kafka's default heartbeat interval, which is at most a third of the session timeout.
HEARTBEAT_INTERVAL_MS: Final = 3_000
#: Minimum reading speed of a member, in records per second.
SPEED_MIN: Final = 1_000.0
_SHOWN_MAX: Final = 200
_ASSIGNED_BY_COORDINATOR: Final = "Consumer"


class ObservedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A live group, and the limits of what is known about it.

    ``measured_s`` is the duration for which topic growth was measured. ``has_timeouts`` is True if
    the timeouts are those that the members joined with. ``has_consumer_protocol`` is True if the
    coordinator assigns (KIP-848).
    """

    group: LiveGroup
    measured_s: float
    has_timeouts: bool
    has_consumer_protocol: bool
    uncommitted: int
    remarks: list[str]


def observe_group(cluster: ClusterClient, name: str, sample_s: float) -> ObservedGroup:
    """Read a group, and measure for ``sample_s`` seconds how fast its topics grow.

    Raises:
        CommandError: The group cannot be simulated, or it rebalanced meanwhile.
    """
    state = _describe_stable(cluster, name)
    wanted = {topic for member in state.members for topic in _topics(member, name)}
    metadata = cluster.metadata()
    existing = metadata.topics
    racks = _racks(cluster)
    counts = {
        topic: len(existing[topic].partitions) for topic in sorted(wanted) if topic in existing
    }
    partitions = [
        TopicPartition(topic, index) for topic, number in counts.items() for index in range(number)
    ]
    begin_s, begin = time.monotonic(), list_offsets(cluster, partitions, OffsetSpec.latest())
    is_assigned = state.type == _ASSIGNED_BY_COORDINATOR
    saved = None if is_assigned else _matching_record(state, read_last_generation(cluster, name))
    time.sleep(max(0.0, sample_s - (time.monotonic() - begin_s)))
    measured_s = time.monotonic() - begin_s
    ends = list_offsets(cluster, partitions, OffsetSpec.latest())
    before, state = state, _check_unchanged(state, _describe_stable(cluster, name))
    earlier = _committed(before)
    committed = _committed(state)
    members = tuple(_member(member, name, counts) for member in state.members)
    group = LiveGroup(
        name=name,
        assignor=state.protocol or "",
        members=members,
        partitions=tuple(
            LivePartition(
                topic=partition[0],
                index=partition[1],
                # Members commit after they read, so the smaller lag is closer to the unread
                # records.
                lag=_lag(
                    (earlier.get(partition), begin.get(partition)),
                    (committed.get(partition), ends.get(partition)),
                ),
                rate=_between(begin.get(partition), ends.get(partition)) / measured_s,
                replicas=tuple(
                    (str(metadata.brokers[broker].host), racks.get(broker))
                    for broker in existing[partition[0]].partitions[partition[1]].replicas
                    if broker in metadata.brokers
                ),
            )
            for partition in partitions
        ),
        speed=SPEED_MIN,
        generation=state.group_epoch if saved is None else saved.generation,
        leader=None if saved is None else saved.leader,
    )
    if saved is not None:
        group = _with_longest_timeouts(group, saved)
    uncommitted = sum(committed.get(partition) is None for partition in partitions)
    return ObservedGroup(
        group=group,
        measured_s=measured_s,
        has_timeouts=saved is not None,
        has_consumer_protocol=is_assigned,
        uncommitted=uncommitted,
        remarks=_remarks(
            state,
            group,
            wanted - counts.keys(),
            sorted({*partitions} - ends.keys()),
            uncommitted,
            saved,
        ),
    )


def _racks(cluster: ClusterClient) -> dict[int, str]:
    """Return the racks of the brokers that have one, by broker id."""
    answer = cluster.result(cluster.admin.describe_cluster(request_timeout=cluster.timeout_s))
    return {int(node.id): str(node.rack) for node in answer.nodes if node.rack}


def _describe_stable(cluster: ClusterClient, name: str) -> GroupDescription:
    (found,) = describe_groups(cluster, [name])
    if found.protocol_type not in (CONSUMER, None):
        raise CommandError(
            f"group {name} is of type {found.protocol_type}; whatif supports only consumer groups"
        )
    if found.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        raise CommandError(
            f"group {name} is rebalancing ({found.state}): try again when it is Stable, which "
            f"partage groups members {name} --watch shows"
        )
    if not found.members:
        raise CommandError(
            f"group {name} has no members ({found.state}): start its consumers, then try again"
        )
    if found.state != "Stable":
        raise CommandError(f"group {name} is {found.state}: try again when it is Stable")
    by_regex = [each.member_id for each in found.members if each.subscribed_regex]
    if by_regex:
        raise CommandError(
            f"member {by_regex[0]} of group {name} subscribes by a regular expression, which its "
            "coordinator matches: whatif supports only topic names"
        )
    return found


def _topics(member: MemberDescription, group: str) -> list[str]:
    """Return the topics that a member subscribes to."""
    if member.subscription is not None:
        return member.subscription
    who = f"member {member.member_id} of group {group} (client {member.client_id}, {member.host})"
    if member.metadata_bytes is None:
        raise CommandError(f"the broker did not return the subscription of {who}: try again")
    raise CommandError(
        f"the metadata of {who} is not a consumer subscription, so any rebalance would "
        "fail: stop that member, or use a separate group for it"
    )


def _check_unchanged(before: GroupDescription, after: GroupDescription) -> GroupDescription:
    if _owned(before) != _owned(after):
        raise CommandError(f"group {after.group} rebalanced during the measurement: try again")
    return after


def _owned(state: GroupDescription) -> dict[str, frozenset[TopicPartition]]:
    return {member.member_id: _owned_partitions(member) for member in state.members}


def _owned_partitions(member: MemberDescription) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(t.topic, index) for t in member.partitions for index in t.partitions
    )


def _committed(state: GroupDescription) -> dict[TopicPartition, int | None]:
    return {TopicPartition(o.topic, o.partition): o.current_offset for o in state.offsets}


def _matching_record(state: GroupDescription, saved: GroupRecord | None) -> GroupRecord | None:
    """Return the group's record if it is of the described generation."""
    if saved is None or saved.awaiting_sync:
        return None
    try:
        stored = {each.member_id: _decoded(each.assignment) for each in saved.members}
    except MalformedError:
        return None
    return saved if stored == _owned(state) else None


def _decoded(assignment: bytes) -> frozenset[TopicPartition]:
    if not assignment:
        return frozenset()
    assigned = decode_assignment(assignment).assigned_partitions
    return frozenset(
        TopicPartition(each.topic, index) for each in assigned for index in each.partitions
    )


def _member(member: MemberDescription, group: str, counts: Mapping[str, int]) -> LiveMember:
    topics = _topics(member, group)
    return LiveMember(
        member_id=member.member_id,
        client_id=member.client_id,
        topics=tuple(topics),
        instance_id=member.group_instance_id,
        rack=member.rack,
        assigned=tuple(
            partition
            for partition in sorted(_owned_partitions(member))
            if partition[0] in topics and partition[1] < counts.get(partition[0], 0)
        ),
    )


def _between(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else max(0, after - before)


def _lag(*samples: tuple[int | None, int | None]) -> int:
    """Return the smallest known lag."""
    lags = [_between(read, end) for read, end in samples if end is not None]
    return min(lags, default=0)


def _with_longest_timeouts(group: LiveGroup, saved: GroupRecord) -> LiveGroup:
    """Return the group with the longest timeouts that its members joined with."""
    return msgspec.structs.replace(
        group,
        session_timeout_ms=_longest_allowed(each.session_timeout_ms for each in saved.members),
        max_poll_interval_ms=_longest_allowed(each.rebalance_timeout_ms for each in saved.members),
    )


def _longest_allowed(timeouts_ms: Iterable[int]) -> int:
    """Return the longest timeout, within the limits of Partage's coordinator."""
    return min(max(1_000, *timeouts_ms), 1_800_000)


# Remarks


def _remarks(
    state: GroupDescription,
    group: LiveGroup,
    missing: set[str],
    leaderless: list[TopicPartition],
    uncommitted: int,
    saved: GroupRecord | None,
) -> list[str]:
    owners = Counter(
        partition for member in state.members for partition in _owned_partitions(member)
    )
    twice = sorted(partition for partition, number in owners.items() if number > 1)
    if twice:
        raise CommandError(
            f"group {group.name} assigns some partitions twice ({_partition_list(twice)}), so "
            "handovers cannot be simulated"
        )
    existing = {TopicPartition(p.topic, p.index) for p in group.partitions}
    known = set(group.owners)
    remarks = []
    if unowned := sorted(existing - known):
        remarks.append(f"without an owner: {_partition_list(unowned)}")
    if gone := sorted(owners.keys() - known):
        remarks.append(
            f"assigned but missing or not subscribed, so ignored: {_partition_list(gone)}"
        )
    if missing:
        remarks.append(f"subscribed topics that do not exist: {', '.join(sorted(missing))}")
    if leaderless:
        remarks.append(f"without a leader, so not readable: {_partition_list(leaderless)}")
    if uncommitted:
        remarks.append(
            f"{count(uncommitted, 'partition')} without a committed offset: no lag assumed"
        )
    if any(each.protocol == "Classic" for each in state.members):
        remarks.append("members with the classic protocol are simulated with the consumer protocol")
    if saved is not None:
        timeouts = {(each.session_timeout_ms, each.rebalance_timeout_ms) for each in saved.members}
        if len(timeouts) > 1:
            remarks.append("members joined with different timeouts: the longest ones are used")
    return remarks


def _partition_list(partitions: list[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    text = " ".join(format_partitions(topic, indexes) for topic, indexes in by_topic.items())
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    return f"{count(len(partitions), 'partition')}, {shown}"
