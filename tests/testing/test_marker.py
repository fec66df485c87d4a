"""The marker of the pytest plugin, and required faults, in pytest runs inside of a test."""

from __future__ import annotations

import re

import pytest

# Imported here: a module that a nested run imports first would be imported once more after it.
from partage.testing import ThreadedBroker, UnusedFaultError

pytest_plugins = ["pytester"]

assert issubclass(UnusedFaultError, AssertionError)
assert ThreadedBroker

PRELUDE = """
import pytest
from confluent_kafka.admin import AdminClient

from partage.errors import CommitFailedError
from partage.sync import Consumer


def topic_error(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return admin.list_topics("nothing", timeout=30).topics["nothing"].error


"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    def run(text: str, **outcomes: int) -> str:
        pytester.makepyfile(PRELUDE + text)
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
        result.assert_outcomes(**outcomes)
        return result.stdout.str()

    return run


def test_marker_accepts_booleans_and_texts(run) -> None:
    run(
        """
@pytest.mark.partage_broker({"auto.create.topics.enable": False})
def test_boolean(partage_broker):
    assert topic_error(partage_broker).str() == "Broker: Unknown topic or partition"


@pytest.mark.partage_broker({"auto.create.topics.enable": "false"})
def test_text(partage_broker):
    assert topic_error(partage_broker).str() == "Broker: Unknown topic or partition"
""",
        passed=2,
    )


def test_markers_of_test_and_module_are_merged(run) -> None:
    run(
        """
pytestmark = pytest.mark.partage_broker(
    {"num.partitions": 3, "auto.create.topics.enable": False}
)


@pytest.mark.partage_broker({"auto.create.topics.enable": True})
def test_it(partage_broker):
    assert topic_error(partage_broker) is None
    with Consumer(partage_broker.bootstrap_servers) as consumer:
        assert len(consumer.partitions_of("nothing")) == 3
""",
        passed=1,
    )


#: The arguments of wrong markers, and the beginning of the message for each.
WRONG_MARKERS = {
    "": "it has no settings",
    "()": "it has no settings",
    "(num_partitions=3)": "it has keyword arguments (num_partitions=...)",
    "('num.partitions')": "it has other arguments ('num.partitions')",
    "({}, {})": "it has other arguments ({}, {})",
    "({'num.partition': 3})": (
        "num.partition is not a broker setting; did you mean num.partitions?"
    ),
    "({'num.partitions': None})": (
        "num.partitions=None: the value must be a string, a boolean or a number"
    ),
    "({1: 2})": "1 is not the name of a setting; names are strings",
}


def test_wrong_markers_are_errors_with_advice(run) -> None:
    text = "".join(
        f"@pytest.mark.partage_broker{arguments}\ndef test_{n}(partage_broker):\n    pass\n\n"
        for n, arguments in enumerate(WRONG_MARKERS)
    )
    shown = run(text, errors=len(WRONG_MARKERS))
    for n, message in enumerate(WRONG_MARKERS.values()):
        (section,) = re.findall(
            rf"ERROR at setup of test_{n} _+\n(.*?)\n_", shown + "\n_", re.DOTALL
        )
        assert message in section
        assert "exception" not in section


def test_unused_required_faults_fail_the_test(run) -> None:
    shown = run(
        """
def test_it(partage_broker):
    faults = partage_broker.faults
    faults.fail("OffsetCommit", "ILLEGAL_GENERATION", client_id="tower", times=2)
    faults.hold("JoinGroup").release()
    with faults.hold("SyncGroup"):
        pass
    faults.fail("Metadata", "LEADER_NOT_AVAILABLE", required=False)
    faults.hold("Produce", required=False)
""",
        failed=1,
    )
    assert (
        "the test injected faults that did not happen:\n"
        "  faults.hold('JoinGroup') has met 0 of 1 requests\n"
        "  faults.hold('SyncGroup') has met 0 of 1 requests\n"
        "  faults.fail('OffsetCommit', 'ILLEGAL_GENERATION', client_id='tower') has met 0 of 2 "
        "requests\n"
        "Pass required=False if a fault need not happen, or call faults.clear()."
    ) in shown
    # With the variable CI, pytest repeats the whole message in its summary.
    failures, _, _ = shown.partition("short test summary info")
    assert failures.count("faults.hold('JoinGroup')") == 1


def test_fault_that_happens_too_rarely_fails_the_test(run) -> None:
    shown = run(
        """
def test_it(partage_broker):
    partage_broker.create_topic("flights")
    partage_broker.faults.fail("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", times=3)
    with Consumer(
        partage_broker.bootstrap_servers, group_id="tower", enable_auto_commit=False
    ) as consumer:
        consumer.assign([("flights", 0)])
        for _ in range(2):
            with pytest.raises(CommitFailedError):
                consumer.commit({("flights", 0): 1})
""",
        failed=1,
    )
    assert "has met 2 of 3 requests" in shown


def test_failed_test_reports_no_unused_faults(run) -> None:
    shown = run(
        """
def test_it(partage_broker):
    partage_broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
    assert 1 == 2
""",
        failed=1,
    )
    assert "did not happen" not in shown


def test_removed_faults_and_stopped_brokers_pass(run) -> None:
    run(
        """
def test_clear(partage_broker):
    partage_broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
    partage_broker.faults.hold("JoinGroup").release()
    partage_broker.faults.clear()


def test_stop(partage_broker):
    partage_broker.stop()


def test_stop_with_unused_fault(partage_broker):
    partage_broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
    partage_broker.stop()
""",
        passed=2,
        failed=1,
    )


#: A session's broker; ``failing`` is the phase in which the first test fails with an unused fault.
SESSION_BROKER = """
from partage.testing import ThreadedBroker


@pytest.fixture(scope="session")
def session_broker():
    with ThreadedBroker() as broker:
        yield broker


@pytest.fixture
def broker(session_broker):
    {before}
    yield session_broker
    {after}


@pytest.fixture
def failing(broker):
    broker.faults.hold("JoinGroup").release()
    broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
    assert "{phase}" != "setup", "the reason"


def test_one(broker, failing):
    raise AssertionError("the reason")


def test_two(broker):
    assert broker.faults.pending == 0 or "{after}{before}" == "pass" * 2
"""


@pytest.mark.parametrize("phase", ["setup", "call"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pass", "session_broker.reset()"),
        ("session_broker.reset()", "pass"),
        ("pass", "pass"),
    ],
)
def test_unused_fault_of_failed_test_adds_no_report(run, phase, before, after) -> None:
    text = SESSION_BROKER.format(phase=phase, before=before, after=after)
    shown = run(text, passed=1, **{"failed" if phase == "call" else "errors": 1})
    assert "the reason" in shown
    assert "did not happen" not in shown


def test_unused_fault_of_passed_test_is_reported_by_reset(run) -> None:
    shown = run(
        SESSION_BROKER.format(phase="", before="pass", after="session_broker.reset()")
        + """

def test_three(broker):
    broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
""",
        passed=2,
        failed=1,
        errors=1,
    )
    assert "faults.fail('OffsetCommit', 'ILLEGAL_GENERATION') has met 0 of 1 requests" in shown


def test_expected_failure_and_skip_report_no_unused_faults(run) -> None:
    run(
        SESSION_BROKER.format(phase="", before="pass", after="session_broker.reset()")
        + """

@pytest.mark.xfail(reason="expected")
def test_expected_failure(broker):
    broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
    raise AssertionError


def test_skip(broker):
    broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
    pytest.skip("no network")
""",
        passed=1,
        failed=1,
        xfailed=1,
        skipped=1,
    )
