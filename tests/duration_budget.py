"""The options ``--check-durations`` and ``--write-durations``: a budget of seconds per test folder.

The duration of a folder is the sum over its tests: setup, call and teardown. ``durations.toml``
has the budgets for a machine with two idle cores. On a slower or busy machine each budget grows
in proportion to the time of a reference loop.
"""

from __future__ import annotations

import math
import time
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
BUDGETS = TESTS / "durations.toml"
#: A folder fails the session above its budget times this.
TOLERANCE = 1.5
#: A budget that ``--write-durations`` writes is the measured time times this, and one more second.
_MARGIN = 1.2
_REFERENCE_ROUNDS = 2_000_000

_HEADER = """\
# Seconds of tests per folder, in three processes on two idle cores: the sum of setup, call and
# teardown of the tests of `make test`. A session fails if a folder needs half as much again. Write
# this file with `make durations`.

"""


def folder_of(nodeid: str) -> str:
    """Return the folder below tests/ of a test, or "." for a test outside of a folder."""
    parts = nodeid.split("::")[0].split("/")
    return parts[1] if len(parts) > 2 and parts[0] == TESTS.name else "."


def time_reference() -> float:
    """Return the seconds that a fixed pure-Python loop takes."""
    start = time.perf_counter()
    total = 0
    for number in range(_REFERENCE_ROUNDS):
        total += number & 7
    assert total
    return time.perf_counter() - start


def excess_folders(
    seconds: dict[str, float], budgets: dict[str, float], scale: float
) -> dict[str, float]:
    """Return the seconds of each folder that exceeds its budget by half.

    Args:
        seconds: The measured seconds of each folder.
        budgets: The budget of each folder. A folder without a budget exceeds it always.
        scale: The slowness of this machine, relative to the reference machine.
    """
    return {
        folder: spent
        for folder, spent in seconds.items()
        if spent > budgets.get(folder, 0.0) * max(scale, 1.0) * TOLERANCE
    }


def format_budgets(folders: Mapping[str, float], reference_s: float) -> str:
    """Return the contents of the budget file."""
    lines = [f"{_toml_key(name)} = {folders[name]:g}" for name in sorted(folders)]
    return f"{_HEADER}reference_s = {reference_s:.3f}\n\n[folders]\n" + "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'


class DurationBudget:
    """A plugin for the process that collects the reports: the controller, under xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_check = config.getoption("check_durations")
        self._is_write = config.getoption("write_durations")
        self._seconds: dict[str, float] = {}
        self._tests: Counter[str] = Counter()
        self._reference_s = 0.0
        self._lines: list[str] = []

    def pytest_sessionstart(self) -> None:
        self._reference_s = time_reference()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = folder_of(report.nodeid)
        self._seconds[folder] = self._seconds.get(folder, 0.0) + report.duration
        if report.when == "call":
            self._tests[folder] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        end_s = time_reference()
        if self._is_write:
            self._write_budgets(min(self._reference_s, end_s))
        stored = tomllib.loads(BUDGETS.read_text())
        budgets = stored["folders"]
        scale = max(1.0, max(self._reference_s, end_s) / stored["reference_s"])
        excess = excess_folders(self._seconds, budgets, scale)
        self._lines = self._table(budgets, scale, excess)
        if self._is_check and excess and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("duration of test folders")
        for line in self._lines:
            terminalreporter.line(line)

    def _write_budgets(self, reference_s: float) -> None:
        """Write budgets for the folders that ran. Keep those of other folders that still exist."""
        old = tomllib.loads(BUDGETS.read_text())["folders"] if BUDGETS.exists() else {}
        kept = {name: budget for name, budget in old.items() if (TESTS / name).is_dir()}
        new = {name: math.ceil(s * _MARGIN) + 1 for name, s in self._seconds.items()}
        BUDGETS.write_text(format_budgets(kept | new, reference_s))

    def _table(
        self, budgets: dict[str, float], scale: float, excess: dict[str, float]
    ) -> list[str]:
        lines = [f"{'folder':<14} {'tests':>6} {'seconds':>9} {'budget':>9}"]
        for folder in sorted(self._seconds):
            budget = budgets.get(folder, 0.0) * scale
            note = "  EXCEEDED" if folder in excess else ""
            tests, spent = self._tests[folder], self._seconds[folder]
            lines.append(f"{folder:<14} {tests:>6} {spent:>9.1f} {budget:>9.1f}{note}")
        lines.append(
            f"The reference loop took {scale:.2f} times its reference time; budgets are scaled."
        )
        if excess:
            names = ", ".join(sorted(excess))
            lines.append(
                f"Too slow: {names}. Make the tests faster, mark them `slow`, or raise the budget "
                f"in tests/{BUDGETS.name}."
            )
        return lines
