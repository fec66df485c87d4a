"""Generate the page ``docs/assignors.md``, with tables that the assignors compute.

``python -m partage.assignors.page`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from partage.assignors.base import Assignor
from partage.assignors.canary import Canary
from partage.assignors.consistent import ConsistentHashing
from partage.assignors.copartitioned import CoPartitioned
from partage.assignors.docs_text import CUSTOM_ASSIGNOR, HEAD, SERVER_SIDE
from partage.assignors.group_view import Member, Topic
from partage.assignors.lag import LagBased
from partage.assignors.rackaware import RackAware
from partage.assignors.ranges import Range
from partage.assignors.redundant import Redundant
from partage.assignors.roundrobin import RoundRobin
from partage.assignors.sticky import CooperativeSticky, Sticky
from partage.assignors.validation import check_assignment
from partage.assignors.weighted import Weighted
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.statemachine.pages import join_blocks, section


class AssignorExample(msgspec.Struct, frozen=True, kw_only=True):
    """An assignor, its description, and a group to demonstrate it: a and b; c joins; a leaves."""

    title: str
    text: str
    topics: tuple[Topic, ...]
    make_assignor: Callable[[str], Assignor]
    setting: str = ""
    racks: Mapping[str, str] = {}


_SEVEN = (Topic(name="t", partition_count=7),)
_TWO = (Topic(name="t", partition_count=4), Topic(name="u", partition_count=4))
_TEN = (Topic(name="t", partition_count=10),)

EXAMPLES = (
    AssignorExample(
        title="Range",
        text="""\
`Range()`: for each topic, each member gets a range of adjacent partitions. The remainder goes to
the first members, for each topic separately. Topics with equal partition counts are divided alike.
If members have racks and not every rack has all replicas, each member gets partitions from its own
rack first (KIP-881). The results equal those of Kafka's RangeAssignor.""",
        topics=_TWO,
        make_assignor=lambda _: Range(),
    ),
    AssignorExample(
        title="Round-robin",
        text="""\
`RoundRobin()`: deals all partitions of all topics to the members in turn. The results equal those
of Kafka's RoundRobinAssignor.""",
        topics=_SEVEN,
        make_assignor=lambda _: RoundRobin(),
    ),
    AssignorExample(
        title="Sticky",
        text="""\
`Sticky()`: as balanced as possible, and among such assignments one with few moves. It is eager: all
members give up all partitions before they join, and send what they had in their user data (KIP-54).
The bytes are those of the Java client.""",
        topics=_SEVEN,
        make_assignor=lambda _: Sticky(),
    ),
    AssignorExample(
        title="Cooperative-sticky",
        text="""\
`CooperativeSticky()`: like `Sticky`, but members give up only partitions that move (KIP-429). Such
a partition is held back for a generation, until its owner has revoked it. Racks are matched as far
as even loads allow, before stickiness. If subscriptions differ, loads are balanced along every
chain of moves, so they are at least as even as those of the Java client, with fewer moves
([measured](benchmarks.md#assignors)). Names and user data are those of the Java client. A group may
mix members with librdkafka and Java, whichever member leads.""",
        topics=_SEVEN,
        make_assignor=lambda _: CooperativeSticky(),
    ),
    AssignorExample(
        title="Rack-aware",
        text="""\
`RackAware(rack_of_host)`: cooperative-sticky for clusters whose brokers have no rack setting: a
function derives the rack from the host name. All assignors with racks count every replica, the
leader and its followers alike. A match saves traffic between racks if the leader is in the member's
rack, as with one replica. A consumer with a `client_rack` reads from a follower there only if the
brokers name one (KIP-392). For this they need a `broker.rack` and a `replica.selector.class`.""",
        topics=(
            Topic(
                name="t",
                partition_count=6,
                racks=tuple(frozenset({rack}) for rack in ("x", "y", "x", "y", "x", "y")),
            ),
        ),
        make_assignor=lambda _: RackAware(),
        setting="Even partitions are in rack x, odd ones in y; a and c are in x, b is in y.",
        racks={"a": "x", "b": "y", "c": "x"},
    ),
    AssignorExample(
        title="Co-partitioned",
        text="""\
`CoPartitioned("clicks", "orders")`: partition n of all named topics goes to one member, as a join
of keyed topics needs it. Other topics are divided evenly. Without names, topics with equal
partition counts and equal subscribers are co-partitioned. Topics that cannot be co-partitioned
raise `CoPartitioningError`.""",
        topics=_TWO,
        make_assignor=lambda _: CoPartitioned("t", "u"),
    ),
    AssignorExample(
        title="Redundant",
        text="""\
`Redundant(replicas=2)`: each partition goes to several members, for copies that survive the loss of
a member. Only replicas of lost members move, and those of one member spread over all others.
Nothing is held back: a surplus copy for a moment does no harm. With the function `copies`, members
report which copies they have already, for example after a restart, and get those first.""",
        topics=_SEVEN,
        make_assignor=lambda _: Redundant(2),
    ),
    AssignorExample(
        title="Weighted",
        text="""\
`Weighted(weight)`: partitions in proportion to the capacity of the members:
`Weighted(os.cpu_count())`, or any number with the same meaning for all members. Sticky and
cooperative.""",
        topics=_TEN,
        make_assignor=lambda member_id: Weighted(2 if member_id == "c" else 1),
        setting="Member c has weight 2, the others 1.",
    ),
    AssignorExample(
        title="Consistent hashing",
        text="""\
`ConsistentHashing(points=100, headroom=0.25)`: the assignment does not depend on earlier
assignments, only on the members, the topics and their partition counts. A member gets at most the
headroom above the average. With `headroom=None` there is no such bound: the owner of a partition
then depends on the members alone, but the loads are less even. It suits groups that may lose all
members at once while each keeps a cache on disk. Give members an instance id, which is hashed.""",
        topics=_TEN,
        make_assignor=lambda _: ConsistentHashing(),
    ),
    AssignorExample(
        title="Lag-based",
        text="""\
`LagBased()`: the partitions with the largest lag go to different members. Each member gets the same
number of partitions; their lags decide which ones (`Topic.lags`, which the leader computes from
committed offsets). It is eager, because the assignment changes with the lags.""",
        topics=(Topic(name="t", partition_count=6, lags=(900, 800, 500, 30, 20, 10)),),
        make_assignor=lambda _: LagBased(),
        setting="Records to read, by partition: 900, 800, 500, 30, 20, 10.",
    ),
    AssignorExample(
        title="Canary",
        text="""\
`Canary("2.1", share=0.2)` on members that test a new version, `Canary("2.0")` on the others. The
canaries together get that share of each topic, whatever their number, and at least one partition.
They keep it while other members come and go. Once no member asks for a share, all are equal.""",
        topics=_TEN,
        make_assignor=lambda member_id: (
            Canary("new", share=0.2) if member_id == "c" else Canary("old")
        ),
        setting="Member c is the canary, with a share of 0.2.",
    ),
)


