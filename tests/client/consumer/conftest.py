"""A consumer to test with, of either face."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from .consumer_adapters import FACES


@pytest.fixture(params=FACES)
def consumer_of(request):
    """Makes consumers of one face, quick to try again; they are closed at the test's end."""
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
