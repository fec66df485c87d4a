"""The workers of docs/your-code.md: a world finds each bug, and the correct one passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from page_examples import PAGES, examples_of

(PAGE,) = [path for path in PAGES if path.name == "your-code.md"]
BLOCKS = [
    each.code for each in examples_of(PAGE.read_text(), PAGE.name) if each.language == "python"
]
BUGS = [code for code in BLOCKS if "async def work(" in code and "async def test_" not in code]
(TEST,) = [code for code in BLOCKS if "async def test_each_order_is_saved" in code]


def run_worlds(directory: Path, code: str, count: int) -> subprocess.CompletedProcess[str]:
    (directory / "test_orders.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider"]
    options = [f"--rootdir={directory}", f"--basetemp={directory / 'worlds'}", f"--worlds={count}"]
    return subprocess.run(
        [*command, *options, "test_orders.py"], cwd=directory, capture_output=True, text=True
    )


def test_page_has_three_workers_with_bugs() -> None:
    assert len(BUGS) == 3


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("number", range(3))
def test_bug_of_the_page_is_found_within_100_seeds(number: int, tmp_path: Path) -> None:
    done = run_worlds(tmp_path, f"{TEST}\n\n{BUGS[number]}", 100)
    assert "each_order_is_saved did not hold" in done.stdout, done.stdout[-2_000:] + done.stderr


@pytest.mark.slow
def test_correct_worker_of_the_page_passes_150_seeds(tmp_path: Path) -> None:
    check_correct_worker(tmp_path, 150)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_correct_worker_of_the_page_passes_1000_seeds(tmp_path: Path) -> None:
    check_correct_worker(tmp_path, 1_000)


def check_correct_worker(directory: Path, seeds: int) -> None:
    done = run_worlds(directory, TEST, seeds)
    assert f"{seeds} passed" in done.stdout, done.stdout[-4_000:] + done.stderr
