"""The versions that installed clients can send, from their own tables of requests."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import aiokafka.protocol
import kafka.protocol
import pytest
from aiokafka.protocol.api import RequestStruct
from kafka.protocol.api_message import ApiMessage

from partage.wire.apis import APIS

from .test_apis import NOT_YET


def load_modules(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def subclasses(kind: type) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def aiokafka_versions() -> dict[int, set[int]]:
    load_modules(aiokafka.protocol)
    found: dict[int, set[int]] = {}
    for request in subclasses(RequestStruct):
        if isinstance(getattr(request, "API_KEY", None), int):
            found.setdefault(request.API_KEY, set()).add(request.API_VERSION)
    return found


def kafka_python_versions() -> dict[int, set[int]]:
    load_modules(kafka.protocol)
    return {
        request.API_KEY: set(range(request.min_version, request.max_version + 1))
        for request in subclasses(ApiMessage)
        if request.__module__.startswith("kafka.protocol") and request.__name__.endswith("Request")
    }


CLIENTS = {"aiokafka": aiokafka_versions, "kafka-python": kafka_python_versions}


@pytest.mark.parametrize("client", CLIENTS)
def test_client_and_broker_have_common_version(client: str) -> None:
    """A client takes the newest version that both sides support."""
    for key, versions in CLIENTS[client]().items():
        if key in APIS:
            assert any(APIS[key].supports(version) for version in versions), APIS[key].name


@pytest.mark.parametrize("client", CLIENTS)
def test_newest_client_version_is_supported(client: str) -> None:
    newest = {key: max(versions) for key, versions in CLIENTS[client]().items()}
    unsupported = {
        (APIS[key].name, version)
        for key, version in newest.items()
        if key in APIS and not APIS[key].supports(version)
    }
    assert unsupported <= NOT_YET
