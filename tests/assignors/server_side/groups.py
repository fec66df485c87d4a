"""Random groups for assignors in the broker, and measures of their target assignments."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec

from partage.assignors.server_side import ServerSideAssignor, TargetAssignment
from partage.coordinator.consumer_group.actions import AssignableMember
from partage.coordinator.consumer_group.events import TopicImage

Members = dict[str, AssignableMember]
Topics = dict[bytes, TopicImage]


def topic(name: str, partition_count: int) -> TopicImage:
    topic_id = name.encode().rjust(16, b"\0")
    return TopicImage(topic_id=topic_id, name=name, partition_count=partition_count)


def topics(**partition_counts: int) -> Topics:
    made = [topic(name, count) for name, count in partition_counts.items()]
    return {each.topic_id: each for each in made}


def members(names: str, existing: Topics) -> Members:
    """Return members that subscribe to all topics."""
    return {
        name: AssignableMember(member_id=name, subscribed_topic_ids=frozenset(existing))
        for name in names
    }


def with_target(group: Members, target: Mapping[str, Mapping[bytes, tuple[int, ...]]]) -> Members:
    """Return the members with their parts of the previous target."""
    return {
        name: msgspec.structs.replace(member, target=target.get(name, {}))
        for name, member in group.items()
    }


def is_homogeneous(group: Members) -> bool:
    return len({member.subscribed_topic_ids for member in group.values()}) <= 1


def subscribed(group: Members, existing: Topics) -> Topics:
    """Return the topics to which any member subscribes."""
    wanted = frozenset[bytes]().union(*(member.subscribed_topic_ids for member in group.values()))
    return {topic_id: its for topic_id, its in existing.items() if topic_id in wanted}


def assign(assignor: ServerSideAssignor, group: Members, existing: Topics) -> TargetAssignment:
    return assignor.assign(group, subscribed(group, existing), is_homogeneous=is_homogeneous(group))


def random_group(rng: Random, assignor: ServerSideAssignor) -> tuple[Members, Topics]:
    """Return a group whose members, topics and subscriptions changed since its last assignment."""
    existing = {t.topic_id: t for n in range(rng.randint(1, 6)) for t in [_random_topic(rng, n)]}
    is_alike = rng.random() < 0.5
    group = _random_members(rng, existing, range(rng.randint(1, 8)), is_alike)
    for _ in range(rng.randint(0, 2)):
        group = with_target(group, assign(assignor, group, existing))
        leaving = rng.sample(sorted(group), rng.randint(0, len(group) - 1))
        group = {name: member for name, member in group.items() if name not in leaving}
        group |= _random_members(
            rng, existing, range(10, 10 + rng.randint(0, 4)), is_alike, frozenset(group)
        )
        if is_alike:
            wanted = _subscription(rng, existing, is_alike=rng.random() < 0.7)
            group = {
                name: msgspec.structs.replace(member, subscribed_topic_ids=wanted)
                for name, member in group.items()
            }
        for topic_id, its in list(existing.items()):
            more = its.partition_count + rng.choice((0, 0, 0, 1, 4))
            existing[topic_id] = msgspec.structs.replace(its, partition_count=more)
        if rng.random() < 0.2:
            del existing[rng.choice(sorted(existing))]
            created = _random_topic(rng, 9)
            existing[created.topic_id] = created
            group = {
                name: msgspec.structs.replace(
                    member,
                    subscribed_topic_ids=member.subscribed_topic_ids.intersection(existing),
                )
                for name, member in group.items()
            }
    return group, existing


def _random_topic(rng: Random, number: int) -> TopicImage:
    return topic(f"t{number}", rng.randint(1, 12))


def _random_members(
    rng: Random,
    existing: Topics,
    numbers: range,
    is_alike: bool,
    present: frozenset[str] = frozenset(),
) -> Members:
    found = {}
    for number in numbers:
        name = f"m{number}"
        if name not in present:
            found[name] = AssignableMember(
                member_id=name,
                instance_id=f"i{rng.randrange(100)}-{number}" if rng.random() < 0.2 else None,
                subscribed_topic_ids=_subscription(rng, existing, is_alike=is_alike),
            )
    return found


def _subscription(rng: Random, existing: Topics, *, is_alike: bool) -> frozenset[bytes]:
    wanted = sorted(existing)
    return frozenset(wanted if is_alike else rng.sample(wanted, rng.randint(0, len(wanted))))


def loads(target: TargetAssignment) -> list[int]:
    return [sum(map(len, share.values())) for share in target.values()]


def unevenness(target: TargetAssignment) -> int:
    """Return the sum of the squared loads. No assignment has less than the most balanced one."""
    return sum(load * load for load in loads(target))


def kept(group: Members, target: TargetAssignment) -> int:
    """Return the number of partitions that stay with their previous members."""
    return sum(
        len({*partitions} & {*target[name].get(topic_id, ())})
        for name, member in group.items()
        for topic_id, partitions in member.target.items()
    )
