"""Options that the Spark pipelines share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from partage.console.common.connection import BOOTSTRAP_VARIABLE
from partage.console.common.errors import usage_error
from partage.console.common.pairs import parse_pairs

#: Limit of options in seconds: more than thirty years.
SECONDS_MAX: Final = 1e9


TriggerIntervalOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.1,
        max=SECONDS_MAX,
        help="Trigger interval; each trigger writes new files.",
    ),
]
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="Broker of the cluster, or a comma-separated list of brokers.",
    ),
]
SourceOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Source option, for example maxOffsetsPerTrigger=1000 or "
        "kafka.security.protocol=SSL; repeatable.",
    ),
]
MasterOption = Annotated[str, typer.Option(metavar="URL", help="Spark master.")]
SparkConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; repeatable."),
]

#: Source options that the pipelines set themselves.
_OURS = {"kafka.bootstrap.servers", "kafka.group.id", "subscribe", "columns", "includeheaders"}


def source_options(given: list[str] | None, *ours: str) -> dict[str, str]:
    """Return the source options from ``--option``.

    Args:
        given: NAME=VALUE texts.
        ours: More options that the pipeline sets itself, in lower case.

    Raises:
        CommandError: A text is not NAME=VALUE, or the pipeline sets this option itself.
    """
    found = parse_pairs(given or [], "--option")
    for name in found:
        if name.lower() in _OURS.union(ours):
            raise usage_error(f"--option {name} cannot be set: the pipeline sets it")
    return found
