"""Any assignor of group members, run in the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Final

from partage.assignors.base import Assignor
from partage.assignors.group_view import NO_GENERATION, Assignment, Member, Topic
from partage.assignors.server_side.base import (
    ServerSideAssignor,
    SubscribedMember,
    SubscribedTopic,
    TargetAssignment,
)
from partage.assignors.validation import InvalidAssignmentError, check_assignment
from partage.model.rebalance_protocol import RebalanceProtocol

#: The generation of the previous target, as the members would state it.
_GENERATION: Final = 0
#: The number of rebalances that a cooperative assignor may need. Those of Kafka need two.
_ROUNDS_MAX: Final = 4


class AssignorAdapter(ServerSideAssignor):
    """Runs an `Assignor` that was written for members of classic groups.

    The assignor gets the members as the leader of a classic group would: each member owns its part
    of the previous target, and its user data is what the assignor makes of that. The reconciliation
    of the group revokes partitions before it assigns them to others. So a cooperative assignor is
    asked again until it no longer holds partitions back.

    Args:
        assignor: The assignor.
        name: The name by which members select it.

    Raises:
        ValueError: The assignor needs lags or assigns a partition to several members.
    """

    def __init__(self, assignor: Assignor, name: str | None = None) -> None:
        self.name = name or assignor.name
        if assignor.needs_lags:
            raise ValueError(
                f"assignor {self.name!r} needs lags, which the broker does not look up; use another"
            )
        if assignor.replicas != 1:
            raise ValueError(
                f"assignor {self.name!r} assigns each partition to {assignor.replicas} members; "
                "a consumer group allows one"
            )
        self._assignor = assignor

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._assignor!r}, {self.name!r})"

    def assign(
        self,
        members: Mapping[str, SubscribedMember],
        topics: Mapping[bytes, SubscribedTopic],
        *,
        is_homogeneous: bool,
    ) -> TargetAssignment:
        by_name = {
            topic.name: Topic(
                name=topic.name, partition_count=topic.partition_count, racks=topic.racks
            )
            for topic in topics.values()
        }
        names = {topic_id: topic.name for topic_id, topic in topics.items()}
        owned: dict[str, dict[str, Sequence[int]]] = {
            member_id: {names[t]: its for t, its in member.target.items() if t in names}
            for member_id, member in members.items()
        }
        assignment = self._run(members, names, owned, by_name)
        ids = {name: topic_id for topic_id, name in names.items()}
        return {
            member_id: {
                ids[name]: tuple(sorted(map(index, partitions)))
                for name, partitions in assignment.get(member_id, {}).items()
                if partitions
            }
            for member_id in members
        }

    def _run(
        self,
        members: Mapping[str, SubscribedMember],
        names: Mapping[bytes, str],
        owned: Mapping[str, Mapping[str, Sequence[int]]],
        topics: Mapping[str, Topic],
    ) -> Assignment:
        """Return the assignment once the assignor no longer holds partitions back."""
        is_cooperative = RebalanceProtocol.COOPERATIVE in self._assignor.rebalance_protocols
        for _ in range(_ROUNDS_MAX if is_cooperative else 1):
            views = [
                self._view(member, names, owned.get(member_id, {}))
                for member_id, member in members.items()
            ]
            assignment = self._assignor.assign(views, topics)
            try:
                check_assignment(views, topics, assignment)
            except InvalidAssignmentError:
                if not is_cooperative:
                    raise
                check_assignment(views, topics, assignment, cooperative=True)
            else:
                return assignment
            owned = assignment
        raise InvalidAssignmentError(f"it holds partitions back after {_ROUNDS_MAX} rounds")

    def _view(
        self,
        member: SubscribedMember,
        names: Mapping[bytes, str],
        owned: Mapping[str, Sequence[int]],
    ) -> Member:
        """Return a member as the leader of a classic group would see it."""
        topics = tuple(sorted(names[t] for t in member.subscribed_topic_ids if t in names))
        generation = _GENERATION if owned else NO_GENERATION
        its = self._assignor.at_version(self._assignor.version)
        if owned:
            its.on_assignment(owned, generation)
        return Member(
            member_id=member.member_id,
            topics=topics,
            instance_id=member.instance_id,
            owned=owned,
            generation=generation,
            rack=member.rack_id,
            user_data=its.user_data(topics, owned, generation) or b"",
            version=self._assignor.version,
        )
