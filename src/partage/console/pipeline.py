"""``partage pipeline``: the application; each pipeline is a module of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from partage.console.dispatch import LazyCommands, command_app


class Pipelines(LazyCommands):
    """The pipelines, and where the command of each is found."""

    targets: ClassVar[Mapping[str, str]] = {
        "archive": "partage.console.pipeline_archive:app",
        "join": "partage.console.pipeline_join:app",
        "index": "partage.console.pipeline_index:app",
        "rebalances": "partage.console.pipeline_rebalances:app",
    }


SUMMARY = "Run whole jobs, most on Spark, each of which ends with exactly its records."

app = command_app(SUMMARY, cls=Pipelines)


@app.callback()
def root() -> None:
    """Run whole jobs, most on Spark, each of which ends with exactly its records."""
