"""``partage records delete``: delete the records at the beginning of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.completion import complete_topics
from partage.console.common.confirmation import confirm
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.offsets import ELECTION_WAIT_S, list_offsets
from partage.console.common.options import (
    DryRunOption,
    JsonOption,
    YesOption,
    given_names,
    with_cluster,
)
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.partitions import parse_topics, require_partitions, resolve_partitions
from partage.console.common.table import print_table
from partage.model.topic_partition import TopicPartition

app = command_app()

#: Kafka's number for the end of a partition in ``--offset-json-file``.
_END: Final = -1
_DOUBT: Final = "check with partage topics describe whether records were deleted"


class PartitionDeletion(msgspec.Struct, frozen=True):
    """A partition with its first offset before and after, and the error if nothing was deleted."""

    topic: str
    partition: int
    earliest_offset: int
    new_earliest_offset: int
    error: str | None


class RecordDeletionReport(msgspec.Struct, frozen=True):
    """Output of ``partage records delete --json``; ``executed`` is false for a dry run."""

    executed: bool
    partitions: list[PartitionDeletion]


class FilePartition(msgspec.Struct, frozen=True):
    """A partition in ``--offset-json-file``."""

    topic: str
    partition: int
    offset: int


class OffsetFile(msgspec.Struct, frozen=True):
    """The content of ``--offset-json-file``, as for ``kafka-delete-records.sh``."""

    partitions: list[FilePartition]
    version: int = 1


@app.command("delete", epilog=json_help(RecordDeletionReport))
@with_cluster()
def delete(
    cluster: ClusterClient,
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]",
            help="Topics, or some of their partitions.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Same as the argument; repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    before_offset: Annotated[
        str | None,
        typer.Option(
            "--before-offset",
            metavar="N|end",
            help="Delete the records before this offset; end deletes all records.",
        ),
    ] = None,
    offset_json_file: Annotated[
        Path | None,
        typer.Option(
            "--offset-json-file",
            metavar="FILE",
            help="Offsets of partitions, in the format of kafka-delete-records.sh; -1 is the end.",
        ),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Delete the records at the beginning of partitions.

    On a terminal, the command asks for confirmation.

    \b
    Examples:
      partage records delete flights:0 --before-offset 2 --dry-run
      partage records delete flights --before-offset end --yes
    """
    given = given_names(name, topic)
    if bool(given) == (offset_json_file is not None):
        raise usage_error("records delete requires either topics or --offset-json-file")
    if given and before_offset is None:
        raise usage_error("topics require --before-offset; --before-offset end deletes all records")
    if offset_json_file is not None and before_offset is not None:
        raise usage_error("--before-offset requires topics; --offset-json-file has the offsets")
    if offset_json_file is not None:
        wanted = _read_file(offset_json_file)
        require_partitions(cluster, wanted)
    else:
        offset = _parse_offset(before_offset or "")
        wanted = dict.fromkeys(sorted(resolve_partitions(cluster, parse_topics(given))), offset)
    planned = _planned(cluster, wanted)
    if not dry_run:
        offsets = sum(each.new_earliest_offset - each.earliest_offset for each in planned)
        affected = [
            f"{each.topic}-{each.partition} before offset {each.new_earliest_offset}"
            for each in planned
        ]
        confirm(f"delete the records at {count(offsets, 'offset')}", affected, yes=yes)
        planned = _deleted(cluster, planned)
    _print_report(RecordDeletionReport(not dry_run, planned), json)


def _parse_offset(text: str) -> int:
    if text in ("end", str(_END)):
        return _END
    if not text.isascii() or not text.isdigit():
        raise usage_error(f"invalid --before-offset {text!r}; use a number, or end")
    return int(text)


def _read_file(path: Path) -> dict[TopicPartition, int]:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=OffsetFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandError(f"cannot read --offset-json-file {path}: {error}") from error
    if invalid := [each for each in content.partitions if each.offset < _END]:
        raise CommandError(
            f"{path} has an invalid offset {invalid[0].offset} of {invalid[0].topic}-"
            f"{invalid[0].partition}; use 0 or more, or -1 for the end"
        )
    return {TopicPartition(each.topic, each.partition): each.offset for each in content.partitions}


def _planned(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int]
) -> list[PartitionDeletion]:
    """Return the partitions with their first offsets before and after the deletion.

    Raises:
        CommandError: A partition has no leader, or ends before the offset.
    """
    firsts = list_offsets(
        cluster, sorted(wanted), OffsetSpec.earliest(), patience_s=ELECTION_WAIT_S
    )
    ends = list_offsets(cluster, sorted(firsts), OffsetSpec.latest(), patience_s=ELECTION_WAIT_S)
    planned = []
    for partition, offset in sorted(wanted.items()):
        topic, number = partition
        if partition not in ends:
            raise CommandError(f"partition {number} of {topic} has no leader; try again later")
        if offset > ends[partition]:
            raise CommandError(
                f"cannot delete before offset {offset} of {topic}-{number}: it ends at "
                f"{ends[partition]}"
            )
        first = firsts[partition]
        new = ends[partition] if offset == _END else max(first, offset)
        planned.append(PartitionDeletion(topic, number, first, new, None))
    return planned


def _deleted(cluster: ClusterClient, planned: list[PartitionDeletion]) -> list[PartitionDeletion]:
    answers = cluster.admin.delete_records(
        [
            RdTopicPartition(each.topic, each.partition, each.new_earliest_offset)
            for each in planned
        ],
        request_timeout=cluster.timeout_s,
        operation_timeout=cluster.timeout_s,
    )
    by_partition = {(each.topic, each.partition): answer for each, answer in answers.items()}
    done = []
    for each in planned:
        answer = by_partition[each.topic, each.partition]
        refusal = cluster.refusal_of(answer, _DOUBT)
        if refusal is None:
            first = int(answer.result().low_watermark)
            done.append(msgspec.structs.replace(each, new_earliest_offset=first))
        else:
            done.append(
                msgspec.structs.replace(
                    each, new_earliest_offset=each.earliest_offset, error=error_text(refusal)
                )
            )
    return done


def _print_report(report: RecordDeletionReport, json: bool) -> None:
    if json:
        print_json(report)
    else:
        print_table(
            ["TOPIC", "PARTITION", "EARLIEST", "NEW-EARLIEST"],
            [
                (each.topic, each.partition, each.earliest_offset, each.new_earliest_offset)
                for each in report.partitions
            ],
        )
    total = count(
        sum(each.new_earliest_offset - each.earliest_offset for each in report.partitions), "offset"
    )
    note(
        f"deleted the records at {total}"
        if report.executed
        else f"dry run: would delete the records at {total}"
    )
    failed = [each for each in report.partitions if each.error is not None]
    if failed:
        raise CommandError(
            "; ".join(
                f"records of {each.topic}-{each.partition} were not deleted: {each.error}"
                for each in failed
            )
        )
