"""``partage consume``."""

from __future__ import annotations

import functools
import json
import re
import signal
import time
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka

from partage.sync import Consumer

from .cli import PartageCli, records


@pytest.fixture(scope="module")
def flights(broker: str) -> str:
    """A topic with five records with key and header in partition 0, and one in partition 1."""
    partage, topic = PartageCli(broker), "flights-to-read"
    # Apache Kafka would delete records with such old timestamps half a minute after its start.
    partage("topics", "create", "-t", topic, "-p", 4, "--config", "retention.ms=-1")
    lines = [
        {"value": f"v{n}", "key": f"k{n}", "headers": {"h": str(n)}, "partition": 0, "timestamp": 9}
        for n in range(5)
    ]
    lines.append({"value": None, "partition": 1, "timestamp": 9})
    partage("produce", "-t", topic, "--format", "json", stdin=records(map(json.dumps, lines)))
    return topic


def test_exit_prints_all_records(partage: PartageCli, flights: str) -> None:
    ran = partage("consume", "-t", flights, "--exit")
    assert sorted(ran.lines) == ["null", "v0", "v1", "v2", "v3", "v4"]
    assert ran.err == f"consumed 6 records (20 bytes) from {flights}\n"


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--from-beginning"], ["v0", "v1", "v2", "v3", "v4"]),
        (["--offset", "beginning"], ["v0", "v1", "v2", "v3", "v4"]),
        (["--offset", "3"], ["v3", "v4"]),
        (["--offset", "5"], []),
        (["--offset", "-2"], ["v3", "v4"]),
        (["--offset", "-100"], ["v0", "v1", "v2", "v3", "v4"]),
        (["--offset", "end"], []),
        (["-o", "latest"], []),
        (["-o", "earliest", "-c", "2"], ["v0", "v1"]),
    ],
)
def test_start_options_select_records(
    partage: PartageCli, flights: str, options: list[str], values: list[str]
) -> None:
    assert partage("consume", "-t", flights, "-p", 0, "-e", *options).lines == values


def test_negative_offset_applies_to_each_partition(partage: PartageCli, flights: str) -> None:
    assert sorted(partage("consume", "-t", flights, "-e", "-o", "-1").lines) == ["null", "v4"]


def test_default_start_is_end_and_timeout_stops(partage: PartageCli, flights: str) -> None:
    ran = partage("consume", "-t", flights, "--timeout-ms", 300)
    assert ran.lines == []
    assert ran.err.endswith(f"from {flights}: no record for 300 ms\n")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "v4"),
        (["--print-key"], "k4\tv4"),
        (["-K", " = "], "k4 = v4"),
        (["-K", r"\x3a"], "k4:v4"),
        (
            ["--print-timestamp", "--print-partition", "--print-offset", "--print-headers"],
            "CreateTime:9\tPartition:0\tOffset:4\th:4\tv4",
        ),
        (["--property", "print.key=true", "--property", "print.value=false"], "k4"),
        (["--property", "print.key=true", "--property", "key.separator=|"], "k4|v4"),
        (["-f", r"%t %p %o %T %h %k/%K %s/%S %%\x21\n"], "{topic} 0 4 9 h=4 k4/2 v4/2 %!"),
    ],
)
def test_line_options_select_fields(
    partage: PartageCli, flights: str, options: list[str], line: str
) -> None:
    ran = partage("consume", "-t", flights, "-p", 0, "-o", "-1", "-e", *options)
    assert ran.out == line.format(topic=flights) + "\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], "null\n"),
        (["-Z"], "NULL\n"),
        (["--property", "null.literal=nil", "--print-key"], "nil\tnil\n"),
        (["--print-headers"], "NO_HEADERS\tnull\n"),
        (["-f", "%k,%K,%s,%S;"], ",-1,,-1;"),
        (["-Z", "-f", "%k,%s"], "NULL,NULL"),
        (["-f", "%R"], "\udcff\udcff\udcff\udcff"),
    ],
)
def test_null_has_configured_text(
    partage: PartageCli, flights: str, options: list[str], shown: str
) -> None:
    assert partage("consume", "-t", flights, "-p", 1, "-e", *options).out == shown


def test_json_line_has_all_fields(partage: PartageCli, flights: str) -> None:
    *_, last = partage("consume", "-t", flights, "-p", 0, "-e", "--json").lines
    assert json.loads(last) == {
        "topic": flights,
        "partition": 0,
        "offset": 4,
        "timestamp": 9,
        "timestamp_type": "CreateTime",
        "key": "k4",
        "value": "v4",
        "headers": [{"key": "h", "value": "4"}],
    }


