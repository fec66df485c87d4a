"""Every test of the decoder's contract runs on both modules, and fails where one is missing.

Where no compiler is to be had, ``PARTAGE_TEST_DECODERS=plain`` says so.
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
