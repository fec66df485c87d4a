"""``partage produce``: send records from lines of text or JSON."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final, NamedTuple, TypeAlias

import msgspec
import typer

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption, TopicOption, with_cluster
from partage.console.common.output import (
    ProgressBar,
    count,
    format_bytes,
    json_help,
    note,
    print_json,
)
from partage.console.common.pairs import parse_pairs
from partage.console.common.signals import StopRequest
from partage.console.records.input_lines import read_lines
from partage.console.records.line_parser import line_parser
from partage.console.records.producer import DeliveryFailure, TopicProducer
from partage.console.records.record_json import Headers, ProducerRecord, RecordParseError, from_json

DELIVERY_TIMEOUT_MS: Final = 30_000
_STDIN: Final = Path("-")
_POLL_EVERY: Final = 500
_REQUIRED: Final = {"delivery.report.only.error": True}

app = command_app()

Parse: TypeAlias = Callable[[bytes], ProducerRecord | None]


class InputFormat(StrEnum):
    """Format of an input line."""

    TEXT = "text"
    JSON = "json"


class CompressionCodec(StrEnum):
    """Compression of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Replicas that must have a record before it counts as delivered."""

    ALL = "all"
    EVERY = "-1"
    LEADER = "1"
    NONE = "0"


class _RecordDefaults(NamedTuple):
    """Headers and partition that the options set for every record."""

    headers: Headers
    partition: int | None

    def apply(self, record: ProducerRecord) -> ProducerRecord:
        if self.headers:
            record = record._replace(headers=[*record.headers, *self.headers])
        if self.partition is not None:
            record = record._replace(partition=None if self.partition < 0 else self.partition)
        return record


class ProduceReport(msgspec.Struct, frozen=True):
    """Output of ``partage produce --json``; ``failed`` contains the first hundred failures."""

    topic: str
    records: int
    bytes: int
    seconds: float
    failed_count: int
    failed: list[DeliveryFailure]


@app.command("produce", epilog=json_help(ProduceReport))
@with_cluster()
def produce(
    cluster: ClusterClient,
    topic: TopicOption,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Files to read; - is stdin. Default: stdin.", metavar="FILE"),
    ] = None,
    form: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            help="Format of a line: text, or JSON as consume --json prints it (value; optional "
            "key, headers, partition, timestamp in ms).",
        ),
    ] = InputFormat.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="SEP", help="Separator between key and value."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="Header for all records; repeatable.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=-1,
            help="Partition for all records; -1 chooses by key, even if a line names one.",
        ),
    ] = None,
    null_value: Annotated[
        bool, typer.Option("--null-value", "-Z", help="Send empty values and keys as null.")
    ] = False,
    reader_property: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="Property of Kafka's console producer; repeatable: parse.key, key.separator, "
            "parse.headers, headers.delimiter, headers.separator, headers.key.separator, "
            "null.marker, ignore.error.",
        ),
    ] = None,
    compression_codec: Annotated[
        CompressionCodec, typer.Option("--compression-codec", "-z", help="Compression of batches.")
    ] = CompressionCodec.NONE,
    acks: Annotated[
        Acks,
        typer.Option(
            "--acks",
            "--request-required-acks",
            help="Which replicas acknowledge a record: all (-1), the leader (1), none (0).",
        ),
    ] = Acks.ALL,
    json: JsonOption = False,
) -> None:
    """Produce records, one per line. Keys choose partitions with murmur2, as in Java.

    Clients on librdkafka, such as confluent-kafka, choose by CRC32 by default, so a key can get
    another partition there. -X partitioner=consistent_random does the same here.

    \b
    Examples:
      echo 'JFK:delayed' | partage produce --topic flights --key-separator :
      partage produce --topic flights --format json flights.jsonl
      echo '{"key":"EWR","value":{"delay":4}}' | partage produce -t flights --format json
      seq 1000 | partage produce -t flights -z zstd --header origin=seq
    """
    given = parse_pairs(reader_property or [], "--property")
    if form is InputFormat.JSON and (given or key_separator is not None or null_value):
        raise usage_error("--property, --key-separator and --null-value require --format text")
    parse = (
        from_json
        if form is InputFormat.JSON
        else line_parser(key_separator, null_value, given).parse
    )
    headers = [
        (name, value.encode()) for name, value in parse_pairs(header or [], "--header").items()
    ]
    sources = files or [_STDIN]
    for source in sources:
        if source == _STDIN:
            continue
        if source.is_dir():
            raise CommandError(f"cannot read {source}: it is a directory")
        if not source.exists():
            raise CommandError(f"cannot read {source}: no such file")
    producer = cluster.producer(_defaults(cluster, acks, compression_codec), _REQUIRED)
    started = time.monotonic()
    with StopRequest() as stop:
        sending = TopicProducer(cluster, producer, topic, stop)
        if (partition or 0) >= sending.partitions:
            raise CommandError(
                f"no partition {partition} in topic {topic}: it has "
                f"{count(sending.partitions, 'partition')}, numbered from 0"
            )
        if partition is not None and partition >= 0:
            sending.require_leader(partition)
        try:
            with ProgressBar(
                f"producing to {topic}", _total_bytes(sources), hidden=_typed(sources)
            ) as shown:
                bad_line = _send_all(
                    sources, parse, _RecordDefaults(headers, partition), sending, stop, shown
                )
        finally:
            _finish(sending, stop, cluster)
    produced = ProduceReport(
        topic=topic,
        records=sending.delivered,
        bytes=sending.delivered_bytes,
        seconds=round(time.monotonic() - started, 3),
        failed_count=sending.failed_count,
        failed=sending.failed,
    )
    _report(produced, json, bool(stop))
    if produced.failed_count:
        raise _failure(produced)
    if bad_line is not None:
        raise CommandError(bad_line)
    if stop:
        raise typer.Exit(130)


def _defaults(cluster: ClusterClient, acks: Acks, codec: CompressionCodec) -> dict[str, object]:
    everyone = acks in (Acks.ALL, Acks.EVERY)
    return {
        "acks": acks.value,
        "compression.type": codec.value,
        # As in Java's producer: a retry neither duplicates nor reorders records.
        "enable.idempotence": everyone,
        "message.timeout.ms": max(DELIVERY_TIMEOUT_MS, cluster.timeout_ms),
        "partitioner": "murmur2_random",
    }


def _send_all(
    sources: list[Path],
    parse: Parse,
    fixed: _RecordDefaults,
    sending: TopicProducer,
    stop: StopRequest,
    progress: ProgressBar,
) -> str | None:
    """Send all lines. Return the error message for the first invalid line, or None."""
    read_bytes = 0
    for source in sources:
        name = "stdin" if source == _STDIN else str(source)
        number = 0
        with _opened(source) as stream:
            for line in read_lines(stream):
                if stop:
                    return None
                if line is None or number % _POLL_EVERY == 0:
                    sending.poll()
                    progress.update(
                        f"{count(sending.sent, 'record')}, {format_bytes(read_bytes)}", read_bytes
                    )
                if line is None:
                    continue
                number += 1
                read_bytes += len(line) + 1
                try:
                    record = parse(line)
                except RecordParseError as error:
                    before = count(sending.sent, "record")
                    return f"line {number} of {name}: {error}; produced {before} before it"
                if record is not None:
                    sending.send(fixed.apply(record), name, number)
    return None


def _finish(sending: TopicProducer, stop: StopRequest, cluster: ClusterClient) -> None:
    """Wait for all acknowledgements, until librdkafka gives up.

    After a signal, wait only for the command's timeout. Report a longer wait without a signal.
    """
    deadline = None
    reported_at = time.monotonic() + cluster.timeout_s
    while not sending.flush(0.2):
        if not stop and time.monotonic() >= reported_at:
            waiting = count(sending.unacknowledged, "record")
            note(f"{waiting} not acknowledged yet; waiting until message.timeout.ms (Ctrl-C stops)")
            reported_at = math.inf
        if stop and deadline is None:
            deadline = time.monotonic() + cluster.timeout_s
        if deadline is not None and time.monotonic() >= deadline:
            sending.purge()
            return


def _report(produced: ProduceReport, json: bool, stopped: bool) -> None:
    if json:
        print_json(produced)
    else:
        note(
            f"{'stopped: ' if stopped else ''}produced {count(produced.records, 'record')} "
            f"({format_bytes(produced.bytes)}) to {produced.topic} in {produced.seconds:.2f} s"
        )


def _failure(produced: ProduceReport) -> CommandError:
    first = produced.failed[0]
    which = f"line {first.line} of {first.source} ({first.error})"
    if produced.failed_count == 1:
        return CommandError(f"1 record was not delivered: {which}")
    return CommandError(f"{produced.failed_count:,} records were not delivered; the first: {which}")


def _typed(sources: list[Path]) -> bool:
    return _STDIN in sources and sys.stdin.isatty()


def _total_bytes(sources: list[Path]) -> int | None:
    return None if _STDIN in sources else sum(each.stat().st_size for each in sources)


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[BinaryIO]:
    if source == _STDIN:
        if sys.stdin.isatty():
            note("enter one record per line; Ctrl-D ends")
        yield sys.stdin.buffer
        return
    try:
        stream = source.open("rb", buffering=0)
    except OSError as error:
        raise CommandError(f"cannot read {source}: {error.strerror}") from error
    with stream:
        yield stream