def page() -> str:
    """Return the page in Markdown."""
    return join_blocks(HEAD, *map(_section, EXAMPLES), SERVER_SIDE, CUSTOM_ASSIGNOR)


def _section(scene: AssignorExample) -> str:
    protocols = " or ".join(
        its.name.lower() for its in scene.make_assignor("a").rebalance_protocols
    )
    name_line = f"Name: `{scene.make_assignor('a').name}`; {protocols}."
    return section(scene.title, scene.text, name_line, scene.setting, _picture(scene))


# The example tables: groups in which each member has its own assignor object, as in production


def _picture(scene: AssignorExample) -> str:
    members = ("a", "b", "c")
    columns = list(_generations(scene))
    lines = ["".join(["      ", *(f"{_head(column):<{_width(column)}}" for column in columns)])]
    for member_id in members:
        cells = [f"{column[1].get(member_id, ''):<{_width(column)}}" for column in columns]
        lines.append(f"  {member_id}   {''.join(cells)}")
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```"])


def _head(column: tuple[str, Mapping[str, str]]) -> str:
    return column[0]


def _width(column: tuple[str, Mapping[str, str]]) -> int:
    return max(map(len, (column[0], *column[1].values()))) + 3


def _generations(scene: AssignorExample) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the event and the cell of each member, generation by generation."""
    topics = {topic.name: topic for topic in scene.topics}
    assignors: dict[str, Assignor] = {}
    owned: dict[str, dict[str, list[int]]] = {}
    generation = 0
    for event, present in (("at first", "ab"), ("c joins", "abc"), ("a leaves", "bc")):
        for member_id in present:
            assignors.setdefault(member_id, scene.make_assignor(member_id))
        owned = {member_id: owned.get(member_id, {}) for member_id in present}
        while True:
            before = owned
            members = [_member(m, scene, assignors[m], owned[m], generation) for m in present]
            leader = assignors[present[0]]
            given = leader.assign(members, topics)
            cooperative = RebalanceProtocol.COOPERATIVE in leader.rebalance_protocols
            known = leader.with_user_data(members)
            check_assignment(
                known, topics, given, replicas=leader.replicas, cooperative=cooperative
            )
            generation += 1
            owned = {m: {t: sorted(ps) for t, ps in given[m].items()} for m in present}
            for member_id in present:
                assignors[member_id].on_assignment(owned[member_id], generation)
            yield event, {m: _cell(owned[m], before[m], scene.topics) for m in present}
            event = "then"
            # A member that lost partitions rejoins once it has revoked them.
            if not cooperative or not any(_lost(before[m], owned[m]) for m in present):
                break


def _member(
    member_id: str,
    scene: AssignorExample,
    assignor: Assignor,
    owned: Mapping[str, Sequence[int]],
    generation: int,
) -> Member:
    topics = tuple(topic.name for topic in scene.topics)
    is_cooperative = RebalanceProtocol.COOPERATIVE in assignor.rebalance_protocols
    return Member(
        member_id=member_id,
        topics=topics,
        owned=owned if is_cooperative else {},
        generation=generation if is_cooperative and owned else -1,
        rack=scene.racks.get(member_id),
        user_data=assignor.user_data(topics, owned, generation) or b"",
    )


def _lost(before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]]) -> bool:
    return any(set(its) - set(now.get(topic, ())) for topic, its in before.items())


def _cell(
    now: Mapping[str, Sequence[int]],
    before: Mapping[str, Sequence[int]],
    topics: Sequence[Topic],
) -> str:
    """Return the partitions of a member, with a plus before new ones."""
    words = []
    for topic in topics:
        prefix = topic.name if len(topics) > 1 else ""
        for partition in now.get(topic.name, ()):
            is_new = partition not in before.get(topic.name, ())
            words.append(f"{'+' if is_new else ''}{prefix}{partition}")
    return " ".join(words) or "-"


if __name__ == "__main__":
    print(page(), end="")
