"""Repeated output of a command (``--watch``) until Ctrl-C."""

from __future__ import annotations

import io
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Annotated, Final

import typer

from partage.console.common.client_requests import prepare_next_poll
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.signals import InterruptingStopRequest, StopRequest
from partage.console.common.table import frame_width, output_width

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Refresh the output until Ctrl-C.")
]
WatchIntervalOption = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.05, help="Refresh interval of --watch.")
]
WATCH_INTERVAL_S: Final = 2.0


def watch(cluster: ClusterClient, show: Callable[[], None], every_s: float) -> None:
    """Call ``show`` every ``every_s`` seconds; on a terminal, redraw its output in place.

    Ctrl-C or SIGTERM ends this. An error of the first call ends the command. Later errors are
    shown, and the next call tries again.
    """
    with InterruptingStopRequest() as stop:
        try:
            text = _shown(show)
            # Later errors are shown, so that the output is never old for long.
            cluster.retry_timeout_ms = cluster.timeout_ms
            if sys.stdout.isatty():
                _live(cluster, text, show, every_s, stop)
            else:
                while not stop:
                    print(text, end="\n\n", flush=True)
                    time.sleep(every_s)
                    text = _again(cluster, show)
        except BaseException:
            if not stop:
                raise


def _live(
    cluster: ClusterClient,
    text: str,
    show: Callable[[], None],
    every_s: float,
    stop: StopRequest,
) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def drawn(text: str) -> Text:
        return Text(text, no_wrap=True, overflow="ellipsis")

    with Live(drawn(text), console=Console(highlight=False), auto_refresh=False) as live:
        while not stop:
            live.refresh()
            time.sleep(every_s)
            live.update(drawn(_again(cluster, show)))


def _again(cluster: ClusterClient, show: Callable[[], None]) -> str:
    prepare_next_poll(cluster)
    try:
        return _shown(show)
    except CommandError as failure:
        text = f"error: {failure.message}"
        width = output_width()
        return text if width is None else textwrap.fill(text, width, break_on_hyphens=False)


def _shown(show: Callable[[], None]) -> str:
    """Return the output of ``show`` (stdout and stderr), as wide as the terminal."""
    width = output_width()
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out), frame_width(width):
        show()
    return out.getvalue().rstrip("\n")
