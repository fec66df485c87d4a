"""Run the benchmarks: ``python -m bench [NAME...]``."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.figures import Figure, table_of
from bench.machine import MachineLoad, describe, fdatasync_time
from bench.page import table, update

BENCHMARKS = (
    "heartbeats",
    "groups",
    "consumer_groups",
    "topics",
    "commits",
    "cores",
    "transactions",
    "start",
    "records",
    "consume",
    "assignors",
    "coordinators",
    "rolling",
    "spark",
    "worlds",
)


def main() -> None:
    """Run the benchmarks and print one table for each. No figure is checked."""
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    arguments.add_argument("--quick", action="store_true", help="small and short: do they work?")
    arguments.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments.add_argument("--page", type=Path, metavar="FILE", help="put the tables into a page")
    chosen = arguments.parse_args()
    unknown = set(chosen.names) - set(BENCHMARKS)
    if unknown:
        arguments.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    console = Console(width=None if Console().is_terminal else 150)
    sync = fdatasync_time()
    machine = f"{describe()}; {sync}"
    console.print(machine, highlight=False)
    results: dict[str, Any] = {}
    tables: dict[str, str] = {}
    report = {"machine": machine, "fdatasync_ms": sync._asdict(), "questions": results}
    for name in chosen.names or BENCHMARKS:
        benchmark = importlib.import_module(f"bench.{name}")
        load, began = MachineLoad(), time.monotonic()
        figures: list[Figure] = list(
            benchmark.measure(is_quick=chosen.quick, with_kafka=not chosen.no_kafka)
        )
        console.print()
        if figures:
            console.print(table_of(benchmark.TITLE, figures))
        conditions = f"{machine}. {time.monotonic() - began:.0f} s; {load}"
        console.print(f"[dim]{name}: {conditions}[/dim]", highlight=False)
        tables[name] = table(figures, conditions)
        results[name] = {"busy": conditions, "figures": [f.as_json() for f in figures]}
        if chosen.page and hasattr(benchmark, "draw"):
            benchmark.draw(chosen.page.parent)
        if chosen.json:
            chosen.json.write_text(json.dumps(report, indent=2))
    if chosen.page:
        update(chosen.page, tables)


if __name__ == "__main__":
    main()
