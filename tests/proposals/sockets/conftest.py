"""One ZooKeeper and one broker of records for all tests; each test has its own path and topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.zookeeper_ensemble import Ensemble, ensemble
from partage.testing import ThreadedBroker


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with ensemble(tmp_path_factory.mktemp("zookeeper") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def records() -> Iterator[ThreadedBroker]:
    with ThreadedBroker() as broker:
        yield broker
