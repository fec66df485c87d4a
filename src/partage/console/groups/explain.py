"""``partage groups explain``: reasons for the last assignment of a group.

The input is what the coordinator kept of the last rebalance: the subscription of each member, with
the partitions that it owned, and its assignment. The same assignor runs again on this input. The
leader is in the group's record in ``__consumer_offsets`` (`offsets_topic`).

In a group with the consumer protocol (KIP-848) the coordinator assigns. The partitions that members
own now are compared with their target assignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from partage.assignors import (
    Assignment,
    Assignor,
    ConsistentHashing,
    CooperativeSticky,
    CoPartitioned,
    LagBased,
    Member,
    PartitionReason,
    RackAware,
    Range,
    Redundant,
    RoundRobin,
    Sticky,
    Topic,
    Weighted,
    explain_assignment,
)
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError
from partage.console.common.options import (
    GroupArgument,
    GroupOption,
    JsonOption,
    required_name,
    with_coordinators,
)
from partage.console.common.output import format_partitions, json_help, print_json
from partage.console.common.table import print_table
from partage.console.groups.describe import (
    CONSUMER,
    GroupDescription,
    MemberDescription,
    fetch_groups,
    missing_groups_error,
)
from partage.console.groups.offsets_topic import read_last_generation
from partage.console.groups.raw_groups import UNKNOWN, RawGroup, RawMember
from partage.coordinator.records import GroupRecord
from partage.wire.consumer_protocol import decode_assignment, decode_subscription
from partage.wire.primitives import MalformedError

app = command_app()

#: Assignors that can explain a result without options that only the members know.
_KNOWN: Final[Mapping[str, type[Assignor]]] = {
    each.name: each
    for each in (
        ConsistentHashing,
        CoPartitioned,
        CooperativeSticky,
        LagBased,
        RackAware,
        Range,
        Redundant,
        RoundRobin,
        Sticky,
        Weighted,
    )
}
#: Assignors whose result depends only on the input that is available here.
_REPEATABLE: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


class InputOwnedPartitions(msgspec.Struct, frozen=True):
    """Partitions of a topic that a member owned when it joined."""

    topic: str
    partitions: list[int]


class MemberInput(msgspec.Struct, frozen=True):
    """Input of the assignor for one member; ``generation`` is null if it is unknown."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    subscription: list[str]
    owned: list[InputOwnedPartitions]
    generation: int | None
    rack: str | None


class Explanation(msgspec.Struct, frozen=True):
    """Output of ``partage groups explain --json``.

    ``leader`` is the member id of the leader in ``generation``. Both are null if
    ``__consumer_offsets`` cannot be read, or has no record of the current generation. ``repeated``
    is true if the assignor gives the same result again, and null if it was not run again.

    In a group with the consumer protocol ``generation`` is the epoch of the target assignment, and
    there is no leader. ``state`` is the state of the group.
    """

    group: str
    generation: int | None
    leader: str | None
    assignor: str
    known: bool
    repeated: bool | None
    members: list[MemberInput]
    partitions: list[PartitionReason]
    type: str = "Classic"
    state: str = "Stable"


@app.command("explain", epilog=json_help(Explanation))
@with_coordinators()
def explain(
    cluster: ClusterClient,
    name: GroupArgument = None,
    group: GroupOption = None,
    json: JsonOption = False,
) -> None:
    """Explain the last assignment of a group: leader, members, and a reason per partition.

    The leader is read from __consumer_offsets. Members of an eager group own
    nothing when they join, so no old owner is shown. With the consumer protocol
    the coordinator assigns: the current assignment is compared with the target.

    \b
    Examples:
      partage groups explain readers
      partage groups explain readers --json
    """
    wanted = required_name(name, group, "group")
    found = fetch_groups(cluster, [wanted]).get(wanted)
    if found is None:
        raise missing_groups_error(cluster, [wanted])
    explanation = _explained(cluster, found.description, found.raw)
    if json:
        print_json(explanation)
    else:
        _print(explanation)


