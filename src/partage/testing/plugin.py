"""The pytest plugin, which is installed with the package and active in every test run.

``partage_broker`` is a broker in the test's process, on a free port, empty in every test::

    def test_it(partage_broker):
        producer = Producer({"bootstrap.servers": partage_broker.bootstrap_servers})

Broker settings for one test, by Kafka's names::

    @pytest.mark.partage_broker({"auto.create.topics.enable": False})
    def test_strict(partage_broker): ...

``partage_broker_process`` is a broker in a child process with a real disk, which can be killed and
restarted. The marker applies to it too.

Test runs without these fixtures must not pay for them: this module imports the broker on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from partage.testing.broker import ThreadedBroker
    from partage.testing.process import BrokerProcess

_MARKER = "partage_broker"
_MARKER_USAGE = f'@pytest.mark.{_MARKER}({{"auto.create.topics.enable": False}})'
_BROKER = pytest.StashKey["ThreadedBroker"]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", f"{_MARKER}(settings): broker settings for one test, by Kafka's names"
    )


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test whose faults did not happen; after a failed test this is not called."""
    broker = item.stash.get(_BROKER, None)
    if broker is None:
        return
    from partage.testing.request_interceptor import UnusedFaultError

    try:
        broker.faults.check_used()
    except UnusedFaultError as error:
        raise _failure(str(error)) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Accept unused faults of a test that has not passed: its own report is the only one.

    A broker of the whole session checks its faults later, in ``reset`` or at its end.
    """
    report = yield
    if not report.passed and (module := sys.modules.get("partage.testing.broker")):
        module.waive_faults()
    return report


@pytest.fixture
def partage_broker(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    """Yield a Kafka-compatible broker for one test; see `partage.testing.ThreadedBroker`."""
    from partage.testing.broker import ThreadedBroker

    settings = _marked_settings(request)
    try:
        broker = ThreadedBroker(settings)
    except (TypeError, ValueError) as error:
        raise _failure(f"the marker {_MARKER} is invalid: {error}") from None
    broker.start()
    request.node.stash[_BROKER] = broker
    try:
        yield broker
    finally:
        del request.node.stash[_BROKER]  # pytest keeps all tests until the end of the session
        broker.stop()


@pytest.fixture
def partage_broker_process(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """Yield a broker process that can be killed; see `partage.testing.BrokerProcess`."""
    from partage.testing.broker import TEST_OVERRIDES
    from partage.testing.process import BrokerProcess

    with BrokerProcess(overrides={**TEST_OVERRIDES, **_marked_settings(request)}) as broker:
        yield broker


def _marked_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of all markers; those of the test override those of class and module."""
    settings: dict[str, Any] = {}
    for marker in reversed([*request.node.iter_markers(_MARKER)]):
        settings |= _settings_of(marker)
    return settings


def _settings_of(marker: pytest.Mark) -> Mapping[str, Any]:
    if marker.kwargs:
        given = ", ".join(f"{name}=..." for name in marker.kwargs)
        problem = f"it has keyword arguments ({given})"
    elif not marker.args:
        problem = "it has no settings"
    elif len(marker.args) > 1 or not isinstance(marker.args[0], Mapping):
        problem = f"it has other arguments ({', '.join(map(repr, marker.args))})"
    else:
        settings: Mapping[str, Any] = marker.args[0]
        return settings
    raise _failure(
        f"the marker {_MARKER} takes one dictionary of broker settings by Kafka's names, "
        f"but {problem}; write for example {_MARKER_USAGE}"
    )


def _failure(message: str) -> BaseException:
    """Return an exception with which pytest reports the message without a traceback."""
    return pytest.fail.Exception(message, pytrace=False)
