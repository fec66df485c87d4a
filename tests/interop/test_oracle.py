"""What is written down of Apache Kafka's answers fits the questions, and our differences fit it."""

from __future__ import annotations

from interop.oracle import table
from interop.oracle.differences import DIFFERENCES, KAFKA_SAYS, kafka_says, we_say


def test_every_question_has_an_answer_and_no_answer_is_left_over() -> None:
    assert list(kafka_says()) == table.cells()


def test_the_text_is_what_the_answers_are_written_as() -> None:
    assert table.as_text(kafka_says()) == KAFKA_SAYS.read_text()


def test_every_difference_is_one_and_has_a_reason() -> None:
    kafka, ours = kafka_says(), we_say()
    differing = {cell for cell in kafka if kafka[cell] != ours[cell]}
    assert differing == {(each.name, scene) for each in DIFFERENCES for scene in each.scenes}
    assert all(each.reason.endswith(".") for each in DIFFERENCES)
