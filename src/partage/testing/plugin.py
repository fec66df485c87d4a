"""The pytest plugin, which is installed with the package and active in every test run.

``partage_broker`` is a broker in the test's process, on a free port, empty in every test::

    def test_it(partage_broker):
        producer = Producer({"bootstrap.servers": partage_broker.bootstrap_servers})

Broker settings for one test, by Kafka's names::

    @pytest.mark.partage_broker({"auto.create.topics.enable": False})
    def test_strict(partage_broker): ...

``partage_broker_process`` is a broker in a child process with a real disk, which can be killed and
restarted. The marker applies to it too.

``partage_world`` is a simulated world: it runs a coroutine test in virtual time, with a broker and
faults from one seed; see `partage.testing.PartageWorld`. ``--worlds N`` runs it with N seeds. A
cluster of several brokers for one test::

    @pytest.mark.partage_world(brokers=3)
    async def test_failover(partage_world): ...

Test runs without these fixtures must not pay for them: this module imports the broker on first use.
"""

from __future__ import annotations

import inspect
import sys
from argparse import ArgumentTypeError
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from partage.testing.broker import ThreadedBroker
    from partage.testing.process import BrokerProcess
    from partage.testing.world.world import PartageWorld

_MARKER = "partage_broker"
_MARKER_USAGE = f'@pytest.mark.{_MARKER}({{"auto.create.topics.enable": False}})'
_WORLD_MARKER = "partage_world"
_BROKER = pytest.StashKey["ThreadedBroker"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of simulated worlds."""
    group = parser.getgroup("partage", "simulated worlds (fixture partage_world)")
    group.addoption(
        "--worlds", type=_positive, default=1, metavar="N", help="run each world test with N seeds"
    )
    group.addoption(
        "--world-seed", type=int, default=1, metavar="SEED", help="the first seed (default: 1)"
    )
    group.addoption("--spark", action="store_true", help="run world tests on a Spark cluster")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"must be an integer of at least 1, not {text!r}")
    return int(text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of a world once for each seed, unless it has its own seeds."""
    markers = metafunc.definition.iter_markers("parametrize")
    has_seeds = any("partage_world_seed" in str(marker.args[:1]) for marker in markers)
    if "partage_world_seed" in metafunc.fixturenames and not has_seeds:
        first: int = metafunc.config.getoption("world_seed")
        count: int = metafunc.config.getoption("worlds")
        seeds = range(first, first + count)
        metafunc.parametrize(
            "partage_world_seed", seeds, ids=[f"world-{seed}" for seed in seeds], indirect=True
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """With ``--spark``, run the tests of worlds on Spark after all others."""
    config = session.config
    if not config.getoption("spark") or config.option.collectonly:
        return (yield)
    from partage.testing.world.spark_tests import run_on_spark, split_seeds

    worlds = [item for item in session.items if _seed_of(item) is not None]
    session.items = [item for item in session.items if _seed_of(item) is None]
    result = yield
    seeds = [(item.nodeid.rpartition("[")[0], _seed_of(item) or 0) for item in worlds]
    for data in run_on_spark(split_seeds(seeds), config.rootpath):
        report = pytest.TestReport._from_json(data)
        if report.when == "setup":
            config.hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
        config.hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    return result


def _seed_of(item: pytest.Item) -> int | None:
    """Return the seed of a test of a world that has no other parameter, else None."""
    call = getattr(item, "callspec", None)
    if call is None or set(call.params) != {"partage_world_seed"}:
        return None
    seed: int = call.params["partage_world_seed"]
    return seed


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test with the fixture ``partage_world`` in its world."""
    if "partage_world" not in pyfuncitem.fixturenames:
        return None
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        raise _failure(
            "a test with partage_world must be a coroutine function, and no other plugin may run "
            "it: write `async def`, and disable the auto mode of pytest-asyncio for this test"
        )
    from partage.testing.world.test_runner import run_world_test

    names = pyfuncitem._fixtureinfo.argnames
    run_world_test(
        pyfuncitem.nodeid, pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in names}
    )
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and refuse options that exclude each other."""
    # Before pytest-xdist starts its processes.
    if config.getoption("spark") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--spark cannot be combined with -n: Spark spreads the tests")
    config.addinivalue_line(
        "markers", f"{_MARKER}(settings): broker settings for one test, by Kafka's names"
    )
    config.addinivalue_line(
        "markers", f"{_WORLD_MARKER}(brokers=N): the number of brokers of a simulated world"
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


@pytest.fixture
def partage_world_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the world; see ``--worlds`` and ``--world-seed``."""
    seed: int = request.param
    return seed


@pytest.fixture
def partage_world(
    request: pytest.FixtureRequest, tmp_path: Path, partage_world_seed: int
) -> Iterator[PartageWorld]:
    """Yield a simulated world for a coroutine test; see `partage.testing.PartageWorld`."""
    try:
        from partage.testing.world.world import PartageWorld
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        raise _failure("partage_world needs greenlet; run pip install 'partage[world]'") from None
    settings, brokers = _marked_settings(request), _marked_brokers(request)
    try:
        world = PartageWorld(partage_world_seed, tmp_path, settings, brokers=brokers)
    except (TypeError, ValueError) as error:
        raise _failure(f"the marker {_MARKER} is invalid: {error}") from None
    yield world
    world.close()


def _marked_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of all markers; those of the test override those of class and module."""
    settings: dict[str, Any] = {}
    for marker in reversed([*request.node.iter_markers(_MARKER)]):
        settings |= _settings_of(marker)
    return settings


def _marked_brokers(request: pytest.FixtureRequest) -> int:
    """Return the number of brokers of a world: that of the closest marker, by default 1."""
    marker = request.node.get_closest_marker(_WORLD_MARKER)
    if marker is None:
        return 1
    brokers = marker.kwargs.get("brokers")
    is_count = isinstance(brokers, int) and not isinstance(brokers, bool) and brokers >= 1
    if marker.args or set(marker.kwargs) != {"brokers"} or not is_count:
        raise _failure(
            f"the marker {_WORLD_MARKER} takes the number of brokers, at least 1; write for "
            f"example @pytest.mark.{_WORLD_MARKER}(brokers=3)"
        )
    count: int = brokers
    return count


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
