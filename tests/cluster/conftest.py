"""One ZooKeeper for all tests of a session; each test uses a separate path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .zookeeper_ensemble import Ensemble, ensemble


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with ensemble(tmp_path_factory.mktemp("zookeeper") / "data") as running:
        yield running


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"/tests/{tmp_path.name}"
