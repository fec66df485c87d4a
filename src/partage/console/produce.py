"""``partage produce``: records from lines of text or JSON."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final, NamedTuple, TypeAlias

import msgspec
import typer

from partage.console.cluster import Cluster
from partage.console.dispatch import command_app
from partage.console.failure import Failure, misused
from partage.console.lines import lines
from partage.console.options import Json, Topic, pairs, with_cluster
from partage.console.record_json import BadRecord, Headers, ToSend, from_json
from partage.console.record_lines import line_form
from partage.console.sending import Sending, Undelivered
from partage.console.show import Progress, count, json_help, note, print_json, size
from partage.console.stopping import StopRequest

DELIVERY_TIMEOUT_MS: Final = 30_000
_STDIN: Final = Path("-")
_POLL_EVERY: Final = 500
_REQUIRED: Final = {"delivery.report.only.error": True}

app = command_app()

Parse: TypeAlias = Callable[[bytes], ToSend | None]


class Form(StrEnum):
    """What a line holds."""

    TEXT = "text"
    JSON = "json"


class Codec(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Who has to have a record before it counts as delivered."""

    ALL = "all"
    EVERY = "-1"
    LEADER = "1"
    NONE = "0"


class _Fixed(NamedTuple):
    """What the options give every record."""

    headers: Headers
    partition: int | None

    def applied(self, record: ToSend) -> ToSend:
        if self.headers:
            record = record._replace(headers=[*record.headers, *self.headers])
        if self.partition is not None:
            record = record._replace(partition=None if self.partition < 0 else self.partition)
        return record


class Produced(msgspec.Struct, frozen=True):
    """``partage produce --json``: what was delivered, and the first hundred that were not."""

    topic: str
    records: int
    bytes: int
    seconds: float
    failed_count: int
    failed: list[Undelivered]


