"""The message diagrams of the designs."""

from __future__ import annotations

import re

import pytest

from partage.proposals.designs.catalog import DESIGNS, VARIANTS
from partage.proposals.diagrams.recorder import (
    DiagramScenario,
    MessageDiagram,
    StepKind,
    record_diagram,
)
from partage.proposals.diagrams.text_diagram import draw_text


@pytest.mark.parametrize("scenario", list(DiagramScenario))
@pytest.mark.parametrize("design", [*DESIGNS, *VARIANTS])
def test_every_design_has_a_diagram_of_each_scenario(
    design: str, scenario: DiagramScenario
) -> None:
    diagram = record_diagram(design, scenario)
    assert final_shares(diagram), diagram
    widths = {line.rindex("|") for line in draw_text(diagram).splitlines()[1:]}
    assert len(widths) <= 2  # a note at the last process may contain the character


def final_shares(diagram: MessageDiagram) -> list[str]:
    return [each.label for each in diagram.steps if each.label.startswith("reads t-")]


@pytest.mark.parametrize("design", list(DESIGNS))
def test_members_read_disjoint_shares_after_the_group_has_formed(design: str) -> None:
    diagram = record_diagram(design, DiagramScenario.FORM)
    last = {each.sender: each.label for each in diagram.steps if "read" in each.label}
    shares = [re.findall(r"t-\d", last[member]) for member in ("A", "B")]
    assert sorted((*shares[0], *shares[1])) == ["t-0", "t-1", "t-2", "t-3"]
    assert len(shares[0]) == len(shares[1])


@pytest.mark.parametrize(
    ("design", "stops"),
    [("two-phase-eager", True), ("two-phase-cooperative", False)],
)
def test_member_stops_reading_during_a_join_only_if_it_is_eager(design: str, stops: bool) -> None:
    diagram = record_diagram(design, DiagramScenario.JOIN)
    notes = [each.label for each in diagram.steps if each.sender == "A"]
    assert ("stops reading" in notes) == stops


def test_diagram_has_the_first_heartbeat_only() -> None:
    diagram = record_diagram("multi-assignor", DiagramScenario.FORM)
    heartbeats = [each for each in diagram.steps if each.label == "Heartbeat"]
    assert [each.kind for each in heartbeats] == [StepKind.REQUEST, StepKind.RESPONSE]


def test_seed_decides_the_diagram() -> None:
    first, again, other = (
        draw_text(record_diagram("broker-side", DiagramScenario.FORM, seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
