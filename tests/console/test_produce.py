"""``partage produce``."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import murmur2

from partage.testing import ThreadedBroker

from .cli import PartageCli, records


def consumed(partage: PartageCli, topic: str) -> list[dict[str, Any]]:
    """Return the records of a topic, sorted by value."""
    lines = partage("consume", "-t", topic, "-e", "--json").lines
    found = [json.loads(line) for line in lines]
    return sorted(found, key=lambda record: (record["value"] or "", record["key"] or ""))


def test_each_line_is_a_record(partage: PartageCli, topic: str) -> None:
    produced = partage("produce", "-t", topic, stdin="b\r\n\na\nlast")
    assert produced.out == ""
    assert produced.err.startswith(f"produced 4 records (6 bytes) to {topic} in ")
    assert partage.lines(topic) == ["", "a", "b", "last"]


def test_empty_input_produces_nothing(partage: PartageCli, topic: str) -> None:
    assert "produced 0 records" in partage("produce", "-t", topic).err


def test_files_and_stdin_are_read_in_order(partage: PartageCli, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2")
    (tmp_path / "b").write_text("3\n")
    files = [tmp_path / "a", "-", tmp_path / "b"]
    partage("produce", "-t", topic, "-p", 2, *files, stdin="from stdin\n")
    shown = partage("consume", "-t", topic, "-p", 2, "-e").lines
    assert shown == ["1", "2", "from stdin", "3"]


def test_pipe_is_accepted_as_file(partage: PartageCli, topic: str) -> None:
    ran = partage.shell(f"partage produce -t {topic} <(echo a)")
    assert ran.err.startswith("produced 1 record ")


def test_keys_choose_partitions_as_in_java(partage: PartageCli, topic: str) -> None:
    keys = [f"key-{number}" for number in range(20)]
    partage("produce", "-t", topic, "-K", ":", stdin=records([f"{key}:v" for key in keys]))
    places = {record["key"]: record["partition"] for record in consumed(partage, topic)}
    assert places == {key: murmur2(key.encode(), 4) for key in keys}


def test_partitioner_of_librdkafka_can_be_chosen(partage: PartageCli, topic: str) -> None:
    keys = [f"key-{number}" for number in range(20)]
    lines = records([f"{key}:v" for key in keys])
    partage("produce", "-t", topic, "-K:", "-X", "partitioner=consistent_random", stdin=lines)
    places = {record["key"]: record["partition"] for record in consumed(partage, topic)}
    assert places == {key: zlib.crc32(key.encode()) % 4 for key in keys}


def test_line_properties_are_those_of_kafka(partage: PartageCli, topic: str) -> None:
    partage(
        "produce",
        "-t",
        topic,
        "--property",
        "parse.key=true",
        "--property",
        "parse.headers=true",
        "--property",
        "null.marker=NIL",
        stdin="h1:a,h2:NIL\tkey\tvalue\nNIL\tNIL\tNIL\n",
    )
    nothing, record = consumed(partage, topic)
    assert (nothing["key"], nothing["value"], nothing["headers"]) == (None, None, [])
    assert (record["key"], record["value"]) == ("key", "value")
    assert record["headers"] == [{"key": "h1", "value": "a"}, {"key": "h2", "value": None}]


def test_header_partition_and_null_options(partage: PartageCli, topic: str) -> None:
    options = ["-H", "a=1", "-H", "b=x=y", "-p", 3, "-Z", "-K", "|"]
    partage("produce", "-t", topic, *options, stdin="|\nk|v\n")
    nothing, record = consumed(partage, topic)
    assert (nothing["key"], nothing["value"]) == (None, None)
    assert (record["key"], record["value"], record["partition"]) == ("k", "v", 3)
    assert record["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": "x=y"}]


def test_all_codecs_and_acks(partage: PartageCli, topic: str) -> None:
    sent = []
    for codec, acks in zip(
        ["none", "gzip", "snappy", "lz4", "zstd"], ["all", "1", "0", "-1", "all"], strict=True
    ):
        values = [f"{codec} {number:03}" for number in range(100)]
        options = ["--compression-codec", codec, "--acks", acks]
        partage("produce", "-t", topic, *options, stdin=records(values))
        sent += values
    assert partage.lines(topic) == sorted(sent)


def test_json_lines_are_records(partage: PartageCli, topic: str) -> None:
    lines = [
        {"value": "text", "key": "k", "headers": {"h": "1"}, "partition": 2, "timestamp": 17},
        {"value": {"delay": 4}, "key": 7},
        {"value": None, "key": "gone"},
        {"value": "/w==", "value_encoding": "base64"},
    ]
    given = "\n\n".join(json.dumps(line) for line in lines)
    produced = partage("produce", "-t", topic, "--format", "json", "--json", stdin=given).json
    assert produced.pop("seconds") >= 0
    assert produced == {
        "topic": topic,
        "records": 4,
        "bytes": 23,
        "failed_count": 0,
        "failed": [],
    }
    gone, raw, text, nested = consumed(partage, topic)
    assert (gone["key"], gone["value"]) == ("gone", None)
    assert (raw["value"], raw["value_encoding"]) == ("/w==", "base64")
    assert (nested["key"], json.loads(nested["value"])) == ("7", {"delay": 4})
    assert (text["partition"], text["timestamp"]) == (2, 17)
    assert text["headers"] == [{"key": "h", "value": "1"}]


def test_consume_json_is_valid_input(partage: PartageCli, topic: str, name: str) -> None:
    lines = [
        {"value": "/w==", "value_encoding": "base64", "key": "k", "timestamp": 5},
        {"value": "v", "headers": [{"key": "h", "value": "/w==", "encoding": "base64"}]},
    ]
    partage("produce", "-t", topic, "--format", "json", stdin=records(map(json.dumps, lines)))
    copy = f"{name}-copy"
    partage("topics", "create", "-t", copy, "-p", 4)
    printed = partage("consume", "-t", topic, "-e", "--json").out
    partage("produce", "-t", copy, "--format", "json", stdin=printed)
    partage("topics", "create", "-t", f"{name}-one", "-p", 1)
    partage("produce", "-t", f"{name}-one", "-p", -1, "--format", "json", stdin=printed)
    assert {record["partition"] for record in consumed(partage, f"{name}-one")} == {0}
    before, after = consumed(partage, topic), consumed(partage, copy)
    assert len(before) == 2
    assert [{**record, "topic": copy} for record in before] == after


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("no json", "JSON is malformed"),
        ('{"key":"k"}', "required field `value`"),
        ('{"value":"v","vlaue":1}', "unknown field `vlaue`"),
        ('{"value":"v","partition":-1}', "`$.partition`"),
        ('{"value":"v","timestamp":0}', "`$.timestamp`"),
        ('{"value":"v","headers":[["x"]]}', "`$.headers[0]`"),
        ('{"value":"?","value_encoding":"base64"}', "its value is not base64"),
        ('{"value":{},"value_encoding":"base64"}', "its value is not a string"),
    ],
)
def test_invalid_json_line_stops(partage: PartageCli, topic: str, line: str, says: str) -> None:
    ran = partage(
        "produce", "-t", topic, "--format", "json", stdin=f'{{"value":1}}\n{line}\n', code=1
    )
    summary, error = ran.err.splitlines()
    assert summary.startswith("produced 1 record ")
    assert error.startswith("error: line 2 of stdin: ")
    assert says in error
    assert error.endswith("; produced 1 record before it")
    assert partage.lines(topic) == ["1"]


def test_missing_separator_stops_unless_ignored(partage: PartageCli, topic: str) -> None:
    ran = partage("produce", "-t", topic, "-K", "::", stdin="k::v\nnone\n", code=1)
    assert "line 2 of stdin: missing separator '::' after its key" in ran.err
    lenient = ["-K", "::", "--property", "ignore.error=true"]
    partage("produce", "-t", topic, *lenient, stdin="none\n")
    assert partage.lines(topic) == ["none", "v"]


def test_long_wait_for_acknowledgements_is_reported() -> None:
    with ThreadedBroker() as broker:
        broker.create_topic("t")
        partage = PartageCli(broker.bootstrap_servers)
        with (
            broker.faults.hold("Produce") as held,
            partage.start("produce", "-t", "t", "--timeout-ms", "1000") as process,
        ):
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("late\n")
            process.stdin.close()
            held.wait()
            assert process.stderr.readline() == (
                "1 record not acknowledged yet; waiting until message.timeout.ms (Ctrl-C stops)\n"
            )
            held.release()
            assert process.stderr.readline().startswith("produced 1 record ")
            assert process.wait(60) == 0


def test_wait_after_ctrl_c_is_not_reported() -> None:
    with ThreadedBroker() as broker:
        broker.create_topic("t")
        partage = PartageCli(broker.bootstrap_servers)
        with (
            broker.faults.hold("Produce") as held,
            partage.start("produce", "-t", "t", "--timeout-ms", "300") as process,
        ):
            assert process.stdin is not None
            process.stdin.write("never\n")
            process.stdin.flush()
            held.wait()
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
            assert "not acknowledged yet" not in error
            assert "stopped: produced 0 records" in error
            assert process.returncode == 1


def test_undelivered_records_are_listed(partage: PartageCli, topic: str) -> None:
    limits = ["-X", "message.max.bytes=1000000", "--json"]
    lines = records(["fine", "x" * 1_100_000, "fine too", "y" * 1_100_000])
    ran = partage("produce", "-t", topic, *limits, stdin=lines, code=1)
    assert ran.json["records"] == 2
    assert ran.json["bytes"] == 12
    assert ran.json["failed_count"] == 2
    assert [each["line"] for each in ran.json["failed"]] == [2, 4]
    *told, error = ran.err.splitlines()
    assert len(told) == 2
    assert error.startswith("error: 2 records were not delivered; the first: line 2 of stdin (")
    assert partage.lines(topic) == ["fine", "fine too"]


def test_records_rejected_by_broker_are_listed(partage: PartageCli, name: str) -> None:
    partage("topics", "create", "-t", name, "--config", "max.message.bytes=1000")
    ran = partage("produce", "-t", name, stdin=records(["x" * 2000]), code=1)
    error = ran.err.splitlines()[-1]
    assert error.startswith("error: 1 record was not delivered: line 1 of stdin (message size")


@pytest.fixture(scope="module")
def unread(broker: str) -> str:
    """An empty topic with four partitions."""
    PartageCli(broker)("topics", "create", "-t", "unread", "-p", 4)
    return "unread"


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (["-p", "9"], "has 4 partitions, numbered from 0", 1),
        (["nothing.txt"], "cannot read nothing.txt: no such file", 1),
        (["."], "cannot read .: it is a directory", 1),
        (["--property", "parse.kye=true"], "unknown --property: parse.kye", 2),
        (["-K", ""], "key.separator must not be empty", 2),
        (["--format", "json", "-K", ":"], "require --format text", 2),
        (["-H", "alone"], "--header requires NAME=VALUE", 2),
        (["--format", "xml"], "--format", 2),
        (["-z", "rar"], "--compression-codec", 2),
    ],
)
def test_invalid_options_are_rejected(
    partage: PartageCli, unread: str, options: list[str], says: str, code: int
) -> None:
    assert says in partage.fails("produce", "-t", unread, *options, code=code)


def test_json_line_with_unknown_partition_fails(partage: PartageCli, topic: str) -> None:
    line = '{"value":"v","partition":99}\n'
    ran = partage("produce", "-t", topic, "--format", "json", stdin=line, code=1)
    assert "line 1 of stdin (unknown partition)" in ran.err


def test_missing_topic_is_named(partage: PartageCli, name: str) -> None:
    short = ["--timeout-ms", "300"]
    error = partage.fails("produce", "-t", name, *short)
    assert error.startswith(f"no such topic: {name};")
    assert error.endswith(f": partage topics create {name}")
    assert "cannot produce to a/b: " in partage.fails("produce", "-t", "a/b", *short)


def test_ctrl_c_delivers_queued_records(partage: PartageCli, topic: str) -> None:
    process = partage.start("produce", "-t", topic, "-v")
    with process:
        assert process.stdin is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        assert partage("consume", "-t", topic, "--from-beginning", "-c", 1).lines == ["first"]
        process.send_signal(2)
        assert process.wait(10) == 130
        assert process.stderr is not None
        assert "stopped: produced 1 record" in process.stderr.read()


def test_progress_is_drawn_only_on_terminal(
    partage: PartageCli, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text(records([str(number) for number in range(2000)]))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "partage", "produce", "-t", topic, str(tmp_path / "lines")]
    done = subprocess.run(
        command,
        env={**partage.env, "TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        timeout=60,
        check=True,
    )
    os.close(theirs)
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.stdout == b""
    assert f"producing to {topic}" in drawn
    assert "\x1b[" in drawn
    assert "produced 2,000 records" in drawn
