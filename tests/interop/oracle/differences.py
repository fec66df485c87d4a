"""Intended differences between our responses and Apache Kafka's, with reasons.

``python -m interop.oracle.differences`` prints the list as a table for the documentation.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from interop.oracle import table

#: Responses of Apache Kafka, which the tests verify. ``python -m interop.oracle`` writes the file.
KAFKA_SAYS = Path(__file__).with_name("kafka-4.4.0.txt")


class Difference(NamedTuple):
    """A cell or story, a part of Kafka's response there, and our replacement for it."""

    name: str
    scenes: tuple[str, ...]
    kafka: str
    ours: str
    reason: str


#: Scene of a difference in a story.
A_STORY = ("",)

DIFFERENCES = (
    Difference(
        "LeaveGroup, id just given out",
        ("CompletingRebalance", "Stable"),
        "-> PreparingRebalance/2",
        "-> {scene}/2",
        "A member id that was assigned but not used yet is not a member: when it leaves, the "
        "generation does not change, and no member must rejoin.",
    ),
    Difference(
        "DescribeGroups v5",
        ("CompletingRebalance",),
        "A client A no metadata assignment b'for A'",
        "A client A no metadata assignment b''",
        "A new generation invalidates the assignments of the previous one; Kafka shows them "
        "until the leader sends new ones.",
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
        "Every request gets a response. Kafka never answers the first request if the same member "
        "sends a second one.",
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
        "The leader's order of preference decides a tie; in Kafka the order of a hash table "
        "decides.",
    ),
    Difference(
        "a static member comes back to a stable group",
        A_STORY,
        "B2 client B instance i-b",
        "B2 client B2 instance i-b",
        "The group shows the client id of the current process; Kafka shows that of the replaced "
        "process until the next rebalance.",
    ),
)


def kafka_says() -> dict[table.Cell, str]:
    """Return the stored responses of Apache Kafka."""
    return table.from_text(KAFKA_SAYS.read_text())


def we_say() -> dict[table.Cell, str]:
    """Return our expected responses: Kafka's with the differences. Raise KeyError for an unused
    one.
    """
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
    """Return the differences as a table."""
    lines = ["| what | where | Apache Kafka | Partage | why |", "|---|---|---|---|---|"]
    for each in DIFFERENCES:
        where = ", ".join(scene or "a sequence" for scene in each.scenes)
        ours = each.ours.format(scene="the same state")
        lines.append(f"| {each.name} | {where} | {each.kafka} | {ours} | {each.reason} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
