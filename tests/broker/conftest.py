"""A broker and a client for each test, and a check that no handler of the broker fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from partage.testing import ThreadedBroker

from .raw_client import RawClient


@pytest.fixture
def broker(partage_broker: ThreadedBroker) -> ThreadedBroker:
    return partage_broker


@pytest.fixture
def raw(broker: ThreadedBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(autouse=True)
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test if the broker logged an exception, or a line that a client could forge."""
    caplog.set_level(logging.INFO, "partage")
    yield
    records = [r for when in ("setup", "call") for r in caplog.get_records(when)]
    faults = [r for r in records if r.exc_info]
    assert not faults, [(r.getMessage(), r.exc_info) for r in faults]
    messages = [r.getMessage() for r in records if r.name.startswith("partage")]
    assert [message for message in messages if not message.isprintable()] == []
