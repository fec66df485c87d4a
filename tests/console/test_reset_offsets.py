"""``partage groups reset-offsets``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.datetime_option import parse_datetime
from partage.console.common.errors import CommandError
from partage.console.common.partitions import parse_topics
from partage.console.groups import reset_offsets
from partage.console.groups.coordinator_requests import commit_offsets
from partage.console.groups.reset_arguments import parse_duration
from partage.console.groups.reset_scenarios import ResetContext, parse_scenario, plan_offsets
from partage.model.topic_partition import TopicPartition

from .cli import PartageCli, records

RESET = ("groups", "reset-offsets")


@pytest.fixture
def group(partage: PartageCli, topic: str) -> str:
    """A group that has committed the end of two partitions with five records each."""
    for partition in (0, 1):
        partage("produce", "-t", topic, "-p", partition, stdin=records(list("abcde")))
    partage("consume", "-t", topic, "--group", f"g-{topic}", "--from-beginning", "-e")
    return f"g-{topic}"


def committed(partage: PartageCli, group: str) -> dict[int, int]:
    (described,) = partage("groups", "describe", "-g", group, "--json").json["groups"]
    return {each["partition"]: each["current_offset"] for each in described["offsets"]}


def planned(partage: PartageCli, group: str, *options: object) -> dict[int, int]:
    """Return the new offsets of a dry run."""
    ran = partage(*RESET, "-g", group, *options, "--json").json
    assert not ran["executed"]
    (only,) = ran["groups"]
    assert only["group"] == group
    return {each["partition"]: each["new_offset"] for each in only["offsets"]}


def test_reset_without_execute_is_dry_run(partage: PartageCli, group: str, topic: str) -> None:
    before = committed(partage, group)
    assert before[0] == before[1] == 5
    ran = partage(*RESET, "-g", group, "-t", f"{topic}:0,1", "--to-earliest")
    header, *rows = [line.split() for line in ran.lines]
    assert header == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]
    assert rows == [[group, topic, "0", "5", "0"], [group, topic, "1", "5", "0"]]
    assert ran.err == "dry run: --execute would reset 2 offsets\n"
    assert committed(partage, group) == before
    ran = partage(*RESET, "-g", group, "-t", f"{topic}:0,1", "--to-earliest", "--execute")
    assert ran.err == "reset 2 offsets\n"
    assert committed(partage, group) == before | {0: 0, 1: 0}
    assert len(partage("consume", "-t", topic, "--group", group, "-e").lines) == 10


def test_scenarios_give_new_offsets(partage: PartageCli, group: str, topic: str) -> None:
    two = ("-t", f"{topic}:0,1")
    partage(*RESET, "-g", group, "-t", f"{topic}:1", "--to-offset", 2, "--execute")
    assert planned(partage, group, *two, "--to-earliest") == {0: 0, 1: 0}
    assert planned(partage, group, *two, "--to-latest") == {0: 5, 1: 5}
    assert planned(partage, group, *two, "--to-current") == {0: 5, 1: 2}
    assert planned(partage, group, *two, "--to-offset", 3) == {0: 3, 1: 3}
    assert planned(partage, group, *two, "--shift-by", "-2") == {0: 3, 1: 0}
    assert planned(partage, group, *two, "--shift-by", 1) == {0: 5, 1: 3}
    assert planned(partage, group, *two, "--by-duration", "P1D") == {0: 0, 1: 0}
    assert planned(partage, group, *two, "--by-duration", "PT0S") == {0: 5, 1: 5}
    assert planned(partage, group, *two, "--to-datetime", "2000-01-01T00:00:00.000") == {0: 0, 1: 0}
    assert planned(partage, group, *two, "--to-datetime", "2999-01-01T00:00:00Z") == {0: 5, 1: 5}


def test_offset_out_of_range_becomes_nearest(partage: PartageCli, group: str, topic: str) -> None:
    ran = partage(*RESET, "-g", group, "-t", f"{topic}:0", "--to-offset", 9, "--execute")
    assert ran.err.splitlines()[0] == f"{topic}-0 has no offset 9; using the nearest, 5"
    assert committed(partage, group)[0] == 5


def test_exported_file_is_imported_to_group(
    partage: PartageCli, group: str, topic: str, tmp_path: Path
) -> None:
    lines = partage(*RESET, "-g", group, "--all-topics", "--to-current", "--export").lines
    assert f"{topic},0,5" in lines
    file = tmp_path / "offsets.csv"
    file.write_text("\n".join(lines))
    other = f"{group}-copy"
    partage(*RESET, "-g", other, "--from-file", file, "--execute")
    assert committed(partage, other) == committed(partage, group)
    both = partage(*RESET, "-g", group, "-g", other, "--all-topics", "--to-earliest", "--export")
    assert {f"{group},{topic},0,0", f"{other},{topic},0,0"} <= set(both.lines)
    file.write_text(both.out)
    partage(*RESET, "-g", group, "-g", other, "--from-file", file, "--execute")
    assert committed(partage, group)[0] == committed(partage, other)[0] == 0


def test_reset_falls_back_to_librdkafka(partage: PartageCli, group: str, topic: str) -> None:
    command = [*RESET, "-g", group, "-t", f"{topic}:1", "--to-offset", 2, "--execute"]
    ran = partage(*command, "-X", "enable.ssl.certificate.verification=false")
    assert ran.err == "reset 1 offset\n"
    assert committed(partage, group)[1] == 2


def test_reset_reports_groups_that_were_not_reset(
    partage: PartageCli, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member joins the second group just before its commit."""
    joined = f"{group}-joined"
    partage(*RESET, "-g", joined, "-t", topic, "--to-earliest", "--execute")
    member = Consumer({"bootstrap.servers": partage.bootstrap_servers, "group.id": joined})

    def commit(cluster: ClusterClient, name: str, *rest: Any) -> dict[TopicPartition, int]:
        if name == joined:
            member.subscribe([topic])
            while not member.assignment():
                member.poll(0.05)
        return commit_offsets(cluster, name, *rest)

    monkeypatch.setattr(reset_offsets, "commit_offsets", commit)
    command = [*RESET, "-g", joined, "-g", group, "-t", f"{topic}:0", "--to-latest", "--execute"]
    ran = partage(*command, "--json", code=1)
    member.close()
    assert [each["group"] for each in ran.json["groups"]] == [group]
    assert ran.err == (
        f"error: 1 offset of group {joined} not reset: {topic}: "
        "a member joined in the meantime; stop it first\n"
    )


