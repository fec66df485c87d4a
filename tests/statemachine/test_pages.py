"""The Markdown of generated pages."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec
import pytest

from partage.assignors.page import page as assignors_page
from partage.coordinator.page import page as groups_page
from partage.member.page import page as members_page
from partage.statemachine.pages import (
    differences_section,
    join_blocks,
    section,
    state_diagram,
    state_table,
    table,
    timer_table,
)
from partage.statemachine.timers import TimerFacts


class Light(StrEnum):
    RED = "Red"
    GREEN = "Green"


class LightSettings(msgspec.Struct):
    green_ms: int = 30_000
    place: str = "a crossing"


def test_blocks_are_joined_by_one_blank_line() -> None:
    assert join_blocks("# Lights\n\n", "", "one\n", "two") == "# Lights\n\none\n\ntwo\n"


def test_section_begins_with_its_heading() -> None:
    assert section("States", "text") == "## States\n\ntext\n"


def test_table_has_head_rule_and_rows() -> None:
    assert table(("a", "b"), [("1", "")]) == "| a | b |\n| --- | --- |\n| 1 |  |\n"


def test_table_with_short_row_raises_value_error() -> None:
    with pytest.raises(ValueError, match="1 cells"):
        table(("a", "b"), [("1",)])


def test_state_table_lists_predecessors() -> None:
    text = state_table(
        {Light.RED: "Stop.", Light.GREEN: "Go."},
        {Light.RED: frozenset({Light.GREEN}), Light.GREEN: frozenset(Light)},
    )
    assert text.splitlines()[2:] == ["| Red | Stop. | Green |", "| Green | Go. | Red, Green |"]


def test_state_diagram_draws_initial_and_final_states() -> None:
    text = state_diagram(
        {Light.RED: "", Light.GREEN: "at night"},
        {(Light.RED, Light.GREEN): "the timer fires"},
        final=(Light.GREEN,),
    )
    assert text.splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> Red",
        "    [*] --> Green: at night",
        "    Red --> Green: the timer fires",
        "    Green --> [*]",
        "```",
    ]


def test_timer_table_shows_delay_of_settings() -> None:
    facts = TimerFacts(Light.GREEN, "the light turns green", "{green_ms}", "it turns red")
    last = timer_table([facts], str, LightSettings()).splitlines()[-1]
    assert last == "| Green | the light turns green | 30,000 ms | it turns red |"


def test_differences_without_introduction_are_heading_and_table() -> None:
    lines = differences_section([("this", "that")]).splitlines()
    assert lines[0] == "## Where we differ from Apache Kafka"
    assert lines[-1] == "| this | that |"
    assert len(lines) == 5


@pytest.mark.parametrize("page", [assignors_page, groups_page, members_page])
def test_page_table_rows_have_equal_cell_counts(page: Callable[[], str]) -> None:
    widths = set()
    for line in [*page().splitlines(), ""]:
        if line.startswith("|"):
            widths.add(line.count("|"))
        else:
            assert len(widths) <= 1
            widths.clear()
