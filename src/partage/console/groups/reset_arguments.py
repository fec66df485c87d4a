"""Parsing of the arguments of ``partage groups reset-offsets``: durations and files."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from partage.console.common.errors import CommandError, usage_error
from partage.model.topic_partition import TopicPartition

_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
_OFFSET_MAX: Final = 2**63 - 1


def parse_duration(text: str) -> int:
    """Return an ISO 8601 duration in ms.

    Raises:
        CommandError: The text is not a duration.
    """
    matched = _DURATION.fullmatch(text)
    if matched is None or not any(matched.groups()):
        raise usage_error(
            f"invalid --by-duration {text!r}; use PnDTnHnMnS, for example P1D or PT2H30M"
        )
    days, hours, minutes, seconds = (float(each or 0) for each in matched.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def read_offsets_file(path: Path, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets of a file that ``--export`` wrote, by group.

    Lines are TOPIC,PARTITION,OFFSET for one group, and GROUP,TOPIC,PARTITION,OFFSET for several.
    Lines of other groups are ignored.

    Raises:
        CommandError: The file cannot be read, a line has another form, or no line matches.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"cannot read --from-file {path}: {error}") from error
    found: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
    for number, cells in enumerate(lines, 1):
        row = [cell.strip() for cell in cells]
        if not any(row):
            continue
        if len(row) == 3 and len(groups) == 1:
            row = [groups[0], *row]
        if len(row) != 4 or not all(re.fullmatch(r"[0-9]{1,19}", each) for each in row[2:]):
            wanted = (
                "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else "GROUP,TOPIC,PARTITION,OFFSET"
            )
            raise CommandError(f"line {number} of {path} must be {wanted}, not {','.join(cells)!r}")
        if row[0] in found:
            found[row[0]][TopicPartition(row[1], int(row[2]))] = min(int(row[3]), _OFFSET_MAX)
    if not any(found.values()):
        raise CommandError(f"{path} has no offsets for {', '.join(groups)}")
    return found


def to_csv(plans: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    """Return the lines that `read_offsets_file` reads."""
    return [
        ",".join([*([group] if len(plans) > 1 else []), topic, str(partition), str(offset)])
        for group, plan in plans.items()
        for (topic, partition), offset in plan.items()
    ]