def test_reset_of_missing_group_suggests_similar_names(
    partage: PartageCli, group: str, topic: str
) -> None:
    """The reset creates the group, so a typing error would have no effect on the right one."""
    wrong = f"{group}x"
    ran = partage(*RESET, "-g", wrong, "-t", f"{topic}:0", "--to-earliest")
    assert ran.err.startswith(f"group {wrong} does not exist yet; did you mean ")
    error = partage.fails(*RESET, "-g", wrong, "--all-topics", "--to-earliest")
    said = f"group {wrong} has no committed offsets; name topics with --topic; did you mean "
    assert error.startswith(said)
    assert group in error.removeprefix(said)


def test_group_with_members_is_rejected(partage: PartageCli, group: str, topic: str) -> None:
    member = Consumer({"bootstrap.servers": partage.bootstrap_servers, "group.id": group})
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.05)
    for option in ("--dry-run", "--execute"):
        error = partage.fails(*RESET, "-g", group, "-t", topic, "--to-earliest", option)
        assert error == (
            f"cannot reset group {group}: it is Stable and has members, which keep their "
            "positions; stop them first"
        )
    member.close()
    partage(*RESET, "-g", group, "-t", topic, "--to-earliest", "--execute")
    assert committed(partage, group)[0] == 0


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (["--all-topics"], "requires exactly one of --to-earliest, --to-latest", 2),
        (["--all-topics", "--to-earliest", "--to-latest"], "requires exactly one of", 2),
        (["--to-earliest"], "requires --topic or --all-topics", 2),
        (["--all-topics", "-t", "t", "--to-earliest"], "cannot be combined", 2),
        (["-t", "t", "--to-earliest", "--execute", "--dry-run"], "cannot be combined", 2),
        (["-t", "t", "--to-earliest", "--json", "--export"], "cannot be combined", 2),
        (["-t", "t:x", "--to-earliest"], "use TOPIC or TOPIC:0,1,2", 2),
        (["-t", "t", "--to-datetime", "yesterday"], "use YYYY-MM-DDTHH:MM:SS.sss", 2),
        (["-t", "t", "--to-datetime", "2024-13-01T00:00:00"], "use YYYY-MM-DD", 2),
        (["-t", "t", "--by-duration", "2h"], "use PnDTnHnMnS", 2),
        (["-t", "not-there", "--to-earliest"], "no such topic: not-there", 1),
        (
            ["--all-topics", "--to-earliest"],
            "has no committed offsets; name topics with --topic",
            1,
        ),
        (["--from-file", "/not/there"], "cannot read --from-file /not/there", 1),
    ],
)
def test_invalid_options_are_rejected(
    partage: PartageCli, options: list[str], says: str, code: int
) -> None:
    assert says in partage.fails(*RESET, "-g", "missing", *options, code=code)


