"""``partage consume``: records to stdout."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from partage.console.alone import Alone
from partage.console.cluster import Cluster
from partage.console.consuming import Consuming, Limits
from partage.console.dispatch import command_app
from partage.console.failure import Failure, misused
from partage.console.member_options import ASSIGNORS, sharing
from partage.console.offsets import Place
from partage.console.options import Json, pairs, with_cluster
from partage.console.printing import Print, by_format, line_style, print_json_line
from partage.console.record_json import JsonRecord
from partage.console.sharing import Sharing
from partage.console.show import count, json_help, note, size
from partage.console.starting import BEGINNING, END, From, Span, Start, parse_start, spans
from partage.console.stopping import StopRequest

app = command_app()

_END_WAIT_MS: Final = 100
"""A partition's end is told of when a fetch comes back empty."""


class Isolation(StrEnum):
    """Whether records of open and aborted transactions are shown."""

    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


def _switch(name: str, what: str) -> Any:
    return typer.Option(f"--print-{name}", help=f"Show {what}.")


@app.command("consume", epilog=json_help(JsonRecord, "prints a line a record:"))
@with_cluster("--connect-timeout-ms")
def consume(
    cluster: Cluster,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="The topic; may be given several times."
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=0,
            help="Only this partition; may be given several times.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            "-G",
            metavar="GROUP",
            help="Join this group, and commit what was read.",
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Start at the beginning; in a group, where it has committed nothing.",
        ),
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N|beginning|end|-N",
            help="Start at an offset (with --partition), or so many records before the end. "
            "Without it, at the end.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-c", metavar="N", min=1, help="Stop after N records."),
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--timeout-ms",
            metavar="MS",
            min=1,
            help="Stop when no record came for that long, joining the group included.",
        ),
    ] = None,
    exit_at_end: Annotated[
        bool,
        typer.Option(
            "--exit",
            "-e",
            help="Stop at the end of every partition; starts at the beginning, where no other "
            "start is given.",
        ),
    ] = False,
    format_string: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="kcat's format: %t topic, %p partition, %o offset, %T timestamp, %h headers, "
            "%k key, %K its length, %s value, %S its length, %R the same as four bytes, %%; "
            "and backslash n, r, t, xHH.",
        ),
    ] = None,
    print_timestamp: Annotated[bool, _switch("timestamp", "the timestamp")] = False,
    print_partition: Annotated[bool, _switch("partition", "the partition")] = False,
    print_offset: Annotated[bool, _switch("offset", "the offset")] = False,
    print_headers: Annotated[bool, _switch("headers", "the headers")] = False,
    print_key: Annotated[bool, _switch("key", "the key")] = False,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="SEP", help="Show the key, with this after it."
        ),
    ] = None,
    null_value: Annotated[
        bool, typer.Option("--null-value", "-Z", help="Show nulls as NULL.")
    ] = False,
    formatter_property: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A property of the console consumer's formatter: print.key, print.value, "
            "print.headers, print.timestamp, print.partition, print.offset, key.separator, "
            "line.separator, headers.separator, null.literal.",
        ),
    ] = None,
    isolation_level: Annotated[
        Isolation, typer.Option("--isolation-level", help="What to show of transactions.")
    ] = Isolation.UNCOMMITTED,
    json: Json = False,
) -> None:
    """Consume records, one a line. Ctrl-C ends it, commits and leaves the group.

    \b
    Examples:
      partage consume --topic flights --from-beginning --max-messages 10
      partage consume -t flights -e -f '%p %o %k %s\\n'
      partage consume --topic flights --partition 0 --offset -5 --exit --json
      partage consume --topic flights --group readers --from-beginning --exit
      partage consume -t flights -e --json | partage produce -t copy -p -1 --format json
    """
    switched_on = {
        "timestamp": print_timestamp,
        "partition": print_partition,
        "offset": print_offset,
        "headers": print_headers,
        "key": print_key,
    }
    show = _printing(
        json,
        format_string,
        switched_on,
        key_separator,
        null_value,
        pairs(formatter_property or [], "--property"),
    )
    start = _start(offset, from_beginning, exit_at_end, group, partition)
    cluster.require_topics(topic)
    fetch_wait_ms = _END_WAIT_MS if exit_at_end else None
    consuming: Consuming
    with StopRequest() as stop:
        if group is None:
            consuming = Alone(
                cluster,
                _spans(cluster, topic, partition, start),
                show,
                sys.stdout.buffer,
                isolation_level=isolation_level.value,
                fetch_wait_ms=fetch_wait_ms,
            )
        else:
            options = sharing(
                cluster.bootstrap_servers,
                cluster.properties,
                {
                    "group_id": group,
                    "auto_offset_reset": "earliest" if start == BEGINNING else "latest",
                    "client_id": "partage",
                    "isolation_level": isolation_level.value,
                    "partition_assignment_strategy": ASSIGNORS,
                    "default_api_timeout_ms": cluster.timeout_ms,
                    **({} if fetch_wait_ms is None else {"fetch_max_wait_ms": fetch_wait_ms}),
                },
            )
            consuming = Sharing(cluster, options, topic, show, sys.stdout.buffer)
        try:
            ended = consuming.run(Limits(max_messages, timeout_ms, exit_at_end), stop)
        finally:
            consuming.close()
    what = f"{count(consuming.records, 'record')} ({size(consuming.bytes)}) from {', '.join(topic)}"
    note(f"consumed {what}{': ' + ended if ended else ''}")


def _printing(
    json: bool,
    format_string: str | None,
    switched_on: dict[str, bool],
    key_separator: str | None,
    null_value: bool,
    properties: dict[str, str],
) -> Print:
    lines_only = any(switched_on.values()) or key_separator is not None or bool(properties)
    if json and (format_string is not None or lines_only or null_value):
        raise misused("--json shows everything; it takes no --format, --print-..., --property")
    if json:
        return print_json_line
    if format_string is not None:
        if lines_only:
            raise misused("--format takes no --print-..., --key-separator, --property")
        return by_format(format_string, b"NULL" if null_value else b"")
    if null_value:
        properties = {"null.literal": "NULL", **properties}
    return line_style(switched_on, key_separator, properties).print


def _start(
    offset: str | None,
    from_beginning: bool,
    exit_at_end: bool,
    group: str | None,
    partitions: list[int] | None,
) -> Start:
    if offset is not None and from_beginning:
        raise misused("--offset and --from-beginning do not go together")
    if group is not None and (offset is not None or partitions):
        raise misused("--group goes on from what it committed: it takes no --offset or --partition")
    if offset is None:
        return BEGINNING if from_beginning or (exit_at_end and group is None) else END
    start = parse_start(offset)
    if start.counted_from is From.ZERO and not partitions:
        raise misused(f"--offset {offset} wants a --partition")
    return start


def _spans(
    cluster: Cluster, topics: list[str], partitions: list[int] | None, start: Start
) -> dict[Place, Span]:
    metadata = cluster.metadata()
    places = []
    for topic in topics:
        there = metadata.topics[topic].partitions
        for partition in partitions or sorted(there):
            if partition not in there:
                raise Failure(f"topic {topic} has {count(len(there), 'partition')}, from 0 on")
            places.append((topic, partition))
    return spans(cluster, places, start)
