"""The stored responses of Apache Kafka match the requests, and our differences match them."""

from __future__ import annotations

from interop.consumer_groups import differences
from interop.oracle import table
from interop.oracle.differences import DIFFERENCES, KAFKA_SAYS, kafka_says, we_say
from partage.coordinator.consumer_group.response_table import CONSUMER_DIFFERENCES


def test_stored_responses_match_the_cells() -> None:
    assert list(kafka_says()) == table.cells()


def test_stored_text_round_trips() -> None:
    assert table.as_text(kafka_says()) == KAFKA_SAYS.read_text()


def test_each_difference_changes_a_cell_and_has_a_reason() -> None:
    kafka, ours = kafka_says(), we_say()
    differing = {cell for cell in kafka if kafka[cell] != ours[cell]}
    assert differing == {(each.name, scene) for each in DIFFERENCES for scene in each.scenes}
    assert all(each.reason.endswith(".") for each in DIFFERENCES)


def test_each_difference_of_consumer_groups_has_a_script_or_a_reason() -> None:
    texts = [path.read_text() for path in differences.SCRIPTS]
    shown = [differences.title(text) for text in texts]
    rows = [row for row, _ in CONSUMER_DIFFERENCES]
    assert sorted([*shown, *differences.WITHOUT_SCRIPT]) == sorted(rows)
    assert differences.OVERRIDES.keys() <= {path.stem for path in differences.SCRIPTS}
    for text in texts:
        assert differences.responses(text, "apache") != differences.responses(text, "partage")
