"""Invalid options of ``partage proposal broker-side`` are refused before anything is connected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_group

from cluster.zookeeper_ensemble import Ensemble
from console.cli import PartageCli
from partage.console.proposal import broker_side
from partage.proposals.broker_side.settings import (
    PushConsumerSettings,
    PushCoordinatorSettings,
    RebalanceMethod,
)
from partage.proposals.broker_side.topic_count import pattern_topic_count, static_topic_count
from partage.proposals.sockets.broker_side import foreground
from partage.proposals.sockets.broker_side.push_broker import PushBrokerOptions

DOCS = Path(__file__).parent.parent.parent.parent / "docs"
DESIGN = ["proposal", "broker-side"]
CONSUMER = [*DESIGN, "consumer"]
BROKER = [*DESIGN, "broker"]
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
        ([*DESIGN, "freeze", "a/b", "--state", "zookeeper://h:1/p"], "'a/b' is not a valid"),
        ([*DESIGN, "thaw", "..", "--state", "zookeeper://h:1/p"], "'..' is not a valid"),
        ([*DESIGN, "frozen", "--state", "zookeeper://h:1"], "path"),
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


def test_broker_options_reach_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option has a separate value, so that two options cannot be exchanged."""
    served: list[PushBrokerOptions] = []

    async def serve(cluster: object, options: PushBrokerOptions) -> None:
        served.append(options)

    monkeypatch.setattr(broker_side, "_serve", serve)
    values: dict[str, Any] = {
        "rebalance_threadpool_size": 11,
        "rebalance_queue_size": 12,
        "session_timeout_min_ms": 13,
        "ping_retries_max": 14,
        "offset_commit_interval_ms": 15,
        "rebalance_retries_max": 16,
        "rebalance_backoff_ms": 17,
    }
    arguments = [
        part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    arguments += ["--rebalance-method", "close-connections", "--id", 18]
    arguments += ["--topic-refresh-ms", 19]
    arguments += ["--listen", "127.0.0.2:20", "--advertised", "h:21"]
    arguments += ["--zookeeper-session-timeout-ms", 22]
    PartageCli("127.0.0.1:1")(*STATE, *arguments)
    (options,) = served
    assert options.settings == PushCoordinatorSettings(
        **values,
        rebalance_method=RebalanceMethod.CLOSE_CONNECTIONS,
        broker_id=18,
    )
    assert (options.host, options.port, options.advertised) == ("127.0.0.2", 20, ("h", 21))
    assert (options.topic_refresh_ms, options.zookeeper_session_timeout_ms) == (19, 22)
    defaults = PushCoordinatorSettings()
    for name in PushCoordinatorSettings.__struct_fields__:
        is_default = getattr(options.settings, name) == getattr(defaults, name)
        # The brokers of the cluster come from ZooKeeper.
        assert is_default == (name == "brokers"), f"no option sets {name}"


def test_every_name_of_section_4_is_the_help_of_its_option() -> None:
    text = (DOCS / "designs.md").read_text()
    rows = re.findall(r"^\| (.+) \| `(broker|consumer)` \| (.+) \| .*\|$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == [
        "Rebalancing threadpool size",
        "Minimum viable value for consumer session timeout",
        "Maximum number of timed out heartbeats to consumers",
        "Offset committing (to ZK) interval",
        "Bootstrap broker list",
        "Session timeout",
        "Maximum rebalance retries",
        "Rebalance backoff time (in milliseconds)",
    ]
    commands = get_group(broker_side.app).commands
    for name, command, options in rows:
        (found,) = (each for each in commands[command].params if f"`{each.opts[0]}`" in options)
        assert found.help.startswith(name)
        assert found.opts == re.findall("`(.+?)`", options)


@pytest.mark.parametrize(
    ("topics", "topic_count"),
    [
        (["-t", "t", "-t", "u"], static_topic_count({"t", "u"}, 3)),
        (["--topic-pattern", "t.*"], pattern_topic_count("t.*", 3)),
    ],
)
def test_consumer_options_reach_their_settings(
    monkeypatch: pytest.MonkeyPatch, topics: list[str], topic_count: str
) -> None:
    ran: list[PushConsumerSettings] = []

    async def run(settings: PushConsumerSettings, *others: object) -> None:
        ran.append(settings)

    monkeypatch.setattr(foreground, "run_consumer", run)
    arguments = ["--group", "g", *topics, "--threads", 3, "--broker-list", "h:1,i:2"]
    arguments += ["--consumer-id", "c", "--session-timeout-ms", 7_000, "--no-auto-commit"]
    PartageCli("127.0.0.1:1")(*CONSUMER, *arguments, "--auto-offset-reset", "largest")
    (settings,) = ran
    assert settings == PushConsumerSettings(
        bootstrap_brokers=settings.bootstrap_brokers,
        group_id="g",
        consumer_id="c",
        topic_count=topic_count,
        session_timeout_ms=7_000,
        auto_commit=False,
        auto_offset_reset="largest",
    )
    addresses = [(each.host, each.port) for each in settings.bootstrap_brokers]
    assert addresses == [("h", 1), ("i", 2)]


def test_consumers_without_an_id_get_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ids: set[str] = set()

    async def run(settings: PushConsumerSettings, *others: object) -> None:
        ids.add(settings.consumer_id)

    monkeypatch.setattr(foreground, "run_consumer", run)
    for _ in range(2):
        PartageCli("127.0.0.1:1")(*CONSUMER, "--group", "g", "-t", "t")
    assert len(ids) == 2


def test_groups_are_frozen_listed_and_thawed(zookeeper: Ensemble, tmp_path: Path) -> None:
    state = ["--state", f"zookeeper://{zookeeper.connect_string}/proposals/{tmp_path.name}"]
    cli = PartageCli("127.0.0.1:1")
    assert cli(*DESIGN, "frozen", *state).lines == []
    for _ in range(2):  # it is no error that the group is frozen already
        cli(*DESIGN, "freeze", "g", *state)
    cli(*DESIGN, "freeze", "a", *state)
    assert cli(*DESIGN, "frozen", *state).lines == ["a", "g"]
    thawed = cli(*DESIGN, "thaw", "g", "--json", *state)
    assert json.loads(thawed.out) == {"group": "g", "is_frozen": False}
    assert "group 'g' is not frozen" in cli.fails(*DESIGN, "thaw", "g", *state)
    assert cli(*DESIGN, "frozen", *state).lines == ["a"]
    assert json.loads(cli(*DESIGN, "frozen", "--json", *state).out) == {"groups": ["a"]}
