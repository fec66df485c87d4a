"""Invalid options of ``partage proposal broker-side`` are refused before anything is connected."""

from __future__ import annotations

import pytest

from console.cli import PartageCli

CONSUMER = ["proposal", "broker-side", "consumer"]
BROKER = ["proposal", "broker-side", "broker"]
STATE = [*BROKER, "--state", "zookeeper://h:1/p"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([*CONSUMER, "--group", "g"], "give --topic or --topic-pattern"),
        ([*CONSUMER, "--group", "g", "-t", "t", "--topic-pattern", "t"], "but not both"),
        ([*CONSUMER, "--group", "a/b", "-t", "t"], "group_id='a/b' is invalid"),
        ([*CONSUMER, "--group", "g", "--topic-pattern", "(a"], "pattern '(a' is invalid"),
        ([*CONSUMER, "--group", "g", "-t", "t", "--broker-list", "x"], "--broker-list"),
        ([*CONSUMER, "--group", "g", "-t", "t", "--session-timeout-ms", "0"], "session-timeout"),
        ([*CONSUMER, "--group", "g", "-t", "t", "--consumer-id", "c" * 1_025], "1025 bytes"),
        ([*BROKER], "--state"),
        ([*STATE, "--frozen-group", "a/b"], "'a/b', which is not a valid group id"),
        ([*STATE, "--rebalance-threadpool-size", "1001"], "is above 1000"),
        ([*BROKER, "--state", "zookeeper://h:1"], "path"),
        ([*STATE, "--listen", "0.0.0.0:1"], "--advertised"),
        ([*STATE, "--listen", "h"], "--listen"),
    ],
)
def test_invalid_option_is_refused_with_its_reason(arguments: list[str], reason: str) -> None:
    assert reason in PartageCli("127.0.0.1:1").fails(*arguments, code=2)


def test_broker_without_brokers_of_records_says_so() -> None:
    state = "zookeeper://127.0.0.1:1/p"
    error = PartageCli("127.0.0.1:1").fails(*BROKER, "--state", state, "--timeout-ms", "100")
    assert "127.0.0.1:1" in error
