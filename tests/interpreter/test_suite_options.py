"""Options of the test suite: ``--forbid-io``, ``--check-durations``, ``--write-durations``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import duration_budget
import io_guard

TESTS = Path(__file__).parents[1]

FORBIDDEN = {
    "connect": "import socket; socket.socket().connect(('127.0.0.1', 1))",
    "bind": "import socket; socket.socket().bind(('127.0.0.1', 0))",
    "process": "import subprocess; subprocess.run(['true'])",
    "sleep": "import time; time.sleep(0.001)",
    "async_sleep": "import asyncio; asyncio.run(asyncio.sleep(0.001))",
    "uvloop": "import uvloop; uvloop.new_event_loop()",
    "hidden": """
    import time
    try:
        time.sleep(0.001)
    except BaseException:
        pass
""",
    "thread": """
    import threading, time
    thread = threading.Thread(target=time.sleep, args=(0.001,))
    thread.start(); thread.join()
""",
}
ALLOWED = {
    "file": "open(__file__).close()",
    "loop": "import asyncio; asyncio.run(asyncio.sleep(0))",
    "yield": "import time; time.sleep(0)",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return a directory with the options of the suite and no tests yet."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for file in (io_guard.__file__, duration_budget.__file__, str(TESTS / "conftest.py")):
        (tests / Path(file).name).write_text(Path(file).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options, "tests"]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=suite, env=env, capture_output=True, text=True, timeout=300)


def test_forbid_io_fails_tests_that_do_io(suite: Path) -> None:
    lines = [
        f"def test_{name}():\n    {body.strip()}\n" for name, body in (FORBIDDEN | ALLOWED).items()
    ]
    (suite / "tests" / "test_io.py").write_text("\n".join(lines))
    result = run(suite, "-W", "ignore", "--forbid-io")
    failed = re.findall(r"^FAILED \S+::test_(\w+)", result.stdout, re.MULTILINE)
    assert set(failed) == set(FORBIDDEN), result.stdout
    for what in ("connects a socket", "binds a socket", "starts a process", "sleeps for 0.001 s"):
        assert f"--forbid-io: the test {what} (" in result.stdout


def test_check_durations_fails_slow_folders(suite: Path) -> None:
    for folder, seconds in (("quick", 0), ("slow", 0.2)):
        (suite / "tests" / folder).mkdir()
        body = f"import time\n\ndef test_it():\n    time.sleep({seconds})\n"
        (suite / "tests" / folder / f"test_{folder}.py").write_text(body)
    budgets = suite / "tests" / "durations.toml"
    options = ("-p", "xdist", "-n", "1", "--check-durations")

    # Half as much again of this budget, and the 20 s for shared starts, are less than no time.
    budgets.write_text("reference_s = 1000\n[folders]\nquick = 1\nslow = -14\n")
    result = run(suite, *options)
    assert (result.returncode, "Too slow: slow." in result.stdout) == (1, True), result.stdout

    written = run(suite, *options, "--write-durations")
    assert written.returncode == 0, written.stdout
    assert tomllib.loads(budgets.read_text())["folders"] == {"quick": 2, "slow": 2}


def test_check_durations_fails_slow_run(suite: Path) -> None:
    """The limit of the run is checked without the budgets of folders, and the time is recorded."""
    (suite / "tests" / "unit").mkdir()
    (suite / "tests" / "unit" / "test_it.py").write_text("def test_it():\n    pass\n")
    budgets = suite / "tests" / "durations.toml"
    options = ("--durations-run", "unit", "--check-durations")
    start = "reference_s = 1000\n[folders]\nother = 1\n[runs.test]\nlimit_s = 9\n[runs.unit]\n"

    budgets.write_text(f"{start}limit_s = 0\n")
    result = run(suite, *options)
    assert (result.returncode, "EXCEEDED by half" in result.stdout) == (1, True), result.stdout

    budgets.write_text(f"{start}limit_s = 60\n")
    (suite / "tests" / "other").mkdir()
    written = run(suite, *options, "--write-durations")
    assert written.returncode == 0, written.stdout
    stored = tomllib.loads(budgets.read_text())
    assert stored["folders"] == {"other": 1}
    assert stored["reference_s"] == 1000
    assert stored["runs"]["test"] == {"limit_s": 9}
    assert stored["runs"]["unit"].keys() == {"limit_s", "recorded_s"}
    assert run(suite, *options).returncode == 0


def test_slow_machine_gets_longer_runs() -> None:
    assert not duration_budget.is_run_too_slow(134.0, 90.0, 1.0)
    assert duration_budget.is_run_too_slow(136.0, 90.0, 0.5)
    assert not duration_budget.is_run_too_slow(136.0, 90.0, 2.0)
    assert duration_budget.load_scale(3.5, processes=3, cores=4) == 1.0
    assert duration_budget.load_scale(3.0, processes=3, cores=2) == 1.0
    assert duration_budget.load_scale(7.5, processes=3, cores=2) == 2.5


def test_slow_machine_gets_larger_budgets() -> None:
    assert duration_budget.excess_folders({"a": 34.0}, {"a": 10.0}, 1.0) == {}
    assert duration_budget.excess_folders({"a": 36.0}, {"a": 10.0}, 1.0) == {"a": 36.0}
    assert duration_budget.excess_folders({"a": 36.0}, {"a": 10.0}, 2.0) == {}
    assert duration_budget.excess_folders({"a": 34.0}, {"a": 10.0}, 0.5) == {}
    assert duration_budget.excess_folders({"new": 0.1}, {}, 1.0) == {"new": 0.1}


def test_tests_of_a_group_run_in_one_process(suite: Path) -> None:
    text = """
import os

import pytest

@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("number", range(8))
def test_group(number):
    with open("processes", "a") as file:
        print(os.getpid(), file=file)
"""
    (suite / "tests" / "test_group.py").write_text(text)
    result = run(suite, "-p", "xdist", "-n", "2", "--dist", "loadgroup")
    assert "8 passed" in result.stdout, result.stdout
    processes = (suite / "processes").read_text().split()
    assert len(processes) == 8
    assert len(set(processes)) == 1


def test_failed_test_of_a_group_is_run_again(suite: Path) -> None:
    text = """
import pytest

@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("name", ["a", "b@c"])
def test_group(name):
    assert name == "a"
"""
    (suite / "tests" / "test_group.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "tests"]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for options, outcome in (
        (["-n", "2", "--dist", "loadgroup"], "1 failed, 1 passed"),
        (["--last-failed", "--last-failed-no-failures", "none"], "1 failed in"),
    ):
        ran = subprocess.run(
            command + options, cwd=suite, env=env, capture_output=True, text=True, timeout=300
        )
        assert outcome in ran.stdout, ran.stdout
