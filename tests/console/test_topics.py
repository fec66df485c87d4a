"""``partage topics``."""

from __future__ import annotations

import subprocess

import pytest
from confluent_kafka import Uuid

from partage.console.topics.describe import topic_id_text
from partage.testing import ThreadedBroker

from .cli import PartageCli


def test_create_list_and_delete_topic(partage: PartageCli, name: str) -> None:
    made = partage("topics", "create", "--topic", name, "--partitions", 3)
    assert made.out == f"created topic {name}\n"
    listed = partage("topics", "list", "--topic", name)
    assert [line.split() for line in listed.lines] == [
        ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"],
        [name, "3", "1"],
    ]
    assert partage("topics", "delete", name).out == f"deleted topic {name}\n"
    assert name not in partage("topics", "list").out


def test_create_reports_existing_topics(partage: PartageCli, topic: str, name: str) -> None:
    assert "already exists" in partage.fails("topics", "create", "--topic", topic)
    accepted = partage("topics", "create", "-t", topic, "-t", f"{name}.b", "--if-not-exists", "-J")
    assert accepted.json == {"created": [f"{name}.b"], "existing": [topic]}


def test_create_uses_default_partitions(partage: PartageCli, name: str) -> None:
    partage("topics", "create", "--topic", name)
    assert partage("topics", "list", "-t", name, "-J").json["topics"][0]["partitions"] == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--partitions", "0"], "invalid --partitions 0"),
        (["--replication-factor", "-2"], "invalid --replication-factor -2"),
        (["--config", "retention.ms"], "--config requires NAME=VALUE"),
    ],
)
def test_create_invalid_options_are_rejected(
    partage: PartageCli, name: str, options: list[str], says: str
) -> None:
    assert says in partage.fails("topics", "create", "--topic", name, *options, code=2)


@pytest.mark.parametrize(
    "options",
    [["--config", "no.such.setting=1"], ["--config", "retention.ms=soon"]],
)
def test_create_with_invalid_config_fails(
    partage: PartageCli, name: str, options: list[str]
) -> None:
    assert f"topic {name} was not created: " in partage.fails(
        "topics", "create", "--topic", name, *options
    )
    assert partage("topics", "list", "--topic", name, "--json").json == {"topics": []}


def test_create_with_invalid_name_fails(partage: PartageCli) -> None:
    assert "topic a/b was not created: " in partage.fails("topics", "create", "--topic", "a/b")


def test_topic_id_has_the_characters_of_kafka() -> None:
    """``kafka-topics --describe`` prints ``-`` and ``_``, where librdkafka has ``+`` and ``/``."""
    assert topic_id_text(Uuid(-1, -1)) == "_____________________w"
    assert topic_id_text(Uuid(-0x410410410410411, 0)).startswith("----------")


def test_describe_prints_partitions_and_changed_configs(partage: PartageCli, name: str) -> None:
    partage("topics", "create", "-t", name, "-p", 2, "--config", "retention.ms=3600000")
    partage("produce", "-t", name, "-p", 1, stdin="a\nb\n")
    described = partage("topics", "describe", "--topic", name, "--json").json
    (only,) = described["topics"]
    node = only["partitions"][0]["leader"]
    assert only.pop("topic_id")
    assert only.pop("configs")["retention.ms"] == "3600000"
    assert only == {
        "topic": name,
        "internal": False,
        "replication_factor": 1,
        "partitions": [
            {
                "partition": number,
                "leader": node,
                "replicas": [node],
                "isr": [node],
                "earliest_offset": 0,
                "latest_offset": latest,
            }
            for number, latest in ((0, 0), (1, 2))
        ],
    }
    first, header, *rows = partage("topics", "describe", "--topic", name).lines
    assert "2 partitions" in first
    assert "retention.ms=3600000" in first
    assert header.split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "EARLIEST", "LATEST"]
    assert [row.split() for row in rows] == [
        ["0", *[str(node)] * 3, "0", "0"],
        ["1", *[str(node)] * 3, "0", "2"],
    ]


def test_exact_name_precedes_pattern(partage: PartageCli, name: str) -> None:
    for each in ("a.b", "axb", "abb"):
        partage("topics", "create", "--topic", f"{name}-{each}")

    def chosen(pattern: str) -> list[str]:
        listed = partage("topics", "list", "--topic", pattern, "--json").json["topics"]
        return [each["topic"].removeprefix(f"{name}-") for each in listed]

    assert chosen(f"{name}-a.b") == ["a.b"]
    assert chosen(f"{name}-ax.") == ["axb"]
    assert chosen(f"{name}-.*") == ["a.b", "abb", "axb"]
    assert chosen(f"{name}-nothing") == []


def test_list_of_unknown_topics_is_empty_with_a_note(partage: PartageCli, name: str) -> None:
    """The exit code is 0, as that of ``kafka-topics --list``; ``--describe`` fails in both."""
    ran = partage("topics", "list", f"{name}-a", f"{name}-b.*")
    assert len(ran.lines) == 1
    assert ran.err.strip() == f"no topic matches {name}-a or {name}-b.*"
    assert "no such topic" in partage.fails("topics", "describe", f"{name}-a")