def _explained(
    cluster: ClusterClient, state: GroupDescription, raw: RawGroup | None
) -> Explanation:
    name = state.group
    if raw is not None and not raw.is_described:
        raise CommandError(
            f"cannot explain group {name}: its coordinator does not describe groups of type "
            f"{state.type or UNKNOWN}"
        )
    if not state.members:
        raise CommandError(
            f"cannot explain group {name}: it has no members; try again when members have joined"
        )
    if state.protocol_type != CONSUMER:
        raise CommandError(
            f"cannot explain group {name}: its protocol type is {state.protocol_type}, "
            f"not {CONSUMER}"
        )
    if state.group_epoch is not None:
        return _explained_target(cluster, state)
    if state.type != "Classic" or raw is None:
        raise CommandError(
            f"cannot explain group {name}: its coordinator gives no epochs and targets (KIP-848)"
        )
    if state.state != "Stable" or not raw.members:
        raise CommandError(
            f"cannot explain group {name}: it is {state.state}; try again when it is Stable"
        )
    try:
        members = [_member(each) for each in raw.members]
        assignment = {each.member_id: _assigned(each) for each in raw.members}
    except MalformedError as error:
        raise CommandError(
            f"cannot explain group {name}: undecodable metadata of a member: {error}"
        ) from error
    topics = _existing_topics(cluster, members)
    kind = _KNOWN.get(
        raw.protocol.partition("-v")[0] if raw.protocol not in _KNOWN else raw.protocol
    )
    assignor = kind() if kind is not None else None
    understood = members if assignor is None else assignor.with_user_data(members)
    saved = _saved_as(read_last_generation(cluster, name), raw)
    return Explanation(
        group=name,
        generation=None if saved is None else saved.generation,
        leader=None if saved is None else saved.leader,
        assignor=raw.protocol,
        known=assignor is not None,
        repeated=_is_repeated(assignor, members, topics, assignment),
        members=[
            _input(member, each.client_id)
            for member, each in zip(understood, raw.members, strict=True)
        ],
        partitions=explain_assignment(members, topics, assignment)
        if assignor is None
        else assignor.explain(members, topics, assignment),
    )


def _existing_topics(cluster: ClusterClient, members: Sequence[Member]) -> dict[str, Topic]:
    """Return the existing topics that members subscribe to."""
    existing = cluster.metadata().topics
    return {
        topic: Topic(name=topic, partition_count=len(existing[topic].partitions))
        for topic in sorted({topic for member in members for topic in member.topics})
        if topic in existing
    }


def _explained_target(cluster: ClusterClient, group: GroupDescription) -> Explanation:
    """Explain the target assignment of a group with the consumer protocol."""
    members = [_target_member(each) for each in group.members]
    assignment = {
        each.member_id: {of.topic: tuple(of.partitions) for of in each.target or ()}
        for each in group.members
    }
    assignor = group.protocol or ""
    return Explanation(
        group=group.group,
        generation=group.target_epoch,
        leader=None,
        assignor=assignor,
        known=assignor in _KNOWN or assignor == "uniform",
        repeated=None,
        members=[
            _input(member, each.client_id)
            for member, each in zip(members, group.members, strict=True)
        ],
        partitions=explain_assignment(members, _existing_topics(cluster, members), assignment),
        type="Consumer",
        state=group.state,
    )


def _target_member(described: MemberDescription) -> Member:
    """Return a member with its current partitions; those of a regex count as subscribed."""
    shares = (*described.partitions, *(described.target or ()))
    return Member(
        member_id=described.member_id,
        instance_id=described.group_instance_id,
        topics=tuple(sorted({*(described.subscription or ()), *(of.topic for of in shares)})),
        owned={of.topic: tuple(of.partitions) for of in described.partitions},
        generation=-1 if described.epoch is None else described.epoch,
        rack=described.rack,
    )


def _saved_as(saved: GroupRecord | None, raw: RawGroup) -> GroupRecord | None:
    """Return the record if it is of the described generation, otherwise None."""
    if saved is None:
        return None
    stored = {each.member_id: each.assignment for each in saved.members}
    described = {each.member_id: each.assignment for each in raw.members}
    return saved if stored == described else None


