"""Run the benchmarks: ``python -m bench [NAME...]``."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import BENCHMARKS
from bench.committed import COMMITTED, MeasuredTable, compare, load, save, slower_table
from bench.figures import Figure, table_of
from bench.machine import MachineLoad, describe, fdatasync_time, interpreter_time
from bench.page import table, update


def main() -> None:
    """Run the benchmarks and print one table for each.

    No figure is checked. Rows that are slower than the committed ones are printed, except with
    ``--quick``, whose rounds are too short, and with ``--page``, which replaces them.
    """
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    arguments.add_argument("--quick", action="store_true", help="small and short: do they work?")
    arguments.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="put the tables into a page, and the figures into the JSON file beside it",
    )
    chosen = arguments.parse_args()
    if chosen.quick and chosen.page:
        arguments.error("--quick cannot be combined with --page: its figures are not comparable")
    unknown = set(chosen.names) - set(BENCHMARKS)
    if unknown:
        arguments.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    console = Console(width=None if Console().is_terminal else 150)
    sync = fdatasync_time()
    description = describe()
    loop = f"2,000,000 steps of a loop in Python: {interpreter_time():.3f} s"
    machine = f"{description}; {sync}; {loop}"
    console.print(machine, highlight=False)
    results: dict[str, Any] = {}
    measured: dict[str, MeasuredTable] = {}
    report = {"machine": machine, "fdatasync_ms": sync._asdict(), "questions": results}
    for name in chosen.names or BENCHMARKS:
        benchmark = importlib.import_module(f"bench.{name}")
        machine_load, began = MachineLoad(), time.monotonic()
        figures: list[Figure] = list(
            benchmark.measure(is_quick=chosen.quick, with_kafka=not chosen.no_kafka)
        )
        console.print()
        if figures:
            console.print(table_of(benchmark.TITLE, figures))
        conditions = f"{machine}. {time.monotonic() - began:.0f} s; {machine_load}"
        console.print(f"[dim]{name}: {conditions}[/dim]", highlight=False)
        measured[name] = MeasuredTable(machine=description, figures=tuple(figures))
        results[name] = {"busy": conditions, "figures": [f.as_json() for f in figures]}
        if chosen.page:  # at once: a run takes more than an hour
            update(chosen.page, {name: table(figures, conditions)})
            save(chosen.page.with_suffix(".json"), {name: measured[name]})
            if hasattr(benchmark, "draw"):
                benchmark.draw(chosen.page.parent)
        if chosen.json:
            chosen.json.write_text(json.dumps(report, indent=2))
    if not (chosen.page or chosen.quick):
        committed = load(COMMITTED)
        console.print()
        console.print(
            slower_table(
                {
                    name: compare(committed[name], now)
                    for name, now in measured.items()
                    if name in committed
                }
            )
        )


if __name__ == "__main__":
    main()
