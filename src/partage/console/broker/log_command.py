"""``partage log``: repair the log files of a stopped broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from partage.broker.topics.data_directory import DirectoryLock, DirectoryLockedError
from partage.broker.topics.real_disk import RealDisk
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError
from partage.console.common.options import JsonOption
from partage.console.common.output import json_help, print_json
from partage.log.errors import DamagedFileError
from partage.log.recovery.torn_tail import Truncation
from partage.log.recovery.truncation import TruncationError, truncate_log

app = command_app()


class LogCutReport(msgspec.Struct, frozen=True, kw_only=True):
    """Output of ``partage log cut --json``, the last segment first. Lengths are in bytes.

    ``kept_in`` is the file with the removed bytes; null if all of them were zero.
    """

    truncations: list[Truncation]


@app.command(epilog=json_help(LogCutReport))
def cut(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Segment file, relative to the data directory.")
    ],
    at: Annotated[
        int,
        typer.Option("--at", metavar="POSITION", help="Byte position at which the log will end."),
    ],
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="The broker's data directory.")
    ] = Path("partage-data"),
    json: JsonOption = False,
) -> None:
    """Truncate a damaged log at a position. The removed part is kept beside it.

    The broker names the file and the position in its error message.
    """
    if not data_dir.is_dir():
        raise CommandError(f"no such data directory: {data_dir}; set --data-dir")
    try:
        lock = DirectoryLock(data_dir)
    except (DirectoryLockedError, OSError) as error:
        raise CommandError(str(error)) from None
    try:
        cuts = truncate_log(RealDisk(data_dir), path, at)
    except (TruncationError, DamagedFileError, OSError) as error:
        raise CommandError(str(error)) from None
    finally:
        lock.release()
    if json:
        print_json(LogCutReport(truncations=cuts))
        return
    for done in cuts:
        print(done)
