"""A compact script language for the events of a group.

A line has a time in seconds, an event and its arguments. Partitions belong to topic ``t``. A
generation lists its members as ``NAME@JOINED[OWNED]``, an assignment as ``NAME[ASSIGNED]``::

    0.0  joined a
    0.0  rebalance "member joined" a
    3.0  generation 1 a@0.0[]
    3.1  assigned 1 a[0-3]

``a@-`` is a member that did not join. ``a?[0]`` is a member that has not fetched its assignment.
Lines after ``broker 2 epoch 5`` are events of that broker in a cluster.

Lines after ``protocol consumer`` are events of a group with the consumer protocol. There, members
are ``NAME=EPOCH[ASSIGNED]``, then ``-[REVOKING]`` if they must give up partitions, and ``~`` if
they wait for partitions of other members::

    0.0  joined a
    0.0  epoch 2 "member joined" a
    0.1  target 2
    0.1  reconciled a=2[0-3]
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


#: The same with the consumer protocol: a gives up two partitions, and b gets them then.
CONSUMERS = """
    protocol consumer
    0.0   joined a
    0.0   epoch 2 "member joined" a
    0.1   target 2
    0.1   reconciled a=2[0-3]
    10.0  joined b
    10.0  epoch 3 "member joined" b
    10.2  target 3
    10.2  reconciling b=3[]~
    12.0  reconciling a=2[0,1]-[2,3]
    13.0  reconciled a=3[0,1]
    13.5  reconciled b=3[2,3]
"""

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


_CONSUMER = re.compile(
    r"(?P<name>\w+)=(?P<epoch>-?\d+)\[(?P<of>[\d,-]*)\](-\[(?P<revoking>[\d,-]*)\])?(?P<waits>~)?"
)


def consumer(text: str) -> EventMember:
    found = _CONSUMER.fullmatch(text)
    assert found is not None, text
    state = "unrevoked partitions" if found["revoking"] else "stable"
    return EventMember(
        member_id=found["name"],
        instance_id=found["name"] if found["name"].startswith("static") else None,
        client_id="client",
        assigned=partitions(found["of"]),
        member_epoch=int(found["epoch"]),
        state="unreleased partitions" if found["waits"] else state,
        revoking=partitions(found["revoking"]) if found["revoking"] else None,
    )


def consumer_event(line: str, epoch: int, target_epoch: int, group_id: str) -> GroupEventRecord:
    """Return an event of a group with the consumer protocol."""
    time, kind, *words = shlex.split(line)
    base = GroupEventRecord(
        version=VERSION,
        event=kind,
        at_ms=ms(time),
        group_id=group_id,
        generation=epoch,
        group_type="consumer",
    )

    def identity(name: str) -> dict[str, str]:
        is_static = name.startswith("static")
        return {"member_id": name, **({"instance_id": name} if is_static else {})}

    match kind, words:
        case "epoch", [number, cause, *members]:
            changes = {"event": "epoch raised", "generation": int(number), "cause": cause}
            about = identity(members[0]) if members else {}
            return msgspec.structs.replace(base, **changes, **about)
        case "target", [number]:
            return msgspec.structs.replace(
                base, event="target assigned", target_epoch=int(number), protocol="uniform"
            )
        case (("reconciling" | "reconciled" | "upgraded"), _):
            members = [consumer(word) for word in words]
            return msgspec.structs.replace(base, target_epoch=target_epoch, members=members)
        case "loaded", [state, number, *words]:
            members = [consumer(word) for word in words]
            return msgspec.structs.replace(
                base,
                reason=state,
                generation=int(number),
                target_epoch=target_epoch,
                members=members,
            )
        case "away", [name]:
            return msgspec.structs.replace(base, event="left for a while", **identity(name))
        case "expired", [name, cause]:
            return msgspec.structs.replace(
                base, cause=cause, session_timeout_ms=10_000, **identity(name)
            )
        case _, [name]:
            return msgspec.structs.replace(base, **identity(name))
    return base


def events(script: str, group_id: str = "g") -> Iterator[GroupEventRecord]:
    generation = target_epoch = 0
    is_consumer = False
    origin: dict[str, int] = {}
    for line in map(str.strip, script.strip().splitlines()):
        if line.startswith("broker"):
            _, broker, _, epoch = line.split()
            origin = {"broker_id": int(broker), "epoch": int(epoch)}
        elif line.startswith("protocol"):
            is_consumer = line.split()[1] == "consumer"
            target_epoch = generation
        elif line:
            one = (
                consumer_event(line, max(generation, 1), target_epoch, group_id)
                if is_consumer
                else event(line, generation, group_id)
            )
            one = msgspec.structs.replace(one, **origin)
            generation = one.generation
            if one.event == "target assigned":
                target_epoch = one.target_epoch or 0
            yield one


def analyse_script(script: str) -> GroupAnalysis:
    analysis = GroupAnalysis("g")
    for one in events(script):
        analysis.apply(one)
    return analysis
