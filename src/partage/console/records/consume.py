"""``partage consume``: print records to stdout."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from partage.console.common.client_options import ASSIGNORS, group_reader_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.completion import complete_groups
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import (
    JsonOption,
    TopicsArgument,
    TopicsOption,
    required_names,
    with_cluster,
)
from partage.console.common.output import count, format_bytes, json_help, note
from partage.console.common.pairs import parse_pairs
from partage.console.common.signals import StopRequest
from partage.console.records.assigned_reader import AssignedReader
from partage.console.records.cluster_wait import NO_LIMIT_MS, wait_for_cluster
from partage.console.records.consume_loop import ConsumeLoop, ReadLimits
from partage.console.records.group_reader import GroupReader
from partage.console.records.record_formatter import (
    RecordFormatter,
    format_json_line,
    kcat_formatter,
    line_formatter,
)
from partage.console.records.record_json import JsonRecord
from partage.console.records.start_positions import (
    BEGINNING,
    END,
    ReadRange,
    StartOrigin,
    StartPosition,
    parse_start_position,
    resolve_ranges,
)
from partage.model.topic_partition import TopicPartition

app = command_app()

_END_WAIT_MS: Final = 100
"""Maximum wait of a fetch: librdkafka reports the end of a partition after an empty fetch."""


class Isolation(StrEnum):
    """Isolation level: whether records of open and aborted transactions are read."""

    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


def _switch(name: str, what: str) -> Any:
    return typer.Option(f"--print-{name}", help=f"Print {what}.")


@app.command("consume", epilog=json_help(JsonRecord, "prints one line per record:"))
@with_cluster(
    "--connect-timeout-ms",
    "Request timeout. If it is given, and with --exit, also the longest wait for a cluster that "
    "does not answer.",
    retry_timeout_ms=NO_LIMIT_MS,
)
def consume(
    cluster: ClusterClient,
    name: TopicsArgument = None,
    topic: TopicsOption = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=0,
            help="Read only this partition; repeatable.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            "-G",
            metavar="GROUP",
            help="Join this group and commit offsets.",
            autocompletion=complete_groups,
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Start at the beginning; with --group, where no offset is committed.",
        ),
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N|beginning|end|-N",
            help="Start at an offset (requires --partition), or N records before the end. "
            "Default: the end.",
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
            help="Stop after this time without a record; joining the group counts.",
        ),
    ] = None,
    exit_at_end: Annotated[
        bool,
        typer.Option(
            "--exit",
            "-e",
            help="Stop at the end of all partitions. Without another start option, start at the "
            "beginning.",
        ),
    ] = False,
    format_string: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="Format as in kcat: %t topic, %p partition, %o offset, %T timestamp, %h headers, "
            "%k key, %K key length, %s value, %S value length, %R value length as 4 bytes, "
            "%% a percent sign; backslash escapes n, r, t, xHH.",
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
            "--key-separator", "-K", metavar="SEP", help="Print the key, followed by SEP."
        ),
    ] = None,
    null_value: Annotated[
        bool, typer.Option("--null-value", "-Z", help="Print null as NULL.")
    ] = False,
    formatter_property: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="Property of Kafka's console consumer; repeatable: print.key, print.value, "
            "print.headers, print.timestamp, print.partition, print.offset, key.separator, "
            "line.separator, headers.separator, null.literal.",
        ),
    ] = None,
    isolation_level: Annotated[
        Isolation,
        typer.Option(
            "--isolation-level",
            help="read_committed omits records of open and aborted transactions.",
        ),
    ] = Isolation.UNCOMMITTED,
    json: JsonOption = False,
) -> None:
    """Print records, one per line. Ctrl-C commits, leaves the group and exits.

    While no broker answers, the command waits.

    \b
    Examples:
      partage consume flights --from-beginning --max-messages 10
      partage consume flights -e -f '%p %o %k %s\\n'
      partage consume flights --partition 0 --offset -5 --exit --json
      partage consume flights --group readers --from-beginning --exit
      partage consume flights -e --json | partage produce -t copy -p -1 --format json
    """
    topics = required_names(name, topic, "topic")
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
        parse_pairs(formatter_property or [], "--property"),
    )
    start = _start(offset, from_beginning, exit_at_end, group, partition)
    outage_ms = cluster.timeout_ms if exit_at_end else cluster.retry_timeout_ms
    fetch_wait_ms = _END_WAIT_MS if exit_at_end else None
    consuming: ConsumeLoop
    with StopRequest() as stop:
        wait_for_cluster(
            cluster,
            lambda timeout_s: cluster.admin.list_topics(timeout=timeout_s),
            stop,
            limit_ms=outage_ms if timeout_ms is None else min(outage_ms, timeout_ms),
            is_first=True,
        )
        if stop:
            note(_summary(topics, 0, 0, "stopped"))
            return
        cluster.require_topics(topics)
        if group is None:
            consuming = AssignedReader(
                cluster,
                _ranges(cluster, topics, partition, start),
                show,
                sys.stdout.buffer,
                isolation_level=isolation_level.value,
                fetch_wait_ms=fetch_wait_ms,
                outage_ms=outage_ms,
            )
        else:
            options = group_reader_options(
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
            consuming = GroupReader(cluster, options, topics, show, sys.stdout.buffer, outage_ms)
        try:
            ended = consuming.run(ReadLimits(max_messages, timeout_ms, exit_at_end), stop)
        finally:
            consuming.close()
    note(_summary(topics, consuming.records, consuming.bytes, ended))


def _summary(topics: list[str], records: int, size: int, ended: str | None) -> str:
    what = f"{count(records, 'record')} ({format_bytes(size)})"
    return f"consumed {what} from {', '.join(topics)}{': ' + ended if ended else ''}"


def _printing(
    json: bool,
    format_string: str | None,
    switched_on: dict[str, bool],
    key_separator: str | None,
    null_value: bool,
    properties: dict[str, str],
) -> RecordFormatter:
    lines_only = any(switched_on.values()) or key_separator is not None or bool(properties)
    if json and (format_string is not None or lines_only or null_value):
        raise usage_error("--json cannot be combined with --format, --print-* or --property")
    if json:
        return format_json_line
    if format_string is not None:
        if lines_only:
            raise usage_error(
                "--format cannot be combined with --print-*, --key-separator or --property"
            )
        return kcat_formatter(format_string, b"NULL" if null_value else b"")
    if null_value:
        properties = {"null.literal": "NULL", **properties}
    return line_formatter(switched_on, key_separator, properties).format


def _start(
    offset: str | None,
    from_beginning: bool,
    exit_at_end: bool,
    group: str | None,
    partitions: list[int] | None,
) -> StartPosition:
    if offset is not None and from_beginning:
        raise usage_error("--offset and --from-beginning cannot be combined")
    if group == "":
        raise usage_error("the name of a group must not be empty")
    if group is not None and (offset is not None or partitions):
        raise usage_error(
            "--group starts at committed offsets; it takes no --offset and no --partition"
        )
    if offset is None:
        return BEGINNING if from_beginning or (exit_at_end and group is None) else END
    start = parse_start_position(offset)
    if start.origin is StartOrigin.OFFSET and not partitions:
        raise usage_error(f"--offset {offset} requires --partition")
    return start


def _ranges(
    cluster: ClusterClient, topics: list[str], partitions: list[int] | None, start: StartPosition
) -> dict[TopicPartition, ReadRange]:
    metadata = cluster.metadata()
    selected = []
    for topic in topics:
        existing = metadata.topics[topic].partitions
        for partition in partitions or sorted(existing):
            if partition not in existing:
                raise CommandError(
                    f"no partition {partition} in topic {topic}: it has "
                    f"{count(len(existing), 'partition')}, numbered from 0"
                )
            selected.append(TopicPartition(topic, partition))
    return resolve_ranges(cluster, selected, start)