def _member(raw: RawMember) -> Member:
    subscription = decode_subscription(raw.metadata)
    return Member(
        member_id=raw.member_id,
        instance_id=raw.instance_id,
        topics=tuple(subscription.topics),
        owned={each.topic: tuple(each.partitions) for each in subscription.owned_partitions},
        generation=subscription.generation_id,
        rack=subscription.rack_id,
        user_data=bytes(subscription.user_data or b""),
    )


def _assigned(raw: RawMember) -> dict[str, tuple[int, ...]]:
    if not raw.assignment:
        return {}
    assigned = decode_assignment(raw.assignment).assigned_partitions
    return {each.topic: tuple(each.partitions) for each in assigned}


def _is_repeated(
    assignor: Assignor | None,
    members: Sequence[Member],
    topics: Mapping[str, Topic],
    assignment: Assignment,
) -> bool | None:
    """True if the assignor gives the same result again; None if it was not run again.

    It is not run again if a member has a rack, because the racks of the replicas are unknown here.
    """
    if assignor is None or assignor.name not in _REPEATABLE or any(each.rack for each in members):
        return None
    again = assignor.assign(members, topics)
    return _flat(again) == _flat(assignment)


def _flat(assignment: Assignment) -> set[tuple[str, str, int]]:
    return {
        (member_id, topic, partition)
        for member_id, share in assignment.items()
        for topic, partitions in share.items()
        for partition in partitions
    }


def _input(member: Member, client_id: str) -> MemberInput:
    return MemberInput(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=client_id,
        subscription=sorted(member.topics),
        owned=[
            InputOwnedPartitions(topic, sorted(numbers))
            for topic, numbers in sorted(member.owned.items())
            if numbers
        ],
        generation=member.generation if member.generation >= 0 else None,
        rack=member.rack,
    )


def _print(explanation: Explanation) -> None:
    print_table(
        ["MEMBER-ID", "CLIENT-ID", "SUBSCRIPTION", "SINCE-GENERATION", "RACK", "OWNED"],
        [
            (
                each.member_id,
                each.client_id,
                ",".join(each.subscription),
                each.generation,
                each.rack,
                " ".join(format_partitions(owned.topic, owned.partitions) for owned in each.owned)
                or None,
            )
            for each in explanation.members
        ],
        optional=["RACK", "SINCE-GENERATION", "SUBSCRIPTION", "CLIENT-ID"],
        wrapped=True,
    )
    print()
    print_table(
        ["TOPIC", "PARTITION", "HAD", "HAS", "WHY"],
        [
            (
                each.topic,
                each.partition,
                ",".join(each.owner_ids) or None,
                ",".join(each.member_ids) or None,
                each.reason,
            )
            for each in explanation.partitions
        ],
        optional=["HAD"],
        wrapped=True,
    )
    if explanation.type == "Consumer":
        print(
            f"group {explanation.group}: epoch {explanation.generation}, {explanation.state}; "
            f"assignor {explanation.assignor} of the coordinator, not run again, because it ran in "
            "the broker"
        )
        return
    led = "leader unknown"
    if explanation.leader is not None:
        client_id = next(
            m.client_id for m in explanation.members if m.member_id == explanation.leader
        )
        led = f"generation {explanation.generation}, leader {explanation.leader} ({client_id})"
    print(
        f"group {explanation.group}: {led}; assignor {explanation.assignor}, "
        f"{describe_repetition(explanation)}"
    )


def describe_repetition(explanation: Explanation) -> str:
    """Return the result of running the assignor again, or the reason why it was not run again."""
    if explanation.repeated:
        return "same result when run again"
    if explanation.repeated is not None:
        return "different result when run again now"
    if not explanation.known:
        return (
            "not run again, because it is no assignor of Partage; call its assign() with the "
            "members that --json prints"
        )
    if any(member.rack for member in explanation.members):
        return "not run again, because members have racks and those of the replicas are unknown"
    return "not run again, because its result depends on more than members and topics"
