"""Ask the questions: ``python -m bench [NAME...]``."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.figures import Figure, table_of
from bench.machine import Busyness, describe, fdatasync_time
from bench.page import table, update

QUESTIONS = (
    "heartbeats",
    "groups",
    "topics",
    "commits",
    "start",
    "records",
    "consume",
    "assignors",
    "rolling",
    "spark",
)


def main() -> None:
    """Print a table a question; nothing is asserted."""
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="NAME", help=", ".join(QUESTIONS))
    arguments.add_argument("--quick", action="store_true", help="small and short: do they work?")
    arguments.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments.add_argument("--page", type=Path, metavar="FILE", help="put the tables into a page")
    chosen = arguments.parse_args()
    unknown = set(chosen.names) - set(QUESTIONS)
    if unknown:
        arguments.error(f"no such question: {', '.join(sorted(unknown))}")
    console = Console(width=None if Console().is_terminal else 150)
    sync = fdatasync_time()
    machine = f"{describe()}; {sync}"
    console.print(machine, highlight=False)
    answers: dict[str, Any] = {}
    tables: dict[str, str] = {}
    told = {"machine": machine, "fdatasync_ms": sync._asdict(), "questions": answers}
    for name in chosen.names or QUESTIONS:
        question = importlib.import_module(f"bench.{name}")
        busyness, began = Busyness(), time.monotonic()
        figures: list[Figure] = list(
            question.ask(is_quick=chosen.quick, with_kafka=not chosen.no_kafka)
        )
        console.print()
        if figures:
            console.print(table_of(question.TITLE, figures))
        story = f"{time.monotonic() - began:.0f} s; {busyness}"
        console.print(f"[dim]{name}: {story}[/dim]", highlight=False)
        tables[name] = table(figures, story)
        answers[name] = {"busy": story, "figures": [f.as_json() for f in figures]}
        if chosen.page and hasattr(question, "draw"):
            question.draw(chosen.page.parent)
        if chosen.json:
            chosen.json.write_text(json.dumps(told, indent=2))
    if chosen.page:
        update(chosen.page, machine, tables)


if __name__ == "__main__":
    main()
