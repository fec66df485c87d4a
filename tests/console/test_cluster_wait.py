"""The wait of ``partage consume`` for a cluster that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.signals import StopRequest
from partage.console.records import cluster_wait, consume
from partage.console.records.cluster_wait import NO_LIMIT_MS, wait_for_cluster

from .cli import PartageCli

SERVERS = "127.0.0.1:1"
REFUSED = KafkaError(KafkaError._TRANSPORT, f"{SERVERS}/bootstrap: Connection refused")
REJECTED = KafkaError(KafkaError._AUTHENTICATION, f"{SERVERS}/bootstrap: wrong password")
UNRESOLVED = KafkaError(KafkaError._RESOLVE, "nowhere:9092/bootstrap: Failed to resolve 'nowhere'")


class Outage:
    """A cluster that does not answer for some virtual seconds; each look takes its timeout."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, duration_s: float, error: KafkaError):
        self.now_s = 0.0
        self.duration_s = duration_s
        self.error = error
        self.cluster = ClusterClient(SERVERS, {}, 5_000, verbose=False)
        # A real client would add the errors of a real connection.
        vars(self.cluster)["admin"] = Mock(spec=["poll"])
        monkeypatch.setattr(cluster_wait.time, "monotonic", lambda: self.now_s)

    def look(self, timeout_s: float) -> None:
        if self.now_s >= self.duration_s:
            return
        self.now_s += timeout_s
        self.cluster.recent_errors.append(self.error)
        raise KafkaException(self.error)

    def wait(self, **options: Any) -> None:
        wait_for_cluster(self.cluster, self.look, StopRequest(), **options)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outage]:
    def create(duration_s: float, error: KafkaError = REFUSED) -> Outage:
        return Outage(monkeypatch, duration_s, error)

    return create


@pytest.mark.parametrize(
    ("is_first", "report"),
    [
        (True, f"no Kafka broker answers at {SERVERS} (Connection refused); waiting, Ctrl-C stops"),
        (False, f"lost connection to {SERVERS}; reconnecting"),
    ],
)
def test_long_outage_is_reported_once(
    outage: Callable[..., Outage], capsys: pytest.CaptureFixture[str], is_first: bool, report: str
) -> None:
    down = outage(86_400)
    down.wait(limit_ms=NO_LIMIT_MS, is_first=is_first)
    assert capsys.readouterr().err.splitlines() == [report, f"connected to {SERVERS}"]
    assert not down.cluster.recent_errors


def test_short_first_wait_is_not_reported(
    outage: Callable[..., Outage], capsys: pytest.CaptureFixture[str]
) -> None:
    outage(1).wait(limit_ms=NO_LIMIT_MS, is_first=True)
    assert capsys.readouterr().err == ""


def test_wait_ends_at_its_limit(outage: Callable[..., Outage]) -> None:
    down = outage(86_400)
    with pytest.raises(CommandError, match=r"answered at 127.0.0.1:1 within 7250 ms \(Connection"):
        down.wait(limit_ms=7_250)
    assert down.now_s == 7.25


@pytest.mark.parametrize(
    ("error", "message", "after_s"),
    [(REJECTED, "rejected the connection: wrong password", 0.5), (UNRESOLVED, "nowhere", 5.0)],
)
def test_wait_without_hope_ends(
    outage: Callable[..., Outage], error: KafkaError, message: str, after_s: float
) -> None:
    down = outage(86_400, error)
    with pytest.raises(CommandError, match=message):
        down.wait(limit_ms=NO_LIMIT_MS, is_first=True)
    assert down.now_s == after_s


@pytest.mark.parametrize(
    ("options", "limit_ms"),
    [
        ([], NO_LIMIT_MS),
        (["--timeout-ms", "7000"], 7_000),
        (["--exit"], 5_000),
        (["--connect-timeout-ms", "5000"], 5_000),
        (["--connect-timeout-ms", "9000", "--timeout-ms", "7000", "--exit"], 7_000),
    ],
)
def test_options_limit_the_wait(
    monkeypatch: pytest.MonkeyPatch, options: list[str], limit_ms: int
) -> None:
    def wait(*_: object, limit_ms: int, is_first: bool) -> None:
        raise CommandError(f"waited {limit_ms}")

    monkeypatch.setattr(consume, "wait_for_cluster", wait)
    assert PartageCli(SERVERS).fails("consume", "t", *options) == f"waited {limit_ms}"