def test_missing_partitions_and_commits_are_named(
    partage: PartageCli, topic: str, tmp_path: Path
) -> None:
    reset = (*RESET, "-g", "missing")
    error = partage.fails(*reset, "-t", f"{topic}:3,4,5", "--to-latest")
    assert error == f"topic {topic} has no partition 4, 5"
    error = partage.fails(*reset, "-t", f"{topic}:1", "--shift-by", 1)
    assert error.startswith(f"group missing has no committed offset for {topic}-1")
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,0\n{topic},9,0\n")
    # The metadata shows it: the command does not wait for a leader of this partition.
    assert partage.fails(*reset, "--from-file", file) == f"topic {topic} has no partition 9"
    file.write_text(f"missing-{topic},0,0\n{topic},0,0\n")
    assert partage.fails(*reset, "--from-file", file) == f"no such topic: missing-{topic}"
    file.write_text(f"{topic},0,0\n{topic};1;0\n")
    assert partage.fails(*reset, "--from-file", file).startswith("line 2 of ")
    file.write_text("\n")
    assert partage.fails(*reset, "--from-file", file).endswith("has no offsets for missing")


def test_shift_by_names_partitions_in_order() -> None:
    ends = dict.fromkeys((TopicPartition("t", 10), TopicPartition("t", 2)), 0)
    at = ResetContext(cast(ClusterClient, None), "g", ends, ends, {})
    with pytest.raises(CommandError, match="no committed offset for t-2, t-10; "):
        plan_offsets(parse_scenario({"--shift-by": 1}, ["g"]), at)


def test_parse_datetime_and_duration() -> None:
    zoned = datetime(2024, 2, 29, 12, 30, 15, 250_000, timezone(timedelta(hours=2)))
    assert parse_datetime("2024-02-29T12:30:15.250+02:00", "--since") == zoned.timestamp() * 1000
    assert parse_datetime("1970-01-01T00:00:01", "--since") == 1000
    assert parse_datetime("1970-01-01T00:00:01Z", "--since") == parse_datetime(
        "1970-01-01T00:00:01.000", "--since"
    )
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert parse_datetime("2024-01-01T00:00:00", "--since") == at.timestamp() * 1000
    assert parse_duration("P1DT2H3M4.5S") == ((26 * 60 + 3) * 60 + 4) * 1000 + 500
    assert parse_duration("PT0S") == 0
    for wrong in ("", "P", "PT", "P1DT", "1D", "PT-1S"):
        with pytest.raises(CommandError):
            parse_duration(wrong)


def test_parse_topics() -> None:
    assert parse_topics(["a", "b:0,2", "b:1"]) == {"a": None, "b": {0, 1, 2}}
    assert parse_topics(["a:1", "a", "a:2"]) == {"a": None}