@app.command("produce", epilog=json_help(Produced))
@with_cluster()
def produce(
    cluster: Cluster,
    topic: Topic,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Files to read, - for stdin. Stdin without any.", metavar="FILE"),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="What a line holds: text, or JSON with value and, if wanted, key, headers, "
            "partition, timestamp (ms); as consume --json prints it.",
        ),
    ] = Form.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="SEP", help="What parts the key from the value."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="A header for every record; may be given several times.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=-1,
            help="The partition for all; -1 lets keys choose, whatever partition a line names.",
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
            help="A property of the console producer's line reader: parse.key, key.separator, "
            "parse.headers, headers.delimiter, headers.separator, headers.key.separator, "
            "null.marker, ignore.error.",
        ),
    ] = None,
    compression_codec: Annotated[
        Codec, typer.Option("--compression-codec", "-z", help="How to compress batches.")
    ] = Codec.NONE,
    acks: Annotated[
        Acks,
        typer.Option(
            "--acks",
            "--request-required-acks",
            help="Which replicas acknowledge a record: all (-1), the leader (1), none (0).",
        ),
    ] = Acks.ALL,
    json: Json = False,
) -> None:
    """Produce records, one a line. Keys choose partitions with murmur2, as in Java.

    \b
    Examples:
      echo 'JFK:delayed' | partage produce --topic flights --key-separator :
      partage produce --topic flights --format json flights.jsonl
      echo '{"key":"EWR","value":{"delay":4}}' | partage produce -t flights --format json
      seq 1000 | partage produce -t flights -z zstd --header origin=seq
    """
    given = pairs(reader_property or [], "--property")
    if form is Form.JSON and (given or key_separator is not None or null_value):
        raise misused("--property, --key-separator and --null-value are for --format text")
    parse = from_json if form is Form.JSON else line_form(key_separator, null_value, given).read
    headers = [(name, value.encode()) for name, value in pairs(header or [], "--header").items()]
    sources = files or [_STDIN]
    for source in sources:
        if source != _STDIN and (source.is_dir() or not source.exists()):
            raise Failure(f"cannot read {source}: no such file")
    producer = cluster.producer(_defaults(cluster, acks, compression_codec), _REQUIRED)
    started = time.monotonic()
    with StopRequest() as stop:
        sending = Sending(cluster, producer, topic, stop)
        if (partition or 0) >= sending.partitions:
            raise Failure(f"topic {topic} has {count(sending.partitions, 'partition')}, from 0 on")
        if partition is not None and partition >= 0:
            sending.require_leader(partition)
        try:
            with Progress(
                f"producing to {topic}", _total_bytes(sources), hidden=_typed(sources)
            ) as shown:
                bad_line = _send_all(
                    sources, parse, _Fixed(headers, partition), sending, stop, shown
                )
        finally:
            _finish(sending, stop, cluster)
    produced = Produced(
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
        raise Failure(bad_line)
    if stop:
        raise typer.Exit(130)


def _defaults(cluster: Cluster, acks: Acks, codec: Codec) -> dict[str, object]:
    everyone = acks in (Acks.ALL, Acks.EVERY)
    return {
        "acks": acks.value,
        "compression.type": codec.value,
        # As Java's producer has it: a retried batch neither repeats nor overtakes records.
        "enable.idempotence": everyone,
        "message.timeout.ms": max(DELIVERY_TIMEOUT_MS, cluster.timeout_ms),
        "partitioner": "murmur2_random",
    }


def _send_all(
    sources: list[Path],
    parse: Parse,
    fixed: _Fixed,
    sending: Sending,
    stop: StopRequest,
    progress: Progress,
) -> str | None:
    """Send every line; returns what is wrong with the first that is no record, if one is."""
    read_bytes = 0
    for source in sources:
        name = "stdin" if source == _STDIN else str(source)
        number = 0
        with _opened(source) as stream:
            for line in lines(stream):
                if stop:
                    return None
                if line is None or number % _POLL_EVERY == 0:
                    sending.poll()
                    progress.show(
                        f"{count(sending.sent, 'record')}, {size(read_bytes)}", read_bytes
                    )
                if line is None:
                    continue
                number += 1
                read_bytes += len(line) + 1
                try:
                    record = parse(line)
                except BadRecord as error:
                    before = count(sending.sent, "record")
                    return f"line {number} of {name}: {error}; {before} before it went out"
                if record is not None:
                    sending.send(fixed.applied(record), name, number)
    return None


def _finish(sending: Sending, stop: StopRequest, cluster: Cluster) -> None:
    """Wait for every acknowledgement: as long as librdkafka tries, or briefly once told to stop."""
    deadline = None
    while not sending.finish_some(0.2):
        if stop and deadline is None:
            deadline = time.monotonic() + cluster.timeout_s
        if deadline is not None and time.monotonic() >= deadline:
            sending.give_up()
            return


def _report(produced: Produced, json: bool, stopped: bool) -> None:
    if json:
        print_json(produced)
    else:
        note(
            f"{'stopped: ' if stopped else ''}produced {count(produced.records, 'record')} "
            f"({size(produced.bytes)}) to {produced.topic} in {produced.seconds:.2f} s"
        )


def _failure(produced: Produced) -> Failure:
    first = produced.failed[0]
    which = f"line {first.line} of {first.source} ({first.error})"
    if produced.failed_count == 1:
        return Failure(f"1 record was not delivered: {which}")
    return Failure(f"{produced.failed_count:,} records were not delivered; the first: {which}")


def _typed(sources: list[Path]) -> bool:
    return _STDIN in sources and sys.stdin.isatty()


def _total_bytes(sources: list[Path]) -> int | None:
    return None if _STDIN in sources else sum(each.stat().st_size for each in sources)


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[BinaryIO]:
    if source == _STDIN:
        if sys.stdin.isatty():
            note("one record a line; Ctrl-D ends")
        yield sys.stdin.buffer
        return
    try:
        stream = source.open("rb", buffering=0)
    except OSError as error:
        raise Failure(f"cannot read {source}: {error.strerror}") from error
    with stream:
        yield stream
