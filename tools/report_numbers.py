"""Print the measurable properties of the code base beside their limits.

    python tools/report_numbers.py

It exits with 1 if a number exceeds its limit. `make test` and `make unit` measure durations; this
table shows the budgets that they enforce, and the times that `make durations` has recorded.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import check_cycles
import check_english
import check_names

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "partage"
#: Test files whose sleeps are those of simulated worlds: they take no time.
VIRTUAL_TIME = {
    "cluster_worlds.py",
    "idempotent_produce.py",
    "local_state_consumer.py",
    "raw_producer.py",
    "simple_produce.py",
    "test_aiokafka_examples.py",
    "test_broker_process.py",
    "test_election_in_world.py",
    "test_found.py",
    "test_idle_polls.py",
    "test_run_page.py",
    "test_recipe_worlds.py",
    "test_shell_worlds.py",
    "test_torn_transactions.py",
    "test_transaction_version_2_failures.py",
    "test_whatif_consumer.py",
    "test_world_arguments.py",
    "test_world_cluster.py",
    "test_world_failover.py",
    "test_world_loop.py",
    "test_world_plugin.py",
    "test_world_rules.py",
    "user_workers.py",
    "world_group_client.py",
}
TESTS = ROOT / "tests"


@dataclass(frozen=True, slots=True)
class Number:
    """A property with its limit.

    Attributes:
        value: None if it was not measured yet, which is no error.
        is_minimum: True if smaller values are wrong.
        tolerance: The limit is broken above this multiple of it.
    """

    name: str
    value: int | None
    limit: int
    is_minimum: bool = False
    tolerance: float = 1.0

    @property
    def is_met(self) -> bool:
        """True if the value keeps its limit."""
        if self.value is None:
            return True
        if self.is_minimum:
            return self.value >= self.limit
        return self.value <= self.limit * self.tolerance

    @property
    def note(self) -> str:
        """Words for the reader, after the limit."""
        if self.value is None:
            return "  not measured; run `make durations` on an idle machine"
        if not self.is_met:
            return "  NOT MET"
        return "  above the limit" if self.value > self.limit and not self.is_minimum else ""


def numbers() -> list[Number]:
    """Measure every property."""
    english = [line for path in check_english.tracked() for line in _english_findings(path)]
    openers = sum("docstring opens with" in line for line in english)
    sources = {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    tests = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    cycles = check_cycles.strongly_connected(
        check_cycles.import_graph(check_cycles.SOURCE / check_cycles.ROOT)
    )
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    tasks = (ROOT / "docs" / "contributing.md").read_text()
    durations = tomllib.loads((TESTS / "durations.toml").read_text())
    return [
        Number("docstrings that open with a noun clause", openers, 50),
        Number("banned phrases", len(english) - openers, 0),
        Number("modules named by a gerund", sum(path.stem.endswith("ing") for path in sources), 2),
        Number(
            "class names in several modules",
            _shared_class_names(sources.values()),
            len(check_names.SHARED_NAMES),
        ),
        Number(
            "exceptions that do not end in Error", sum("N818" in s for s in sources.values()), 0
        ),
        Number("import cycles", len(cycles), 0),
        Number(
            "lines of the longest module", max(len(s.splitlines()) for s in sources.values()), 600
        ),
        Number("concepts in the glossary", len(re.findall(r"^\| ", glossary, re.M)) - 1, 80, True),
        Number("tasks with a file to open", _table_rows(tasks, "| task | file |"), 20, True),
        # Three of them are in processes that send requests to Apache Kafka again.
        Number(
            "sleeps in tests",
            sum(_sleeps(source) for path, source in tests.items() if path.name not in VIRTUAL_TIME),
            44,
        ),
        Number(
            "budget of `make test` in seconds of tests", sum(durations["folders"].values()), 1100
        ),
        *(
            # Machines differ, so the limit is broken when it is exceeded by half, as in the run.
            Number(
                f"wall seconds of `make {run}`, as recorded",
                times.get("recorded_s"),
                times["limit_s"],
                tolerance=1.5,
            )
            for run, times in durations["runs"].items()
        ),
    ]


def _english_findings(path: Path) -> list[str]:
    return list(check_english.findings(path)) if path.exists() else []


def _shared_class_names(sources: Iterable[str]) -> int:
    counts = Counter(
        node.name
        for source in sources
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sum(count > 1 for count in counts.values())


def _table_rows(page: str, header: str) -> int:
    rows = page[page.index(header) :].split("\n\n")[0].splitlines()
    return len(rows) - 2


def _sleeps(source: str) -> int:
    """Count calls of `sleep` that really wait: not `sleep(0)`."""
    return sum(
        isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) == "sleep"
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
        for node in ast.walk(ast.parse(source))
    )


def main() -> int:
    """Print the table and return the exit code."""
    measured = numbers()
    width = max(len(number.name) for number in measured)
    for number in measured:
        bound = "at least" if number.is_minimum else "at most"
        value = "-" if number.value is None else number.value
        print(f"{number.name:<{width}} {value:>6}  {bound} {number.limit}{number.note}")
    return 0 if all(number.is_met for number in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
