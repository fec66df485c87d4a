"""Fixtures that run every test of the decoder contract on both modules.

A missing module fails the tests. Without a compiler, set ``PARTAGE_TEST_DECODERS=plain``.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

NAMES = os.environ.get("PARTAGE_TEST_DECODERS", "native,plain").split(",")
MODULES = {"native": "partage.wire.records._native", "plain": "partage.wire.records.plain"}


@pytest.fixture(params=NAMES)
def decoder(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(MODULES[request.param])


@pytest.fixture
def both() -> list[ModuleType]:
    return [importlib.import_module(MODULES[name]) for name in NAMES]
