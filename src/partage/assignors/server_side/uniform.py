"""The ``uniform`` assignor: balanced, with as few moves as possible.

Kafka's has the same name and the same priorities. If all members subscribe to the same topics,
quotas decide the number of partitions of each member, and the others stay where they are. Members
with different subscriptions are balanced by `sticky_balancer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partage.assignors.server_side.base import (
    ServerSideAssignor,
    SubscribedMember,
    SubscribedTopic,
    TargetAssignment,
    in_order,
    sort_key,
)
from partage.assignors.sticky_balancer import balance

#: The partitions of one member.
_Share = Mapping[bytes, tuple[int, ...]]


class Uniform(ServerSideAssignor):
    """Gives all members equally many partitions, and moves as few partitions as possible."""

    name = "uniform"

    def assign(
        self,
        members: Mapping[str, SubscribedMember],
        topics: Mapping[bytes, SubscribedTopic],
        *,
        is_homogeneous: bool,
    ) -> TargetAssignment:
        if not members:
            return {}
        if is_homogeneous:
            return _QuotaBalancer(members, topics).assign()
        return _balance_subscriptions(members, topics)


class _QuotaBalancer:
    """The assignment of members with the same subscription.

    It takes linear time. Members whose partitions do not change keep their mapping.
    """

    def __init__(
        self,
        members: Mapping[str, SubscribedMember],
        topics: Mapping[bytes, SubscribedTopic],
    ) -> None:
        self._members = members
        self._topics = topics
        total = sum(topic.partition_count for topic in topics.values())
        self._quota, self._extras = divmod(total, len(members))
        self._shares: dict[str, _Share] = {}
        self._sizes: dict[str, int] = {}

    def assign(self) -> TargetAssignment:
        self._keep_previous()
        free = self._free_partitions()
        if free is None:
            self._drop_invalid()
            free = self._free_partitions()
            assert free is not None
        self._release_surplus(free)
        self._fill(free)
        return self._shares

    def _keep_previous(self) -> None:
        """Leave each member the partitions of the topics that exist.

        The later steps follow the order of the shares. It must not be that of ``members``, which
        changes when a coordinator loads the group.
        """
        topic_ids = self._topics.keys()
        for member in in_order(self._members):
            member_id, share = member.member_id, member.target
            if not share.keys() <= topic_ids:
                share = {t: its for t, its in share.items() if t in topic_ids}
            self._shares[member_id] = share
            self._sizes[member_id] = sum(map(len, share.values()))

    def _free_partitions(self) -> dict[bytes, set[int]] | None:
        """Return the partitions without owner; None if one has two owners or does not exist."""
        taken: dict[bytes, list[int]] = {topic_id: [] for topic_id in self._topics}
        for share in self._shares.values():
            for topic_id, partitions in share.items():
                taken[topic_id] += partitions
        free = {}
        for topic_id, partitions_taken in taken.items():
            count = self._topics[topic_id].partition_count
            rest = set(range(count)).difference(partitions_taken)
            if len(rest) + len(partitions_taken) != count:
                return None
            free[topic_id] = rest
        return free

    def _drop_invalid(self) -> None:
        """Leave a partition with several owners to the first one.

        A group that was upgraded from the classic protocol can have such partitions, because an
        assignor of its members decided.
        """
        left = {t: set(range(topic.partition_count)) for t, topic in self._topics.items()}
        for member_id, share in self._shares.items():
            kept = {}
            for topic_id, partitions in share.items():
                if valid := left[topic_id].intersection(partitions):
                    left[topic_id] -= valid
                    kept[topic_id] = tuple(sorted(valid))
            self._shares[member_id] = kept
            self._sizes[member_id] = sum(map(len, kept.values()))

    def _release_surplus(self, free: dict[bytes, set[int]]) -> None:
        """Take from members the partitions above their quota; some of them may have an extra."""
        for member_id, size in self._sizes.items():
            if size <= self._quota:
                continue
            limit = self._quota
            if self._extras:
                self._extras -= 1
                limit += 1
            if size > limit:
                self._shares[member_id] = _reduce(self._shares[member_id], limit, free)
            self._sizes[member_id] = limit

    def _fill(self, free: dict[bytes, set[int]]) -> None:
        """Give the free partitions to the members below their quota, in contiguous stretches."""
        quota, extras = self._quota, self._extras
        unfilled = [
            member
            for member_id, member in self._members.items()
            if (size := self._sizes[member_id]) < quota or (extras and size == quota)
        ]
        unfilled.sort(key=sort_key)
        source = _FreePartitions(self._topics, free)
        for member in unfilled:
            member_id = member.member_id
            missing = quota - self._sizes[member_id]
            if extras:
                extras -= 1
                missing += 1
            if missing:
                share = dict(self._shares[member_id])
                for topic_id, partitions in source.take(missing):
                    before = share.get(topic_id)
                    share[topic_id] = (
                        partitions if before is None else tuple(sorted(before + partitions))
                    )
                self._shares[member_id] = share


class _FreePartitions:
    """The partitions without owner, in the order of topic names and numbers."""

    def __init__(
        self, topics: Mapping[bytes, SubscribedTopic], free: Mapping[bytes, set[int]]
    ) -> None:
        order = sorted((topics[topic_id].name, topic_id) for topic_id, its in free.items() if its)
        self._stretches = iter([(topic_id, tuple(sorted(free[topic_id]))) for _, topic_id in order])
        self._topic_id = b""
        self._partitions: tuple[int, ...] = ()
        self._position = 0

    def take(self, count: int) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Yield the next ``count`` partitions by topic."""
        while count:
            begin = self._position
            if begin == len(self._partitions):
                self._topic_id, self._partitions = next(self._stretches)
                begin = 0
            taken = self._partitions[begin : begin + count]
            self._position = begin + len(taken)
            count -= len(taken)
            yield self._topic_id, taken


