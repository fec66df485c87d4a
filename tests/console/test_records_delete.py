"""``partage records delete``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .cli import PartageCli, records


@pytest.fixture
def filled(partage: PartageCli, topic: str) -> str:
    """A topic with three records in each of the partitions 0 and 1."""
    for partition in (0, 1):
        partage("produce", "-t", topic, "-p", partition, stdin=records(["a", "b", "c"]))
    return topic


def firsts(partage: PartageCli, topic: str) -> list[int]:
    (described,) = partage("topics", "describe", topic, "--json").json["topics"]
    return [each["earliest_offset"] for each in described["partitions"]]


def test_delete_before_offset(partage: PartageCli, filled: str) -> None:
    command = ["records", "delete", f"{filled}:0", "--before-offset", "2"]
    dry = partage(*command, "--dry-run")
    assert [row.split() for row in dry.lines[1:]] == [[filled, "0", "0", "2"]]
    assert dry.err == "dry run: would delete the records at 2 offsets\n"
    assert firsts(partage, filled) == [0, 0, 0, 0]
    assert partage(*command, "--json").json == {
        "executed": True,
        "partitions": [
            {
                "topic": filled,
                "partition": 0,
                "earliest_offset": 0,
                "new_earliest_offset": 2,
                "error": None,
            }
        ],
    }
    assert firsts(partage, filled) == [2, 0, 0, 0]
    assert partage.lines(filled) == ["a", "b", "c", "c"]
    # Deleting less than before changes nothing.
    again = partage("records", "delete", f"{filled}:0", "--before-offset", "1")
    assert again.err == "deleted the records at 0 offsets\n"
    assert firsts(partage, filled) == [2, 0, 0, 0]


def test_delete_to_end_empties_topic(partage: PartageCli, filled: str) -> None:
    partage("records", "delete", "--topic", filled, "--before-offset", "end")
    assert firsts(partage, filled) == [3, 3, 0, 0]
    assert partage.lines(filled) == []


def test_delete_by_file_of_kafka(partage: PartageCli, filled: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    starts = [(0, 1), (1, -1)]
    content = [{"topic": filled, "partition": number, "offset": at} for number, at in starts]
    file.write_text(json.dumps({"partitions": content, "version": 1}))
    partage("records", "delete", "--offset-json-file", file)
    assert firsts(partage, filled) == [1, 3, 0, 0]


def test_delete_on_terminal_asks_first(partage: PartageCli, filled: str) -> None:
    command = ["records", "delete", f"{filled}:0", "--before-offset", "end"]
    code, shown = partage.dialogue(command, "\n")
    assert f"  {filled}-0 before offset 3" in shown
    assert "Delete the records at 3 offsets? [y/N]:" in shown
    assert code == 1
    assert firsts(partage, filled) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        ([], "records delete requires either topics or --offset-json-file", 2),
        (["{topic}"], "topics require --before-offset; --before-offset end deletes all", 2),
        (
            ["--offset-json-file", "none.json", "--before-offset", "1"],
            "--before-offset requires topics; --offset-json-file has the offsets",
            2,
        ),
        (["{topic}", "--before-offset", "soon"], "invalid --before-offset 'soon'", 2),
        (["{topic}:9", "--before-offset", "1"], "topic {topic} has no partition 9", 1),
        (["none", "--before-offset", "1"], "no such topic: none", 1),
        (["--offset-json-file", "none.json"], "cannot read --offset-json-file none.json: ", 1),
        (
            ["{topic}:0", "--before-offset", "9"],
            "cannot delete before offset 9 of {topic}-0: it ends at 3",
            1,
        ),
    ],
)
def test_delete_mistakes_are_named(
    partage: PartageCli, filled: str, arguments: list[str], says: str, code: int
) -> None:
    given = [each.format(topic=filled) for each in arguments]
    error = partage.fails("records", "delete", *given, code=code)
    assert error.startswith(says.format(topic=filled))


@pytest.mark.parametrize("text", ["{", '{"partitions": [{"topic": 1}]}', "offset -2"])
def test_delete_invalid_file_is_rejected(
    partage: PartageCli, filled: str, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "offsets.json"
    place = {"topic": filled, "partition": 0, "offset": -2}
    file.write_text(json.dumps({"partitions": [place]}) if text == "offset -2" else text)
    assert str(file) in partage.fails("records", "delete", "--offset-json-file", file)


def test_delete_missing_partition_of_file_is_named(
    partage: PartageCli, filled: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.json"
    missing = {"topic": filled, "partition": 9, "offset": 0}
    file.write_text(json.dumps({"partitions": [missing]}))
    error = partage.fails("records", "delete", "--offset-json-file", file)
    assert error == f"topic {filled} has no partition 9"
