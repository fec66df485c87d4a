"""Generate the page ``docs/assignors.md``, with tables that the assignors compute.

``python -m partage.assignors.page`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from partage.assignors.base import Assignor, Member, RebalanceProtocol, Topic
from partage.assignors.canary import Canary
from partage.assignors.consistent import ConsistentHashing
from partage.assignors.copartitioned import CoPartitioned
from partage.assignors.docs_text import CUSTOM_ASSIGNOR, HEAD
from partage.assignors.lag import LagBased
from partage.assignors.rackaware import RackAware
from partage.assignors.ranges import Range
from partage.assignors.redundant import Redundant
from partage.assignors.roundrobin import RoundRobin
from partage.assignors.sticky import CooperativeSticky, Sticky
from partage.assignors.validation import check_assignment
from partage.assignors.weighted import Weighted


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
`Range()`: topic by topic, each member a stretch of neighbouring partitions; what does not divide
evenly goes to the first members, of each topic anew. Topics with equally many partitions are
divided alike. Where members name racks and not all replicas are in all of them, each gets
partitions from its own rack first (KIP-881). Results are those of Kafka's RangeAssignor.""",
        topics=_TWO,
        make_assignor=lambda _: Range(),
    ),
    AssignorExample(
        title="Round-robin",
        text="""\
`RoundRobin()`: all partitions of all topics in a row, dealt to the members in turn. Results are
those of Kafka's RoundRobinAssignor.""",
        topics=_SEVEN,
        make_assignor=lambda _: RoundRobin(),
    ),
    AssignorExample(
        title="Sticky",
        text="""\
`Sticky()`: as even as can be, and of all such assignments one that moves little. It is eager: all
members give up everything before they join, and remember in their user data what they had
(KIP-54). The bytes are Java's.""",
        topics=_SEVEN,
        make_assignor=lambda _: Sticky(),
    ),
    AssignorExample(
        title="Cooperative-sticky",
        text="""\
`CooperativeSticky()`: the same without giving up anything but what moves (KIP-429). What moves
is held back for a generation until its owner has revoked it. Racks are matched as far as even loads
allow, before stickiness. Where subscriptions differ, loads are level along every chain of moves,
and so at least as even as Java's; names and user data are Java's, and a group may mix both with
librdkafka's, whoever leads.""",
        topics=_SEVEN,
        make_assignor=lambda _: CooperativeSticky(),
    ),
    AssignorExample(
        title="Rack-aware",
        text="""\
`RackAware(rack_of_host)`: cooperative-sticky for clusters whose brokers don't say where they are:
a function derives the rack from the host's name.""",
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
`CoPartitioned("clicks", "orders")`: partition n of all the named topics to one member, as a join
of keyed topics needs it; topics that are not named are spread evenly. Without names, topics with
equally many partitions and the same subscribers go together. Topics that cannot go together are
refused (`CoPartitioningError`).""",
        topics=_TWO,
        make_assignor=lambda _: CoPartitioned("t", "u"),
    ),
    AssignorExample(
        title="Redundant",
        text="""\
`Redundant(replicas=2)`: each partition to several members, for copies that survive the loss of
one. Only replicas of lost members are given anew, and of each member's to all others. Nothing is
held back: a copy too many for a moment is no harm. With `copies`, a function, members say what they
have copies of anyway, as after a restart, and get those first.""",
        topics=_SEVEN,
        make_assignor=lambda _: Redundant(2),
    ),
    AssignorExample(
        title="Weighted",
        text="""\
`Weighted(weight)`: partitions in proportion to what members can take: `Weighted(os.cpu_count())`,
or any number that all mean the same by. Sticky and cooperative.""",
        topics=_TEN,
        make_assignor=lambda member_id: Weighted(2 if member_id == "c" else 1),
        setting="Member c has weight 2, the others 1.",
    ),
    AssignorExample(
        title="Consistent hashing",
        text="""\
`ConsistentHashing(points=100, headroom=0.25)`: where a partition goes depends on names alone, not
on what was before; nobody gets more than the headroom above the average. Good where a group may
lose all its members at once and each still has a cache on its disk: give members an instance id,
which is what is hashed.""",
        topics=_TEN,
        make_assignor=lambda _: ConsistentHashing(),
    ),
    AssignorExample(
        title="Lag-based",
        text="""\
`LagBased()`: the partitions with most to read go to different members. Each member gets as many
partitions as the others; which ones, their lags decide (`Topic.lags`, from the leader's look at
committed offsets). Eager, for with the lags everything changes.""",
        topics=(Topic(name="t", partition_count=6, lags=(900, 800, 500, 30, 20, 10)),),
        make_assignor=lambda _: LagBased(),
        setting="Records to read, by partition: 900, 800, 500, 30, 20, 10.",
    ),
    AssignorExample(
        title="Canary",
        text="""\
`Canary("2.1", share=0.2)` on the members that try a new version, `Canary("2.0")` on the others: the
canaries get that share of each topic, however many they are, and at least one partition; they keep
it while others come and go. When nobody asks for a share any more, all are equal.""",
        topics=_TEN,
        make_assignor=lambda member_id: (
            Canary("new", share=0.2) if member_id == "c" else Canary("old")
        ),
        setting="Member c is the canary, with a share of 0.2.",
    ),
)


def page() -> str:
    """Return the page in Markdown."""
    return "\n".join([HEAD, *map(_section, EXAMPLES), CUSTOM_ASSIGNOR])


def _section(scene: AssignorExample) -> str:
    protocols = " or ".join(
        its.name.lower() for its in scene.make_assignor("a").rebalance_protocols
    )
    told = f"Name: `{scene.make_assignor('a').name}`; {protocols}."
    parts = [f"## {scene.title}", scene.text, told, scene.setting, _picture(scene)]
    return "\n\n".join(part for part in parts if part) + "\n"


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
    for event, present in (("at first", "ab"), ("c comes", "abc"), ("a goes", "bc")):
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
