"""Options of the whole test suite."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duration_budget import DurationBudget
from io_guard import IoGuard

#: Examples are the same in each run, and take as long as a busy machine takes; see ``log/pace.py``.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=os.environ.get("PARTAGE_PROPERTIES") != "long",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


class GroupSuffixRemover:
    """Removes ``@group``, which pytest-xdist appends to names of tests.

    ``--last-failed`` would not find these tests in a run with one process.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name, _, group = report.nodeid.rpartition("@")
        if name and "]" not in group:
            report.nodeid = name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what happens into the scenario files, to be reviewed as a diff",
    )
    parser.addoption(
        "--forbid-io",
        action="store_true",
        help="fail each test that connects or binds a socket, starts a process or sleeps",
    )
    parser.addoption(
        "--check-durations",
        action="store_true",
        help="fail if the tests of a folder exceed its budget in tests/durations.toml by half",
    )
    parser.addoption(
        "--write-durations",
        action="store_true",
        help="write the budgets in tests/durations.toml from this run",
    )
    parser.addoption(
        "--durations-run",
        metavar="NAME",
        help="also check or write the wall time of the run; tests/durations.toml has its limit",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and child processes would inherit that.
    # Tests interrupt child processes.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("forbid_io"):
        config.pluginmanager.register(IoGuard())
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(GroupSuffixRemover())
    if not is_worker and (
        config.getoption("check_durations") or config.getoption("write_durations")
    ):
        config.pluginmanager.register(DurationBudget(config))


@given(st.none())
def register_random_generator(_: None) -> None:
    """Run an empty property, for which Hypothesis registers its random generator.

    It then checks that an object tracked by the garbage collector refers to the generator. On
    Python 3.14 it finds none after ``gc.freeze()``, and warns.
    """


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the collected modules and tests from garbage collection.

    They exist until the end of the session. Without this, each of many full collections during the
    tests would visit more than a million objects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        register_random_generator()
        gc.freeze()
