"""``partage web``: groups, their lag and a timeline of their rebalances, in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from partage.console.addresses import BadAddress, parse_address
from partage.console.cluster import Cluster
from partage.console.dispatch import command_app
from partage.console.failure import Failure, misused
from partage.console.options import with_cluster
from partage.console.show import note

app = command_app()


@app.command("web")
@with_cluster()
def web(
    cluster: Cluster,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 picks a free one.")
    ] = "127.0.0.1:8080",
    interval_ms: Annotated[
        int,
        typer.Option(
            "--interval-ms", metavar="MS", min=250, help="How often the cluster is asked."
        ),
    ] = 2_000,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name",
            metavar="NAME",
            help="A name under which browsers may ask for the page, beside localhost and "
            "addresses; may be given several times.",
        ),
    ] = None,
) -> None:
    """Serve a page with the groups, their members, lag and rebalances, until Ctrl-C.

    Its address is printed once browsers can ask for it. The page changes nothing, and has no login:
    whoever reaches it sees it.

    \b
    Examples:
      partage web
      partage web --bootstrap-server kafka-1:9092 --listen 127.0.0.1:9000
    """
    try:
        from partage.web.app import WebOptions, application
        from partage.web.serving import CannotListen, is_loopback, listening, serve, url_of
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "partage":
            raise
        raise Failure(f"partage web needs {missing}: pip install 'partage[web]'") from None
    from partage.console.web_source import ClusterSource

    try:
        made = listening(*parse_address(listen))
    except BadAddress as error:
        raise misused(f"--listen: {error}") from error
    except CannotListen as error:
        raise Failure(f"cannot listen on {listen}: {error}; choose another with --listen") from None
    if not is_loopback(made):
        note(
            f"warning: {listen} can be reached from other machines, and the page has no login: "
            "whoever reaches it sees all groups"
        )
    options = WebOptions(
        servers=cluster.bootstrap_servers,
        interval_ms=interval_ms,
        host_names=[name.lower() for name in host_name or []],
    )
    pages = application(ClusterSource(cluster), options)
    serve(pages, made, lambda: print(url_of(made), flush=True))
