"""What a command prints, again and again, until Ctrl-C."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Annotated, Final

import typer

from partage.console.cluster import Cluster
from partage.console.failure import Failure

Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")
]
Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.05, help="How often, with --watch.")
]
EVERY_S: Final = 2.0


def watch(cluster: Cluster, show: Callable[[], None], every_s: float) -> None:
    """Have ``show`` print every ``every_s`` seconds, on a terminal in the same place.

    A cluster that is lost in between is said, and asked again: it may be what somebody watches
    for. What fails at first fails as it would without watching.
    """
    text = _shown(show)
    try:
        if sys.stdout.isatty():
            _live(cluster, text, show, every_s)
        else:
            while True:
                print(text, end="\n\n", flush=True)
                time.sleep(every_s)
                text = _again(cluster, show)
    except KeyboardInterrupt:
        return


def _live(cluster: Cluster, text: str, show: Callable[[], None], every_s: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def drawn(text: str) -> Text:
        return Text(text, no_wrap=True, overflow="ellipsis")

    with Live(drawn(text), console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            live.refresh()
            time.sleep(every_s)
            live.update(drawn(_again(cluster, show)))


def _again(cluster: Cluster, show: Callable[[], None]) -> str:
    # librdkafka goes on asking a coordinator that it has found, also once it no longer is one.
    cluster.begin_anew()
    try:
        return _shown(show)
    except Failure as failure:
        return f"error: {failure.message}"


def _shown(show: Callable[[], None]) -> str:
    """What it prints and notes, in lines of any length: whoever draws them cuts them."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        show()
    return out.getvalue().rstrip("\n")
