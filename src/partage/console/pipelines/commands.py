"""``partage pipeline``: the application. Each pipeline is a separate module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from partage.console.common.dispatch import LazyCommands, command_app


class PipelineCommands(LazyCommands):
    """Pipeline commands by name, imported when they are used."""

    targets: ClassVar[Mapping[str, str]] = {
        "archive": "partage.console.pipelines.archive:app",
        "join": "partage.console.pipelines.join:app",
        "index": "partage.console.pipelines.index:app",
        "rebalances": "partage.console.pipelines.rebalances:app",
    }


SUMMARY = "Run complete jobs, most of them on Spark, with exactly-once results."

app = command_app(SUMMARY, cls=PipelineCommands)


@app.callback()
def root() -> None:
    """Run complete jobs, most of them on Spark, with exactly-once results."""
