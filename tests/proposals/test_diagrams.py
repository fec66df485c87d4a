"""The message diagrams of the designs."""

from __future__ import annotations

import re

import pytest

from partage.proposals.designs.catalog import DESIGNS, VARIANTS
from partage.proposals.diagrams.recorder import (
    DiagramRecorder,
    DiagramScenario,
    MessageDiagram,
    StepKind,
    record_diagram,
)
from partage.proposals.diagrams.text_diagram import draw_text
from partage.proposals.simulation.observer import COORDINATOR
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


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
    [("two-phase-eager", True), ("two-phase-cooperative", False), ("consumer-protocol", False)],
)
def test_member_stops_reading_during_a_join_only_if_it_is_eager(design: str, stops: bool) -> None:
    diagram = record_diagram(design, DiagramScenario.JOIN)
    notes = [each.label for each in diagram.steps if each.sender == "A"]
    assert ("stops reading" in notes) == stops


@pytest.mark.parametrize("scenario", list(DiagramScenario))
@pytest.mark.parametrize("design", list(DESIGNS))
def test_steps_are_in_the_order_of_time(design: str, scenario: DiagramScenario) -> None:
    times = [each.at_ms for each in record_diagram(design, scenario).steps]
    assert times == sorted(times)


def test_heartbeats_show_assignments_and_confirmations() -> None:
    diagram = record_diagram("consumer-protocol", DiagramScenario.JOIN)
    labels = {
        (each.sender, each.label.removeprefix("ConsumerGroupHeartbeat: "))
        for each in diagram.steps
        if each.kind is not StepKind.NOTE
    }
    assert labels >= {("B", "joins"), ("coordinator", "gets nothing"), ("A", "owns t-0 t-1")}
    assert ("coordinator", "gets t-2 t-3") in labels


def test_diagram_has_the_first_heartbeat_only() -> None:
    diagram = record_diagram("multi-assignor", DiagramScenario.FORM)
    heartbeats = [each for each in diagram.steps if each.label == "Heartbeat"]
    assert [each.kind for each in heartbeats] == [StepKind.REQUEST, StepKind.RESPONSE]


def test_response_after_a_lost_response_has_its_request() -> None:
    recorder = DiagramRecorder()
    recorder.is_recording = True
    joins = ConsumerGroupHeartbeatRequest(group_id="g", member_id="A", member_epoch=0)
    stays = ConsumerGroupHeartbeatRequest(group_id="g", member_id="A", member_epoch=1)
    recorder.on_message("A", COORDINATOR, joins)  # its response is lost
    recorder.on_message("A", COORDINATOR, stays)
    recorder.on_message(COORDINATOR, "A", ConsumerGroupHeartbeatResponse(error_code=0))
    kinds = [each.kind for each in recorder.steps]
    assert kinds == [StepKind.REQUEST, StepKind.REQUEST, StepKind.RESPONSE]


def test_seed_decides_the_diagram() -> None:
    first, again, other = (
        draw_text(record_diagram("broker-side", DiagramScenario.FORM, seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