def test_delete_without_regex_never_matches_pattern(partage: PartageCli, name: str) -> None:
    kept = f"{name}Xv1"
    partage("topics", "create", kept)
    for pattern in (f"{name}.v1", f"{name}.*"):
        error = partage.fails("topics", "delete", "--topic", pattern)
        assert error.startswith(f"no such topic: {pattern}")
        ran = partage("topics", "delete", pattern, "--if-exists")
        assert ran.out == ""
        assert ("for a pattern, add --regex" in ran.err) == pattern.endswith("*")
    assert "for a pattern, add --regex" in partage.fails("topics", "delete", f"{name}.*")
    assert kept in partage("topics", "list").out


def test_delete_with_regex_and_yes_deletes_matches(partage: PartageCli, name: str) -> None:
    names = [f"{name}-{each}" for each in ("a.b", "axb", "other")]
    partage("topics", "create", *names)
    pattern = f"{name}-a.b"
    dry = partage("topics", "delete", "--regex", pattern, "--dry-run")
    assert dry.lines == [f"would delete topic {each}" for each in names[:2]]
    needs = partage.fails("topics", "delete", "--regex", pattern, code=2)
    assert needs == (
        "without a terminal, add --yes to delete 2 topics with all records, or --dry-run"
    )
    deleted = partage("topics", "delete", "--regex", pattern, "--yes", "--json").json
    assert deleted == {"deleted": names[:2], "failed": [], "executed": True}
    left = partage("topics", "list", f"{name}-.*", "--json").json["topics"]
    assert [each["topic"] for each in left] == names[2:]


def test_delete_dry_run_deletes_nothing(partage: PartageCli, topic: str) -> None:
    dry = partage("topics", "delete", topic, "--dry-run", "--json").json
    assert dry == {"deleted": [topic], "failed": [], "executed": False}
    assert topic in partage("topics", "list").out


def test_delete_with_invisible_question_is_refused(partage: PartageCli, topic: str) -> None:
    code, shown = partage.dialogue(["topics", "delete", topic], "", stderr=subprocess.DEVNULL)
    assert (code, shown) == (2, "")
    assert topic in partage("topics", "list").out


@pytest.mark.parametrize(("answer", "is_deleted"), [("n", False), ("", False), ("y", True)])
def test_delete_on_terminal_asks_first(
    partage: PartageCli, topic: str, answer: str, is_deleted: bool
) -> None:
    code, shown = partage.dialogue(["topics", "delete", topic], f"{answer}\n")
    assert f"  {topic}" in shown
    assert "Delete 1 topic with all records? [y/N]:" in shown
    assert (code == 0, "error: nothing was changed" in shown) == (is_deleted, not is_deleted)
    assert (topic not in partage("topics", "list").out) == is_deleted


def test_delete_of_internal_topic_names_the_reason() -> None:
    """Apache Kafka deletes the topic, so this test starts a broker of ours."""
    with ThreadedBroker() as own:
        partage = PartageCli(own.bootstrap_servers)
        error = partage.fails("topics", "delete", "__consumer_offsets", "--yes")
    assert error == (
        "topic __consumer_offsets was not deleted: clients cannot delete an internal topic"
    )


def test_pattern_never_deletes_internal_topics(partage: PartageCli, topic: str) -> None:
    partage("produce", "-t", topic, stdin="a\n")
    partage("consume", "-t", topic, "-g", topic, "--from-beginning", "-e")
    assert "__consumer_offsets" in partage("topics", "list").out
    assert "__consumer_offsets" not in partage("topics", "list", "--exclude-internal").out
    says = partage.fails("topics", "delete", "--regex", "__.*", "--yes")
    assert says == "no topic matches '__.*'; --if-exists accepts this"


@pytest.fixture(scope="module")
def arrivals(broker: str) -> str:
    """Create a topic whose name resembles no other one."""
    PartageCli(broker)("topics", "create", "ari-quizzical-vermouth")
    return "ari-quizzical-vermouth"


def test_missing_topics_are_named(partage: PartageCli, name: str) -> None:
    for command in ("describe", "delete"):
        error = partage.fails("topics", command, "--topic", name)
        assert error.partition(";")[0] == f"no such topic: {name}"
    assert partage("topics", "delete", "--topic", name, "--if-exists").out == ""
    regex = ["topics", "delete", "--regex", "--yes"]
    assert "regular expression" in partage.fails(*regex, "(", code=2)
    ran = partage(*regex, name, "--if-exists")
    assert (ran.out, ran.err) == ("", f"no topic matches '{name}'\n")


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "describe"),
        ("topics", "delete"),
        ("topics", "alter", "--partitions", "9"),
        ("consume", "--exit"),
        ("records", "delete", "--before-offset", "end"),
        ("transactions", "describe-producers"),
        ("groups", "reset-offsets", "--group", "readers", "--to-earliest", "--topic"),
        ("configs", "describe", "--topic"),
        ("configs", "alter", "--add-config", "retention.ms=1000", "--topic"),
        ("produce", "--timeout-ms", "300", "--topic"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_similar_topic_is_suggested(
    partage: PartageCli, arrivals: str, command: tuple[str, ...]
) -> None:
    misspelled = arrivals.replace("ari", "air")
    error = partage.fails(*command, misspelled)
    assert f"no such topic: {misspelled}; did you mean {arrivals}?" in error
    assert "regular expression" in partage.fails("topics", "list", "--topic", "(", code=2)
