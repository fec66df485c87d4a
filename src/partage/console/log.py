"""``partage log``: what to do about the files of a broker that is not running."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.broker.data_directory import DirectoryHeld, DirectoryLock
from partage.broker.disk import RealDisk
from partage.console.dispatch import command_app
from partage.console.failure import Failure
from partage.log.cutting import CannotCut, cut_log
from partage.log.damage import DamagedFile

app = command_app("Repair the files of a broker that is not running.")


@app.callback()
def root() -> None:
    """Repair the files of a broker that is not running."""


@app.command()
def cut(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A segment file, within the data directory.")
    ],
    at: Annotated[
        int, typer.Option("--at", metavar="POSITION", help="The byte at which the log is to end.")
    ],
    data_dir: Annotated[Path, typer.Option(help="The broker's data directory.")] = Path(
        "partage-data"
    ),
) -> None:
    """Give up the end of a damaged log. What is cut off is kept beside it.

    The broker that refuses a damaged log names the file and the position.
    """
    if not data_dir.is_dir():
        raise Failure(f"there is no directory {data_dir}; name the broker's with --data-dir")
    try:
        lock = DirectoryLock(data_dir)
    except (DirectoryHeld, OSError) as error:
        raise Failure(str(error)) from None
    try:
        cuts = cut_log(RealDisk(data_dir), path, at)
    except (CannotCut, DamagedFile, OSError) as error:
        raise Failure(str(error)) from None
    finally:
        lock.release()
    for done in cuts:
        print(done)
