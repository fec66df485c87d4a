"""The stored responses of Apache Kafka match the requests, and our differences match them."""

from __future__ import annotations

from interop.oracle import table
from interop.oracle.differences import DIFFERENCES, KAFKA_SAYS, kafka_says, we_say


def test_stored_responses_match_the_cells() -> None:
    assert list(kafka_says()) == table.cells()


def test_stored_text_round_trips() -> None:
    assert table.as_text(kafka_says()) == KAFKA_SAYS.read_text()


def test_each_difference_changes_a_cell_and_has_a_reason() -> None:
    kafka, ours = kafka_says(), we_say()
    differing = {cell for cell in kafka if kafka[cell] != ours[cell]}
    assert differing == {(each.name, scene) for each in DIFFERENCES for scene in each.scenes}
    assert all(each.reason.endswith(".") for each in DIFFERENCES)
