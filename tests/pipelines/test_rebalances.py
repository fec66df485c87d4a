"""``partage pipeline rebalances`` on scripted events, in this process and on Spark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyarrow import csv, parquet

from console.cli import PartageCli
from partage.pipelines.rebalances.job import RebalancesOptions, rebalances
from partage.pipelines.rebalances.output_directory import (
    OutputExistsError,
    TableFormat,
    check_output,
)
from partage.pipelines.rebalances.pictures import draw, file_name
from partage.pipelines.rebalances.results import LocalResults
from partage.pipelines.rebalances.spark_analysis import analyse_on_spark
from partage.pipelines.rebalances.tables import (
    SCHEMAS,
    TABLES,
    TopicAnalysis,
    analyse_groups,
    make_table,
)
from partage.store.group_events import dropped_record, encode_event
from partage.testing import ThreadedBroker

from .event_script import CONSUMERS, COOPERATIVE, EAGER, FIRST, MOVED, events

DEADLINE_S = 120
PNG = b"\x89PNG\r\n"


def records() -> list[tuple[str, bytes]]:
    """Return events of two interleaved groups, lag, a loss, and records that are not events."""
    eager = [("eager", encode_event(each)) for each in events(EAGER, "eager")]
    cooperative = [("coop", encode_event(each)) for each in events(COOPERATIVE, "coop")]
    mixed = [each for pair in zip(eager, cooperative, strict=False) for each in pair]
    mixed += cooperative[len(eager) :]
    lag = [("coop", encode_event(each)) for each in events("14.0 lag 0:5 1:2", "coop")]
    no_events = [("eager", b"{}"), ("stray", b"?"), ("astray", b""), ("", b"{}"), ("", b"[]")]
    return [*mixed, *lag, ("", encode_event(dropped_record(1, 3))), *no_events]


@pytest.fixture
def local_results() -> LocalResults:
    analysis = TopicAnalysis()
    for group_id, value in records():
        analysis.add(group_id, value)
    return LocalResults(analysis.tables())


def rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=lambda row: json.dumps(row, default=str))


# Tables.


def test_unreadable_record_is_counted_under_its_key(local_results: LocalResults) -> None:
    groups = {row["group_id"]: row for row in local_results.table("groups").to_pylist()}
    assert {name: row["unreadable"] for name, row in groups.items()} == {
        "eager": 1,
        "coop": 0,
        "stray": 1,
        "astray": 1,
        "": 2,
    }
    keys = ["stray", "astray", ""]
    assert [groups[key]["events"] for key in keys] == [0, 0, 0]
    records = [[{"offset": 0, "value": b"?"}], [{"offset": 1, "value": b""}]]
    kind = pa.list_(pa.struct([("offset", pa.int64()), ("value", pa.binary())]))
    (stray, astray) = analyse_groups(
        pa.array([b"stray", b"astray"]), pa.array(records, kind)
    ).to_pylist()
    assert [row["group_id"] for row in stray["groups"] + astray["groups"]] == ["stray", "astray"]


def test_tables_have_timestamps_and_durations(local_results: LocalResults) -> None:
    (still, *_) = local_results.table("stalls", ["eager"]).to_pylist()
    assert still["from_at"] == datetime(1970, 1, 1, 0, 0, 12, tzinfo=UTC)
    assert (still["stalled_ms"], still["partition"]) == (500, 0)
    for name, schema in SCHEMAS.items():
        assert local_results.table(name).schema == schema
        assert schema.names[0] == "group_id"


def test_empty_table_has_its_columns() -> None:
    for name in TABLES:
        assert make_table(name, []).schema == SCHEMAS[name]


def test_records_without_group_are_separate(local_results: LocalResults) -> None:
    groups = {row["group_id"]: row for row in local_results.table("groups").to_pylist()}
    assert set(groups) == {"eager", "coop", "stray", "astray", ""}
    assert groups[""]["lost_events"] == 3
    assert groups["eager"]["unreadable"] == 1
    assert groups["eager"]["stalled_ms"] == 2_000
    assert groups["coop"]["stalled_ms"] == 1_200


@pytest.mark.parametrize("kind", list(TableFormat))
def test_tables_are_written_in_each_format(
    local_results: LocalResults, kind: TableFormat, tmp_path: Path
) -> None:
    counts = local_results.write(tmp_path, kind)
    for name in TABLES:
        (file,) = (tmp_path / name).iterdir()
        read = parquet.read_table(file) if kind is TableFormat.PARQUET else csv.read_csv(file)
        assert read.num_rows == counts[name] == local_results.table(name).num_rows
        assert read.column_names == SCHEMAS[name].names
    assert counts["stalls"] == 6


def test_output_is_overwritten_only_on_request(tmp_path: Path) -> None:
    check_output(tmp_path / "new", may_overwrite=False)
    (tmp_path / "new" / "tables").mkdir()
    with pytest.raises(OutputExistsError, match="--overwrite"):
        check_output(tmp_path / "new", may_overwrite=False)
    check_output(tmp_path / "new", may_overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError, match="is a file"):
        check_output(tmp_path / "file", may_overwrite=True)


# Pictures.


def test_pictures_show_longest_stalls_first(local_results: LocalResults, tmp_path: Path) -> None:
    paths = draw(local_results, tmp_path, 1)
    assert [path.name for path in paths] == ["all-groups.png", "group-eager.png"]
    for path in paths:
        assert path.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    "script",
    [
        "0.0 lag 0:1",
        "0.0 joined a\n0.0 rebalance 'member joined' a",
        FIRST.replace("[0-3]", "").replace("[]", ""),  # a group without partitions
        FIRST.replace("[0-3]", "[0-99]"),
        EAGER + "20.0 left b\n20.0 left a\n20.0 emptied",
        EAGER.replace(" a", " _a"),
    ],
)
def test_every_history_can_be_drawn(script: str, tmp_path: Path) -> None:
    analysis = TopicAnalysis()
    for event in events(script, "_a/group with 'odd' name $\\frac$"):
        analysis.add(event.group_id, encode_event(event))
    paths = draw(LocalResults(analysis.tables()), tmp_path, 4)
    assert all(path.read_bytes().startswith(PNG) for path in paths)


def test_groups_have_distinct_file_names() -> None:
    names = ["tower", "a/b", "a:b", "a b", "x" * 300, "x" * 299]
    assert file_name("tower") == "tower"
    assert len({file_name(name) for name in names}) == len(names)
    assert all(re.fullmatch(r"[\w.-]{1,100}", file_name(name)) for name in names)


def test_records_of_several_brokers_are_ordered() -> None:
    """Records arrive by partition; those of the second coordinator come first."""
    parts: dict[int, list[bytes]] = {2: [], 1: []}
    for event in events(MOVED, "moved"):
        parts[event.broker_id or 0].append(encode_event(event))
    records = [{"value": value} for values in parts.values() for value in values]
    kind = pa.list_(pa.struct([("value", pa.binary())]))
    (tables,) = analyse_groups(pa.array([b"moved"]), pa.array([records], kind)).to_pylist()
    assert [row["broker_id"] for row in tables["coordinators"]] == [1, 2, 1]
    assert tables["groups"][0]["is_complete"]


def test_group_with_coordinator_change_is_drawn(tmp_path: Path) -> None:
    analysis = TopicAnalysis()
    for event in events(MOVED, "moved"):
        analysis.add(event.group_id, encode_event(event))
    paths = draw(LocalResults(analysis.tables()), tmp_path, 4)
    assert all(path.read_bytes().startswith(PNG) for path in paths)


# On Spark.


def fill_in_parts(servers: str, topic: str) -> None:
    """Produce the events of each broker to a separate partition, the second coordinator's first.

    The other group has the consumer protocol.
    """
    producer = Producer({"bootstrap.servers": servers})
    for event in events(MOVED, "moved"):
        partition = 2 - (event.broker_id or 0)
        producer.produce(topic, key=b"moved", value=encode_event(event), partition=partition)
    for event in events(CONSUMERS, "consumers"):
        producer.produce(topic, key=b"consumers", value=encode_event(event), partition=1)
    assert producer.flush(60) == 0


def fill(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for group_id, value in records():
        producer.produce(topic, key=group_id.encode() or None, value=value, partition=0)
    assert producer.flush(60) == 0


def here_table(output: Path, name: str) -> list[dict[str, Any]]:
    table = parquet.read_table(output / "tables" / name)
    return sorted(table.to_pylist(), key=lambda row: (row["group_id"], row["epoch"] or 0))


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_result_equals_local_result(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    fill(kafka.servers, topic)
    fill_in_parts(kafka.servers, topic)

    def options(name: str) -> RebalancesOptions:
        return RebalancesOptions(
            servers=kafka.servers, topic=topic, output=tmp_path / name, pictures_max=0
        )

    here = rebalances(options("here"))
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "8")  # Spark's default is 200
    try:
        there = rebalances(options("there"), spark)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert (there.tables, there.causes) == (here.tables, here.causes)
    assert there.most_stalled_groups == here.most_stalled_groups
    assert (there.events, there.groups, there.incomplete_groups) == (42, 4, 0)
    assert (there.lost_events, there.unreadable_records) == (3, 5)
    had = here_table(tmp_path / "there", "coordinators")
    assert [row["broker_id"] for row in had if row["group_id"] == "moved"] == [1, 2, 1]
    for name in TABLES:
        files = list((tmp_path / "there" / "tables" / name).glob("part-*"))
        assert len(files) <= spark.sparkContext.defaultParallelism
        read = parquet.read_table(tmp_path / "there" / "tables" / name)
        assert rows(read.cast(SCHEMAS[name])) == rows(
            parquet.read_table(tmp_path / "here" / "tables" / name)
        )
    alone = analyse_on_spark(spark, options("alone").source_options(), ["coop"])
    assert {row["group_id"] for row in alone.table("groups").to_pylist()} == {"coop", ""}
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true", "the setting was restored"


# The command.


@pytest.fixture
def partage(partage_broker: ThreadedBroker) -> PartageCli:
    return PartageCli(partage_broker.bootstrap_servers)


def run(partage: PartageCli, *args: object, code: int = 0) -> Any:
    return partage("pipeline", "rebalances", "--local", *args, code=code)


def test_command_prints_report_and_writes_tables(
    partage: PartageCli, partage_broker: ThreadedBroker, tmp_path: Path
) -> None:
    partage_broker.create_topic("events")
    fill(partage_broker.bootstrap_servers, "events")
    ran = run(partage, "--topic", "events", "-o", tmp_path / "out")
    assert "20 events of 2 groups, 1970-01-01T00:00:00.000+00:00" in ran.out
    assert re.search(r"^member joined +4 +5 +11\.7 +4 +3\.2$", ran.out, re.MULTILINE)
    assert re.search(r"^eager +2 +2 +2 +2\.0 +0 +-$", ran.out, re.MULTILINE)
    assert re.search(r"^coop +3 +2 +2 +1\.2 +0 +7$", ran.out, re.MULTILINE)
    assert "the broker dropped 3 events" in ran.err
    assert "skipped 5 records" in ran.err
    assert (tmp_path / "out" / "pictures" / "all-groups.png").exists()
    again = run(partage, "--topic", "events", "-o", tmp_path / "out", code=1)
    assert "use another --output, or --overwrite" in again.err
    over = run(
        partage, "--topic", "events", "-o", tmp_path / "out", "--overwrite", "--json",
        "--group", "coop", "--pictures", 0, "--format", "csv",
    ).json  # fmt: skip
    assert [group["group"] for group in over["most_stalled_groups"]] == ["coop"]
    assert over["pictures"] == []
    assert not list((tmp_path / "out" / "pictures").iterdir())
    assert (tmp_path / "out" / "tables" / "rebalances" / "part-0.csv").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--topic", "elsewhere"], "elsewhere"),
        (["--topic", "__group_events"], "partage.group.events.enable"),
        (["--topic", "empty"], "there are no events in empty"),
        (["--topic", "empty", "--group", "g"], "there are no events of g in empty"),
        (["--topic", "letters"], "check that it is the right topic"),
        (["--topic", "events", "--since", "2100-01-01T00:00:00"], "there are no events"),
    ],
)
def test_bad_input_fails_with_reason(
    partage: PartageCli,
    partage_broker: ThreadedBroker,
    tmp_path: Path,
    args: list[str],
    message: str,
) -> None:
    for topic in ("events", "empty", "letters"):
        partage_broker.create_topic(topic)
    fill(partage_broker.bootstrap_servers, "events")
    producer = Producer({"bootstrap.servers": partage_broker.bootstrap_servers})
    producer.produce("letters", b"dear group")
    assert producer.flush(60) == 0
    ran = run(partage, "-o", tmp_path / "out", *args, code=1)
    assert message in ran.err
    assert not (tmp_path / "out" / "tables").exists()


def test_invalid_since_is_rejected(partage: PartageCli, tmp_path: Path) -> None:
    ran = run(partage, "-o", tmp_path, "--since", "yesterday", code=2)
    assert "invalid --since 'yesterday'; use YYYY-MM-DD" in ran.err
