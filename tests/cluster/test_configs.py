"""Altered configs of brokers and groups in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.config_requests import BROKER, GROUP, alter, config
from broker.raw_client import RawClient
from partage.broker.cluster.cluster_config_store import ClusterConfigStore
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.memory import lose_transactions
from partage.store.shared_configs import SharedConfigs
from partage.store.zk_schema import ConfigsDoc
from partage.wire.apis.incremental_alter_configs import DELETE, SET
from polled_conditions import eventually
from store.zk_fixture import PATHS

from .brokers import brokers
from .test_cluster_membership import MembershipFixture, run_scenario, until
from .zookeeper_ensemble import Ensemble


def test_change_takes_effect_before_response_and_is_followed() -> None:
    async def scenario(place: MembershipFixture) -> None:
        read: list[ConfigsDoc] = []
        place.cluster.on_configs_read = read.append
        store = ClusterConfigStore(place.cluster)
        assert await store.change({"broker:": lambda current: {"a": "1"}}) == {}
        assert read[-1].resources == {"broker:": {"a": "1"}}
        other = SharedConfigs(place.player.session, PATHS)
        await other.change({"group:g": lambda current: {"b": "2"}})
        await until(lambda: read[-1].resources == {"broker:": {"a": "1"}, "group:g": {"b": "2"}})

    run_scenario(scenario)


def test_refused_change_is_reported() -> None:
    async def scenario(place: MembershipFixture) -> None:
        store = ClusterConfigStore(place.cluster)
        invalid = Refusal(ErrorCode.INVALID_CONFIG, "no")
        assert await store.change({"broker:": lambda current: invalid}) == {"broker:": invalid}
        large = await store.change({"group:g": lambda current: {"a": "x" * 600_000}})
        assert large["group:g"].code is ErrorCode.POLICY_VIOLATION
        assert PATHS.configs not in place.zoo.nodes

    run_scenario(scenario)


def test_change_with_lost_reply_is_decided_again() -> None:
    async def scenario(place: MembershipFixture) -> None:
        store = ClusterConfigStore(place.cluster)
        place.session.after = lose_transactions()
        seen: list[Mapping[str, str]] = []

        def decide(current: Mapping[str, str]) -> Mapping[str, str] | Refusal:
            seen.append(current)
            return {"a": "1"}

        assert await store.change({"broker:": decide}) == {}
        assert seen == [{}, {"a": "1"}]

    run_scenario(scenario)


@pytest.mark.slow
@pytest.mark.xdist_group("zookeeper")
@pytest.mark.timeout(600)
def test_configs_reach_all_brokers_and_survive_restart(
    zookeeper: Ensemble, tmp_path: Path, path: str
) -> None:
    session, retention = "consumer.session.timeout.ms", "log.retention.ms"
    with brokers(tmp_path / "all", zookeeper.connect_string, path) as running:
        with RawClient(running[1].address) as one, RawClient(running[2].address) as two:
            assert alter(one, (SET, retention, "3000"), name="", kind=BROKER) == 0
            assert alter(one, (SET, session, "50000"), name="g", kind=GROUP) == 0
            assert alter(two, (SET, retention, "2000"), name="2", kind=BROKER) == 0
            assert alter(two, (SET, retention, "2000"), name="1", kind=BROKER) == 42
            for raw, name, value in ((one, "1", "3000"), (two, "2", "2000")):
                assert config(raw, retention, name=name, kind=BROKER).value == value
                eventually(
                    lambda raw=raw: config(raw, session, name="g", kind=GROUP).value == "50000"
                )
            assert alter(two, (DELETE, retention, None), name="2", kind=BROKER) == 0
            entry = config(two, retention, name="2", kind=BROKER)
            assert (entry.value, entry.config_source) == ("3000", 3)
        running[2].kill()
        running[2].start()
        with RawClient(running[2].address) as two:
            assert config(two, retention, name="2", kind=BROKER).value == "3000"
            assert config(two, session, name="g", kind=GROUP).value == "50000"
