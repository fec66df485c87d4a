"""A compact script language for the events of a group.

A line has a time in seconds, an event and its arguments. Partitions belong to topic ``t``. A
generation lists its members as ``NAME@JOINED[OWNED]``, an assignment as ``NAME[ASSIGNED]``::

    0.0  joined a
    0.0  rebalance "member joined" a
    3.0  generation 1 a@0.0[]
    3.1  assigned 1 a[0-3]

``a@-`` is a member that did not join. ``a?[0]`` is a member that has not fetched its assignment.
Lines after ``broker 2 epoch 5`` are events of that broker in a cluster.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from partage.pipelines.rebalances.group_analysis import GroupAnalysis
from partage.store.group_events import VERSION, EventMember, GroupEventRecord

FIRST = """
    0.0   joined a
    0.0   rebalance "member joined" a
    3.0   generation 1 a@0.0[]
    3.1   assigned 1 a[0-3]
"""

#: b joins; a, an eager consumer, revokes all partitions and gets half of them back.
EAGER = (
    FIRST
    + """
    10.0  joined b
    10.0  rebalance "member joined" b
    12.0  generation 2 a@12.0[] b@10.0[]
    12.5  assigned 2 a[0,1] b[2,3]
"""
)

#: The same with cooperative consumers: a keeps all partitions until the assignment revokes some.
COOPERATIVE = (
    FIRST
    + """
    10.0  joined b
    10.0  rebalance "member joined" b
    12.0  generation 2 a@12.0[0-3] b@10.0[]
    12.5  assigned 2 a[0,1] b[]
    12.6  rebalance "member joined again" a
    13.0  generation 3 a@12.6[0,1] b@13.0[]
    13.1  assigned 3 a[0,1] b[2,3]
"""
)

#: Broker 1 forms the group, broker 2 takes it over, and broker 1 has it again when b joins.
MOVED = (
    "broker 1 epoch 4"
    + FIRST
    + """
    broker 2 epoch 5
    6.0   loaded 1 a[0-3]
    8.0   lag 0:5
    broker 1 epoch 7
    9.0   loaded 1 a[0-3]
"""
    + EAGER.removeprefix(FIRST)
)


_MEMBER = re.compile(r"(?P<name>\w+)(?P<late>\?)?(?:@(?P<at>[\d.]+|-))?(?:\[(?P<of>[\d,-]*)\])?")


def partitions(text: str) -> dict[str, list[int]]:
    numbers: list[int] = []
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return {"t": numbers} if numbers else {}


def ms(text: str) -> int:
    return round(float(text) * 1000)


def member(text: str, at: int, *, starts: bool) -> EventMember:
    found = _MEMBER.fullmatch(text)
    assert found is not None, text
    joined = found["at"]
    instance = found["name"] if found["name"].startswith("static") else None
    return EventMember(
        member_id=found["name"],
        instance_id=instance,
        client_id="client",
        joined_ms=ms(joined) if starts and joined not in (None, "-") else None,
        owned=partitions(found["of"]) if starts and found["of"] is not None else None,
        assigned_ms=None if starts or found["late"] else at,
        assigned=None if starts or found["of"] is None else partitions(found["of"]),
    )


def event(line: str, generation: int = 0, group_id: str = "g") -> GroupEventRecord:
    time, kind, *words = shlex.split(line)
    at = ms(time)
    common = {"version": VERSION, "at_ms": at, "group_id": group_id}
    match kind:
        case "joined" | "left" | "synced":
            return GroupEventRecord(event=kind, generation=generation, member_id=words[0], **common)
        case "expired":
            cause = words[1]
            return GroupEventRecord(
                event=kind,
                generation=generation,
                member_id=words[0],
                cause=cause,
                session_timeout_ms=10_000,
                **common,
            )
        case "rebalance":
            who = words[1] if len(words) > 1 else None
            return GroupEventRecord(
                event="rebalance started",
                generation=generation,
                cause=words[0],
                member_id=who,
                **common,
            )
        case "generation" | "assigned" | "loaded":
            number = int(words.pop(0))
            name = "generation started" if kind == "generation" else kind
            starts = kind == "generation"
            members = [member(word, at, starts=starts) for word in words]
            return GroupEventRecord(
                event=name,
                generation=number,
                reason="Stable" if kind == "loaded" else "",
                protocol_type="consumer",
                protocol="range",
                leader=members[0].member_id,
                members=members,
                **common,
            )
        case "refused":
            return GroupEventRecord(
                event="commit refused",
                generation=generation,
                member_id=words[0],
                reason="ILLEGAL_GENERATION",
                topics=["t"],
                count=int(words[1]),
                **common,
            )
        case "lag":
            lags = dict(word.split(":") for word in words)
            lag = {"t": {int(number): int(lag) for number, lag in lags.items()}}
            return GroupEventRecord(event=kind, generation=generation, lag=lag, **common)
    return GroupEventRecord(event=kind, generation=generation, **common)


def events(script: str, group_id: str = "g") -> Iterator[GroupEventRecord]:
    generation = 0
    origin: dict[str, int] = {}
    for line in map(str.strip, script.strip().splitlines()):
        if line.startswith("broker"):
            _, broker, _, epoch = line.split()
            origin = {"broker_id": int(broker), "epoch": int(epoch)}
        elif line:
            one = msgspec.structs.replace(event(line, generation, group_id), **origin)
            generation = one.generation
            yield one


def analyse_script(script: str) -> GroupAnalysis:
    analysis = GroupAnalysis("g")
    for one in events(script):
        analysis.apply(one)
    return analysis