def _reduce(share: _Share, limit: int, free: dict[bytes, set[int]]) -> _Share:
    """Return ``limit`` partitions of a share, equally many of each topic; free the others."""
    ranked = sorted(
        (rank, topic_id, partition)
        for topic_id, partitions in share.items()
        for rank, partition in enumerate(partitions)
    )
    kept: dict[bytes, list[int]] = {}
    for _, topic_id, partition in ranked[:limit]:
        kept.setdefault(topic_id, []).append(partition)
    for _, topic_id, partition in ranked[limit:]:
        free[topic_id].add(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in kept.items()}


def _balance_subscriptions(
    members: Mapping[str, SubscribedMember], topics: Mapping[bytes, SubscribedTopic]
) -> TargetAssignment:
    """Balance members with different subscriptions.

    The balancer knows topics by name. A topic that was created again has a new id, so that its
    previous partitions are not among ``topics``.
    """
    ordered = in_order(members)
    names = {topic_id: topic.name for topic_id, topic in topics.items()}
    ids = {name: topic_id for topic_id, name in names.items()}
    named: dict[frozenset[bytes], list[str]] = {}
    for member in ordered:
        topic_ids = member.subscribed_topic_ids
        if topic_ids not in named:
            named[topic_ids] = sorted(names[t] for t in topic_ids if t in names)
    holders: dict[str, dict[int, int]] = {}
    for position, member in enumerate(ordered):
        for topic_id, partitions in member.target.items():
            if topic_id in names:
                holders.setdefault(names[topic_id], {}).update(dict.fromkeys(partitions, position))
    shares = balance(
        [named[member.subscribed_topic_ids] for member in ordered],
        holders,
        {topic.name: topic.partition_count for topic in topics.values()},
    )
    return {
        member.member_id: {
            ids[name]: tuple(sorted(partitions)) for name, partitions in share.items()
        }
        for member, share in zip(ordered, shares, strict=True)
    }