def test_binary_value_is_printed_unchanged(partage: PartageCli, topic: str) -> None:
    partage("produce", "-t", topic, stdin=b"\xff\x00\xfe\n")
    assert partage("consume", "-t", topic, "-e").out == "\udcff\x00\udcfe\n"
    (line,) = partage("consume", "-t", topic, "-e", "--json").lines
    record = json.loads(line)
    assert (record["value"], record["value_encoding"]) == ("/wD+", "base64")
    assert "key_encoding" not in record


def test_several_topics_are_consumed(partage: PartageCli, flights: str, name: str) -> None:
    other = f"{name}-other"
    partage("topics", "create", "-t", other)
    partage("produce", "-t", other, stdin="theirs\n")
    ran = partage("consume", "-t", flights, "-t", other, "-e", "-f", "%t;%s\n")
    assert f"{other};theirs" in ran.lines
    assert len(ran.lines) == 7


def test_group_continues_at_committed_offsets(partage: PartageCli, flights: str, name: str) -> None:
    options = ["-t", flights, "--group", name, "--from-beginning"]
    first = partage("consume", *options, "--max-messages", 2)
    rest = partage("consume", *options, "--exit")
    assert len(first.lines) == 2
    assert sorted([*first.lines, *rest.lines]) == ["null", "v0", "v1", "v2", "v3", "v4"]
    assert partage("consume", *options, "--exit").lines == []


def test_group_without_from_beginning_starts_at_end(
    partage: PartageCli, flights: str, name: str
) -> None:
    assert partage("consume", "-t", flights, "--group", name, "--exit").lines == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signals_commit_and_leave_the_group(
    partage: PartageCli, flights: str, name: str, stop: signal.Signals
) -> None:
    process = partage.start("consume", "-t", flights, "--group", name, "--from-beginning")
    with process:
        assert process.stdout is not None
        seen = [process.stdout.readline().strip() for _ in range(6)]
        assert sorted(seen) == ["null", "v0", "v1", "v2", "v3", "v4"]
        described = partage("groups", "describe", "--group", name, "--json").json["groups"][0]
        assert (described["state"], len(described["members"])) == ("Stable", 1)
        process.send_signal(stop)
        assert process.wait(60) == 0
        assert process.stderr is not None
        told = process.stderr.read()
    assert told == f"consumed 6 records (20 bytes) from {flights}: stopped\n"
    after = partage("groups", "describe", "--group", name, "--json").json["groups"][0]
    assert (after["state"], after["members"], after["total_lag"]) == ("Empty", [], 0)
    assert {each["partition"]: each["current_offset"] for each in after["offsets"]} == {0: 5, 1: 1}


def test_group_output_equals_output_without_group(
    partage: PartageCli, flights: str, name: str
) -> None:
    """Keys, headers, timestamps and nulls look the same with either client."""
    for number, options in enumerate([["--json"], ["-f", "%t %p %o %T %h %k/%K %s/%S\n"]]):
        group = ["--group", f"{name}-{number}", "--from-beginning"]
        alone = partage("consume", "-t", flights, "-e", *options).lines
        shared = partage("consume", "-t", flights, "-e", *group, *options).lines
        assert sorted(shared) == sorted(alone)


def test_group_with_auto_commit_off_commits_nothing(
    partage: PartageCli, flights: str, name: str
) -> None:
    options = ["-t", flights, "-g", name, "--from-beginning", "-e"]
    for _ in range(2):
        ran = partage("consume", *options, "-X", "enable.auto.commit=false")
        assert len(ran.lines) == 6


@pytest.mark.timeout(600)
def test_group_commits_while_reading(partage: PartageCli, flights: str, name: str) -> None:
    options = ["-g", name, "--from-beginning", "-X", "auto.commit.interval.ms=50"]
    process = partage.start("consume", "-t", flights, *options)
    with process:
        assert process.stdout is not None
        for _ in range(6):
            process.stdout.readline()
        give_up = time.monotonic() + 60
        while describe(partage, name)["total_lag"] != 0:
            assert time.monotonic() < give_up
        process.kill()


def describe(partage: PartageCli, group: str) -> dict[str, Any]:
    found: dict[str, Any] = partage("groups", "describe", "-g", group, "--json").json["groups"][0]
    return found


def test_group_accepts_assignor_unknown_to_librdkafka(
    partage: PartageCli, flights: str, name: str
) -> None:
    chosen = ("-X", "partition.assignment.strategy=sticky")
    given = ("--group", name, "--from-beginning", "--exit", *chosen)
    result = partage("consume", "-t", flights, *given)
    assert result.lines


