"""The options ``--check-durations`` and ``--write-durations``: budgets of seconds.

The duration of a folder is the sum over its tests: setup, call and teardown. With
``--durations-run NAME``, the wall time of the whole run has a limit, too; ``unit`` has only this
limit. ``durations.toml`` has the budgets and limits for a machine with two idle cores. On a slower
or busy machine they grow in proportion to the time of a reference loop, and the limits of runs also
with the load of the machine: a loop of a moment misses other programs that run for minutes.
"""

from __future__ import annotations

import math
import os
import time
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
BUDGETS = TESTS / "durations.toml"
#: The run whose tests the budgets of the folders are for; see the Makefile.
FOLDER_RUN = "test"
#: A run fails the session above its limit times this, and a folder above its budget times this
#: plus ``SHARED_START_S``.
TOLERANCE = 1.5
#: Seconds that a folder may need besides. The first test that uses a shared Spark session, a JVM or
#: a cold file cache pays for it, so these seconds move between folders from run to run.
SHARED_START_S = 20.0
#: A budget that ``--write-durations`` writes is the measured time times this, and one more second.
_MARGIN = 1.2
_REFERENCE_ROUNDS = 2_000_000

_HEADER = """\
# Seconds of tests per folder, in three processes on two idle cores: the sum of setup, call and
# teardown of the tests of `make test`. `runs` has the limits of the wall time of `make test` and
# `make unit`, and the times of the last `make durations`, which writes this file. A session fails
# if a run needs half as much again as its limit, or a folder 20 s more than that of its budget.

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
    """Return the seconds of each folder that exceeds its budget by half and by ``SHARED_START_S``.

    Args:
        seconds: The measured seconds of each folder.
        budgets: The budget of each folder. A folder without a budget exceeds it always.
        scale: The slowness of this machine, relative to the reference machine.
    """
    return {
        folder: spent
        for folder, spent in seconds.items()
        if folder not in budgets
        or spent > (budgets[folder] * TOLERANCE + SHARED_START_S) * max(scale, 1.0)
    }


def is_run_too_slow(seconds: float, limit_s: float, scale: float) -> bool:
    """True if the wall time of a run exceeds its limit by half.

    Args:
        seconds: The measured seconds.
        limit_s: The limit of the run, on the reference machine.
        scale: The slowness of this machine, relative to the reference machine.
    """
    return seconds > limit_s * max(scale, 1.0) * TOLERANCE


def load_scale(load: float, processes: int, cores: int) -> float:
    """Return how many times longer a run takes because other programs use the cores.

    Args:
        load: The load average: the number of processes that ran or waited for a core.
        processes: The number of processes of the run.
        cores: The number of cores.
    """
    return max(1.0, load / max(processes, cores))


def format_budgets(
    folders: Mapping[str, float], reference_s: float, runs: Mapping[str, Mapping[str, float]]
) -> str:
    """Return the contents of the budget file."""
    lines = [f"{_HEADER}reference_s = {reference_s:.3f}", ""]
    for run in sorted(runs):
        values = [f"{key} = {value:g}" for key, value in sorted(runs[run].items())]
        lines += [f"[runs.{_toml_key(run)}]", *values, ""]
    lines += ["[folders]", *(f"{_toml_key(name)} = {folders[name]:g}" for name in sorted(folders))]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'


class DurationBudget:
    """A plugin for the process that collects the reports: the controller, under xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_check = config.getoption("check_durations")
        self._is_write = config.getoption("write_durations")
        self._run: str | None = config.getoption("durations_run")
        self._start_s = time.monotonic()
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
        wall_s = time.monotonic() - self._start_s
        end_s = time_reference()
        if self._is_write:
            self._write_budgets(min(self._reference_s, end_s), wall_s)
        stored = tomllib.loads(BUDGETS.read_text())
        scale = max(1.0, max(self._reference_s, end_s) / stored["reference_s"])
        is_too_slow = False
        if self._has_folders:
            budgets = stored["folders"]
            excess = excess_folders(self._seconds, budgets, scale)
            is_too_slow = bool(excess)
            self._lines = self._table(budgets, scale, excess)
        if self._run is not None:
            limit_s = stored["runs"][self._run]["limit_s"]
            processes = 1 + (session.config.getoption("numprocesses", None) or 0)
            load = max(os.getloadavg()[:2])
            run_scale = max(scale, load_scale(load, processes, os.cpu_count() or 1))
            is_run_slow = is_run_too_slow(wall_s, limit_s, run_scale)
            is_too_slow = is_too_slow or is_run_slow
            scaled_s = limit_s * run_scale
            self._lines.append(
                f"The run {self._run} took {wall_s:.0f} s. Its limit is {scaled_s:.0f} s."
                + ("  EXCEEDED by half" if is_run_slow else "")
            )
        if self._is_check and is_too_slow and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("durations of test folders and of the run")
        for line in self._lines:
            terminalreporter.line(line)

    @property
    def _has_folders(self) -> bool:
        return self._run in (None, FOLDER_RUN)

    def _write_budgets(self, reference_s: float, wall_s: float) -> None:
        """Write what the run measured. Keep budgets of other folders that exist, and other runs."""
        old = tomllib.loads(BUDGETS.read_text()) if BUDGETS.exists() else {}
        folders = {
            name: budget
            for name, budget in old.get("folders", {}).items()
            if (TESTS / name).is_dir()
        }
        runs = old.get("runs", {})
        if self._has_folders:
            folders |= {name: math.ceil(s * _MARGIN) + 1 for name, s in self._seconds.items()}
        else:
            reference_s = old["reference_s"]
        if self._run is not None:
            runs[self._run]["recorded_s"] = round(wall_s)
        BUDGETS.write_text(format_budgets(folders, reference_s, runs))

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
