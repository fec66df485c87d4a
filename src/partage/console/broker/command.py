"""``partage broker``: run a broker in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.broker.foreground_options import OPTION_HELP, ForegroundOptions, SyncMode
from partage.console.broker.quick_start import run_broker
from partage.console.common.dispatch import command_app

app = command_app()


@app.command("broker")
def run(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help=OPTION_HELP["listen"])
    ] = "127.0.0.1:9092",
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help=OPTION_HELP["data_dir"])
    ] = Path("partage-data"),
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help=OPTION_HELP["ephemeral"])] = False,
    sync: Annotated[SyncMode, typer.Option(help=OPTION_HELP["sync"])] = SyncMode.DISK,
    override: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help=OPTION_HELP["override"])
    ] = None,
    advertised: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help=OPTION_HELP["advertised"])
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option(metavar="N", help=OPTION_HELP["broker_id"])
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="zookeeper://HOST:PORT/PATH", help=OPTION_HELP["state"]),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help=OPTION_HELP["verbose"])] = False,
) -> None:
    """Run a broker for Kafka clients until Ctrl-C or SIGTERM."""
    options = ForegroundOptions(
        listen=listen,
        data_dir=data_dir,
        ephemeral=ephemeral,
        sync=sync,
        override=override or [],
        advertised=advertised,
        broker_id=broker_id,
        state=state,
        verbose=verbose,
    )
    run_broker(options)
