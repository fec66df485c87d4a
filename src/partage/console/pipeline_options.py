"""The options that pipelines share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from partage.console.failure import misused
from partage.console.options import BOOTSTRAP_VARIABLE, pairs

#: Thirty years and more.
SECONDS_MAX: Final = 1e9


Every = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.1,
        max=SECONDS_MAX,
        help="How often; each time makes new files.",
    ),
]
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="A broker of the cluster, or several with commas between.",
    ),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the source, such as maxOffsetsPerTrigger=1000 or "
        "kafka.security.protocol=SSL; may be given several times.",
    ),
]
Master = Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's."),
]

#: What a pipeline says itself.
_OURS = {"kafka.bootstrap.servers", "kafka.group.id", "subscribe", "columns", "includeheaders"}


def source_options(given: list[str] | None, *ours: str) -> dict[str, str]:
    """Those of ``--option``; ``ours`` are more that the pipeline says itself, in lower case.

    Raises:
        Failure: one is not NAME=VALUE, or is the pipeline's own to say.
    """
    found = pairs(given or [], "--option")
    for name in found:
        if name.lower() in _OURS.union(ours):
            raise misused(f"--option {name} is set by the pipeline itself")
    return found
