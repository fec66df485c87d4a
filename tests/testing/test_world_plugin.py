"""The fixture ``partage_world``: seeds, reports of failures, and repeatable stories."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from partage.testing.world import test_runner

pytest_plugins = ["pytester"]

#: A process that fails if it is paused for more than ten seconds.
PAUSED = """
import asyncio


async def test_pause_is_noticed(partage_world):
    world = partage_world

    async def tick():
        while True:
            before = world.elapsed_s
            await asyncio.sleep(1)
            assert world.elapsed_s < before + 10, "a long pause"

    world.process(tick, name="clock")
    world.draw_faults(20, within_s=100, targets=["clock", "broker-1"])
    await asyncio.sleep(200)
"""


def pages(output: str) -> set[str]:
    """Return the paths of the pages in a report; in CI, pytest's summary repeats the report."""
    return set(re.findall(r"The page that plays the run: (.+)", output))


@pytest.fixture
def run(pytester: pytest.Pytester):
    def run(text: str, *arguments: str, **outcomes: int) -> str:
        pytester.makepyfile(text)
        result = pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", "-p", "no:xdist", *arguments
        )
        result.assert_outcomes(**outcomes)
        return result.stdout.str()

    return run


def test_each_seed_is_a_test(run) -> None:
    test = "async def test_seed(partage_world):\n    assert partage_world.seed in (5, 6, 7)\n"
    output = run(test, "--worlds", "3", "--world-seed", "5", "-v", passed=3)
    assert "test_seed[world-7] PASSED" in output


def test_test_with_its_own_seeds_ignores_the_options(run) -> None:
    test = """
import pytest


@pytest.mark.parametrize("partage_world_seed", [12, 34], indirect=True)
async def test_seed(partage_world):
    assert partage_world.seed in (12, 34)
"""
    run(test, "--worlds", "5", passed=2)


def test_failure_has_story_smallest_plan_and_command(run) -> None:
    output = run(PAUSED, "--world-seed", "2", failed=1)
    assert "clock         paused for" in output
    assert "The smallest plan that fails: 1 of 20 faults" in output
    assert "test_pause_is_noticed' --world-seed 2" in output
    assert "a long pause" in output
    (path,) = pages(output)
    assert "AssertionError: a long pause" in Path(path).read_text()


def test_search_for_the_smallest_plan_ends(run, monkeypatch) -> None:
    monkeypatch.setattr(test_runner, "SEARCH_S", -1)
    output = run(PAUSED, "--world-seed", "2", failed=1)
    assert "The smallest plan found: 20 of 20 faults" in output
    assert "The search was given up after -1 s." in output


def test_failure_of_a_test_with_another_fixture_has_a_page(run) -> None:
    test = """
async def test_it(partage_world, tmp_path):
    await partage_world.create_topic("orders")
    assert tmp_path.parent is None
"""
    (path,) = pages(run(test, failed=1))
    assert "AssertionError" in Path(path).read_text()


def test_failure_that_is_not_repeated_has_a_page_without_requests(run) -> None:
    test = """
failed = []


async def test_it(partage_world):
    failed.append(1)
    assert len(failed) > 1
"""
    (path,) = pages(run(test, failed=1))
    assert "Requests and owners are missing" in Path(path).read_text()


def test_function_that_is_no_coroutine_is_refused(run) -> None:
    output = run("def test_it(partage_world):\n    pass\n", failed=1)
    assert "must be a coroutine function" in output


def test_invalid_count_is_refused(pytester: pytest.Pytester, capsys) -> None:
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--worlds", "0")
    assert "--worlds: must be an integer of at least 1, not '0'" in capsys.readouterr().err


def test_marker_changes_settings_of_the_broker(run) -> None:
    run(
        """
import pytest


@pytest.mark.partage_broker({"num.partitions": 7, "auto.create.topics.enable": True})
async def test_partitions(partage_world):
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=partage_world.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"x")
        assert len(await producer.partitions_for("t")) == 7
    assert [record.value for record in partage_world.records("t")] == [b"x"]
""",
        passed=1,
    )


def test_invalid_setting_of_the_broker_is_refused(run) -> None:
    text = """
import pytest


@pytest.mark.partage_broker({"num.partition": 3})
async def test_partitions(partage_world):
    pass
"""
    output = run(text, errors=1)
    reason = "num.partition is not a broker setting; did you mean num.partitions?"
    assert f"the marker partage_broker is invalid: {reason}" in output
    assert "apply_overrides" not in output


def test_marker_sets_the_number_of_brokers(run) -> None:
    run(
        """
import pytest


@pytest.mark.partage_world(brokers=2)
async def test_brokers(partage_world):
    assert partage_world.brokers == ("broker-1", "broker-2")
""",
        passed=1,
    )


@pytest.mark.parametrize("arguments", ["3", "brokers=0", "brokers='3'", "broker=3", ""])
def test_invalid_marker_of_a_world_is_refused(run, arguments: str) -> None:
    output = run(
        f"""
import pytest


@pytest.mark.partage_world({arguments})
async def test_brokers(partage_world):
    pass
""",
        errors=1,
    )
    assert "@pytest.mark.partage_world(brokers=3)" in output
