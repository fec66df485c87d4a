"""One broker process for all tests of this directory; each test uses separate topics."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cli import PartageCli

_numbers = itertools.count(1)
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Limit each test to ten minutes, against hangs.

    With another broker, deselect the tests that use no broker.
    """
    own = [item for item in items if _HERE in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.timeout(600))
    if "PARTAGE_TEST_BOOTSTRAP_SERVER" in os.environ:
        others = {each for each in own if "broker" not in getattr(each, "fixturenames", ())}
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Return the address of a ``partage broker --ephemeral``.

    PARTAGE_TEST_BOOTSTRAP_SERVER names another broker to test against, such as Apache Kafka with
    auto.create.topics.enable=false, group.initial.rebalance.delay.ms=0 and
    group.consumer.assignment.interval.ms=0.
    """
    if elsewhere := os.environ.get("PARTAGE_TEST_BOOTSTRAP_SERVER"):
        yield elsewhere
        return
    command = [sys.executable, "-m", "partage", "broker", "--ephemeral"]
    command += ["--listen", "127.0.0.1:0"]
    command += ["--override", "group.initial.rebalance.delay.ms=0"]
    command += ["--override", "group.consumer.assignment.interval.ms=0"]
    # Members of tests send no heartbeats, also on a busy machine.
    command += ["--override", "group.consumer.max.session.timeout.ms=600000"]
    command += ["--override", "group.consumer.session.timeout.ms=600000"]
    command += ["--override", "offsets.topic.num.partitions=4"]
    command += ["--override", "auto.create.topics.enable=false"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the broker did not start"
        yield address
        process.terminate()
        assert process.wait(10) == 0


@pytest.fixture
def partage(broker: str) -> PartageCli:
    """Return the command line for this broker."""
    return PartageCli(broker)


@pytest.fixture
def name() -> str:
    """Return a unique name."""
    return f"n{next(_numbers)}"


@pytest.fixture
def topic(partage: PartageCli, name: str) -> str:
    """Create a topic with four partitions."""
    partage("topics", "create", "--topic", name, "--partitions", 4)
    return name
