"""``partage web``: a web page with groups, their lag and a timeline of their rebalances."""

from __future__ import annotations

from typing import Annotated

import typer

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import with_cluster
from partage.console.common.output import note
from partage.model.addresses import AddressParseError, parse_address

app = command_app()


@app.command("web")
@with_cluster()
def web(
    cluster: ClusterClient,
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port."),
    ] = "127.0.0.1:8080",
    interval_ms: Annotated[
        int,
        typer.Option("--interval-ms", metavar="MS", min=250, help="Polling interval."),
    ] = 2_000,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name",
            metavar="NAME",
            help="Host name that browsers may use for the page, besides localhost and IP "
            "addresses; repeatable.",
        ),
    ] = None,
) -> None:
    """Serve a web page with groups, members, lag and rebalances, until Ctrl-C.

    The address is printed when the server is ready. The page is read-only and has no login: every
    client that can connect sees all groups.

    \b
    Examples:
      partage web
      partage web --bootstrap-server kafka-1:9092 --listen 127.0.0.1:9000
    """
    from partage.console.web.snapshot_source import ClusterSnapshotSource
    from partage.web.app import WebOptions, application
    from partage.web.server import BindError, bind_socket, is_loopback, serve, url_of

    try:
        listener = bind_socket(*parse_address(listen))
    except AddressParseError as error:
        raise usage_error(f"--listen: {error}") from error
    except BindError as error:
        raise CommandError(
            f"cannot listen on {listen}: {error}; choose another address with --listen"
        ) from None
    if not is_loopback(listener):
        note(
            f"warning: {listen} is reachable from other machines, and the page has no login: "
            "every client that can connect sees all groups"
        )
    options = WebOptions(
        servers=cluster.bootstrap_servers,
        interval_ms=interval_ms,
        host_names=[name.lower() for name in host_name or []],
    )
    pages = application(ClusterSnapshotSource(cluster), options)
    serve(pages, listener, lambda: print(url_of(listener), flush=True))
