"""Where we answer otherwise than Apache Kafka, and why.

``python -m interop.oracle.differences`` prints the list as a table for the documentation.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from interop.oracle import table

#: What Apache Kafka answered; the tests ask it again. ``python -m interop.oracle`` writes it.
KAFKA_SAYS = Path(__file__).with_name("kafka-4.4.0.txt")


class Difference(NamedTuple):
    """A cell or story, a part of what Kafka says there, and what we say in its place."""

    name: str
    scenes: tuple[str, ...]
    kafka: str
    ours: str
    reason: str


#: The place of a story's difference.
A_STORY = ("",)

DIFFERENCES = (
    Difference(
        "LeaveGroup, id just given out",
        ("CompletingRebalance", "Stable"),
        "-> PreparingRebalance/2",
        "-> {scene}/2",
        "An id that was given out and not used yet is no member: when it is given back, nothing "
        "about the generation changes, and nobody has to join again.",
    ),
    Difference(
        "DescribeGroups v5",
        ("CompletingRebalance",),
        "A client A no metadata assignment b'for A'",
        "A client A no metadata assignment b''",
        "With the new generation the assignments of the one before are void; Kafka goes on "
        "showing them until the leader's new ones come.",
    ),
    Difference(
        "DescribeGroups v6",
        ("CompletingRebalance",),
        "A client A no metadata assignment b'for A'",
        "A client A no metadata assignment b''",
        "As in v5.",
    ),
    Difference(
        "a member asks twice to join",
        A_STORY,
        "the first request: B is parked",
        "the first request: B: REBALANCE_IN_PROGRESS, B",
        "Every request is answered. Kafka never answers the first one when a second one of the "
        "same member takes its place.",
    ),
    Difference(
        "a member asks twice for its assignment",
        A_STORY,
        "the first request: B is parked",
        "the first request: B: REBALANCE_IN_PROGRESS",
        "As for JoinGroup.",
    ),
    Difference(
        "a tied vote",
        A_STORY,
        "consumer/x",
        "consumer/y",
        "A tie goes to the leader's order of preference; in Kafka it goes by the order of a hash "
        "table.",
    ),
    Difference(
        "a static member comes back to a stable group",
        A_STORY,
        "B2 client B instance i-b",
        "B2 client B2 instance i-b",
        "The group shows the client id of the process that is there now; Kafka keeps that of the "
        "one it replaced until the next rebalance.",
    ),
)


def kafka_says() -> dict[table.Cell, str]:
    """What Apache Kafka answered."""
    return table.from_text(KAFKA_SAYS.read_text())


def we_say() -> dict[table.Cell, str]:
    """What we answer: as Kafka, but for the differences; raises KeyError for one without a cell."""
    said = kafka_says()
    for difference in DIFFERENCES:
        for scene in difference.scenes:
            before = said[difference.name, scene]
            ours = difference.ours.format(scene=scene)
            if difference.kafka not in before:
                raise KeyError(f"Kafka does not say {difference.kafka!r} in {before!r}")
            said[difference.name, scene] = before.replace(difference.kafka, ours)
    return said


def as_markdown() -> str:
    """The differences as a table."""
    lines = ["| what | where | Apache Kafka | Partage | why |", "|---|---|---|---|---|"]
    for each in DIFFERENCES:
        where = ", ".join(scene or "a sequence" for scene in each.scenes)
        ours = each.ours.format(scene="the same state")
        lines.append(f"| {each.name} | {where} | {each.kafka} | {ours} | {each.reason} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
