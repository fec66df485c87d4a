"""The Markdown of the generated pages: sections, and the tables of a state machine."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from partage.statemachine.timers import TimerFacts

State = TypeVar("State", bound=StrEnum)
Key = TypeVar("Key")


def join_blocks(*blocks: str) -> str:
    """Return the blocks with one blank line between them; empty blocks are dropped."""
    return "\n".join(f"{text}\n" for block in blocks if (text := block.rstrip("\n")))


def section(title: str, *blocks: str) -> str:
    """Return a section of a page, with its heading."""
    return join_blocks(f"## {title}", *blocks)


def table(
    head: tuple[str, ...], rows: Iterable[tuple[str, ...]], numbers: Container[str] = ()
) -> str:
    """Return a table. The columns of ``numbers``, by their heads, are aligned to the right.

    Raises:
        ValueError: A row has more or fewer cells than the head.
    """
    lines = [head, tuple("---:" if each in numbers else "---" for each in head), *rows]
    for line in lines:
        if len(line) != len(head):
            raise ValueError(f"row {line} has {len(line)} cells; the head {head} has {len(head)}")
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def state_table(
    descriptions: Mapping[State, str], predecessors: Mapping[State, frozenset[State]]
) -> str:
    """Return the table of states, in the order of ``descriptions``."""
    return table(
        ("state", "description", "follows"),
        (
            (state, text, ", ".join(each for each in descriptions if each in predecessors[state]))
            for state, text in descriptions.items()
        ),
    )


def state_diagram(
    initial: Mapping[State, str],
    transitions: Mapping[tuple[State, State], str],
    final: Iterable[State] = (),
) -> str:
    """Return a Mermaid diagram of the states.

    Args:
        initial: The states in which the state machine starts, each with the cause or "".
        transitions: The causes of the transitions to draw.
        final: The states in which the state machine ends.
    """
    arrows = [
        *(f"    [*] --> {state}{': ' if why else ''}{why}" for state, why in initial.items()),
        *(f"    {before} --> {after}: {why}" for (before, after), why in transitions.items()),
        *(f"    {state} --> [*]" for state in final),
    ]
    return "\n".join(("```mermaid", "stateDiagram-v2", *arrows, "```", ""))


def timer_table(
    timers: Iterable[TimerFacts[Key]], name: Callable[[Key], str], settings: msgspec.Struct
) -> str:
    """Return the table of timers.

    Args:
        timers: The uses of the timers.
        name: Returns the name of a key.
        settings: The structure whose fields the delays name. The fields are in ms.
    """
    values = msgspec.structs.asdict(settings)
    delays = {field: f"{value:,} ms" for field, value in values.items() if isinstance(value, int)}
    return table(
        ("timer", "armed when", "delay", "when it fires"),
        (
            (name(facts.key), facts.armed, facts.delay.format(**delays), facts.fires)
            for facts in timers
        ),
    )


def differences_section(differences: Iterable[tuple[str, str]], introduction: str = "") -> str:
    """Return the section of the deliberate differences from Apache Kafka, with their reasons."""
    return section(
        "Where we differ from Apache Kafka",
        introduction,
        table(("Partage", "reason, or Kafka's behaviour"), differences),
    )
