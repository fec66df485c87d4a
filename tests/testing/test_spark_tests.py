"""``pytest --worlds N --spark``."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.testing.world.spark_tests import SeedRange, run_seeds, split_seeds

pytest_plugins = ["pytester"]

TESTS = """
async def test_seed(partage_world):
    assert partage_world.seed != 13


def test_other():
    pass
"""


def test_consecutive_seeds_of_a_test_share_tasks() -> None:
    seeds = [("one", seed) for seed in range(1, 13)] + [("two", 13), ("two", 20)]
    assert split_seeds(seeds) == [
        SeedRange("one", 1, 10),
        SeedRange("one", 11, 2),
        SeedRange("two", 13, 1),
        SeedRange("two", 20, 1),
    ]


@pytest.mark.slow
def test_task_without_the_test_files_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"the executors need the test files at this path:"):
        run_seeds(SeedRange("test_missing.py::test_it", 1, 2), str(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_worlds_run_on_spark_and_other_tests_here(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "no:xdist", "--spark", "--worlds=3", "--world-seed=12"
    )
    result.assert_outcomes(passed=3, failed=1)
    assert "--world-seed 13" in result.stdout.str()


def test_spark_and_processes_exclude_each_other(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--spark", "-n", "2")
    assert "--spark cannot be combined with -n" in result.stderr.str() + result.stdout.str()
