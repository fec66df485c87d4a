"""Options of the whole test suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

#: Examples are the same in each run, and take as long as a busy machine takes; see ``log/pace.py``.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=os.environ.get("PARTAGE_PROPERTIES") != "long",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what happens into the scenario files, to be reviewed as a diff",
    )