def test_group_with_consumer_protocol_is_read(partage: PartageCli, flights: str, name: str) -> None:
    given = ("--group", name, "--from-beginning", "--exit", "-X", "group.protocol=consumer")
    assert partage("consume", "-t", flights, *given).lines
    listed = partage("groups", "list", "--type", "consumer", "--json").json["groups"]
    assert name in [each["group"] for each in listed]
    wrong = ("--group", name, "-X", "group.protocol=consumer", "-X", "session.timeout.ms=6000")
    assert "session_timeout_ms=6000" in partage.fails("consume", "-t", flights, *wrong, code=2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky", "sticky"])
def test_group_with_other_assignors_is_joined(
    partage: PartageCli, flights: str, name: str, strategy: str
) -> None:
    """The other members use assignors that are not our default."""
    if strategy == "sticky":
        other: Any = Consumer(
            partage.bootstrap_servers,
            group_id=name,
            partition_assignment_strategy=[strategy],
            heartbeat_interval_ms=100,
        )
        other.subscribe([flights])
        poll = functools.partial(other.poll, 50)
    else:
        other = Librdkafka(
            {
                "bootstrap.servers": partage.bootstrap_servers,
                "group.id": name,
                "partition.assignment.strategy": strategy,
                "heartbeat.interval.ms": 100,
            }
        )
        other.subscribe([flights])
        poll = functools.partial(other.poll, 0.05)
    try:
        give_up = time.monotonic() + 60
        while len(other.assignment()) < 4:
            poll()
            assert time.monotonic() < give_up
        process = partage.start("consume", "-t", flights, "--group", name)
        with process:
            while len(other.assignment()) != 2:
                poll()
                assert time.monotonic() < give_up
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        other.close()


@pytest.mark.timeout(600)
def test_exit_waits_for_partitions_revoked_by_others(
    partage: PartageCli, topic: str, name: str
) -> None:
    """Cooperative members hand over partitions one generation later."""
    lines = [json.dumps({"value": f"{n}", "partition": n}) for n in range(4)]
    partage("produce", "-t", topic, "--format", "json", stdin=records(lines))
    options: Any = {"group_id": name, "enable_auto_commit": False, "heartbeat_interval_ms": 100}
    with Consumer(partage.bootstrap_servers, **options) as other:
        other.subscribe([topic])
        give_up = time.monotonic() + 60
        while len(other.assignment()) < 4:
            other.poll(50)
            assert time.monotonic() < give_up
        process = partage.start("consume", "-t", topic, "-g", name, "--from-beginning", "-e")
        with process:
            while process.poll() is None:
                other.poll(50)
            assert process.stdout is not None
            assert len(process.stdout.readlines()) == 2


def test_closed_pipe_ends_without_failure(partage: PartageCli, topic: str, name: str) -> None:
    # More than the buffer of a pipe.
    partage("produce", "-t", topic, stdin=records([f"{n:0100}" for n in range(3000)]))
    ran = partage.shell(f"partage consume -t {topic} -e | head -2")
    assert ran.code == 0
    assert len(ran.lines) == 2
    assert re.fullmatch(
        rf"consumed \S+ records \(.*\) from {topic}: output closed by its reader\n", ran.err
    )


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (["-p", "9"], "has 4 partitions, numbered from 0", 1),
        (["-p", "0", "-o", "6"], "offset 6 is out of range for partition 0 of ", 1),
        (["-o", "3"], "--offset 3 requires --partition", 2),
        (["-o", "soon"], "invalid --offset 'soon'", 2),
        (["-o", "-1", "--from-beginning"], "cannot be combined", 2),
        (["-g", "g", "-p", "0"], "--group starts at committed offsets", 2),
        (["-f", "%x"], "unknown token %x", 2),
        (["-f", "%"], "unknown token %", 2),
        (["-f", "%s", "--print-key"], "--format cannot be combined", 2),
        (["--json", "--print-key"], "--json cannot be combined", 2),
        (["--property", "print.kye=true"], "unknown --property: print.kye", 2),
        (["-c", "0"], "--max-messages", 2),
        (["-g", "g", "-X", "session.timeout.ms=1"], "heartbeat_interval_ms", 2),
        (["-g", "g", "-X", "session.timeout.ms=100"], "INVALID_SESSION_TIMEOUT", 1),
        (["-g", "g", "-X", "max.poll.interval.ms=x"], '"max.poll.interval.ms"', 2),
        (
            ["-g", "g", "-X", "enable.ssl.certificate.verification=false"],
            "works only in librdkafka",
            2,
        ),
        (["-g", "g", "-X", "sasl.username=x"], "sasl_username has no effect", 2),
    ],
)
def test_invalid_options_are_rejected(
    partage: PartageCli, flights: str, options: list[str], says: str, code: int
) -> None:
    assert says in partage.fails("consume", "-t", flights, *options, code=code)


def test_missing_topics_are_named(partage: PartageCli, topic: str, name: str) -> None:
    missing = [f"{name}x", f"{name}y"]
    options = ["-t", topic, "-t", missing[0], "-t", missing[1], "-e"]
    error = partage.fails("consume", *options)
    assert error.startswith(f"no such topic: {', '.join(missing)}; did you mean {topic}")
