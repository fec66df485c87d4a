"""A consumer fixture for both consumers: asyncio and blocking."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from .consumer_adapters import FACES


@pytest.fixture(params=FACES)
def consumer_of(request):
    """Create consumers of one kind with short retry delays; close them after the test."""
    with ExitStack() as stack:

        def make(servers, **options):
            settled = {
                "auto_offset_reset": "earliest",
                "retry_backoff_ms": 5,
                "retry_backoff_max_ms": 20,
                "fetch_max_wait_ms": 100,
                **options,
            }
            return stack.enter_context(FACES[request.param](servers, **settled))

        yield make
