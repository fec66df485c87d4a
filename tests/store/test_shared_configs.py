"""Altered configs that several brokers share."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from partage.store.memory import MemoryZooKeeper, lose_transactions
from partage.store.shared_configs import ConfigsTooLargeError, SharedConfigs
from partage.store.zk_schema import ConfigsDoc, ForeignDataError
from partage.store.zookeeper import Create, Operation

from .zk_fixture import PATHS, BrokerStores, nothing, run


async def configs_of(zoo: MemoryZooKeeper, broker_id: int) -> tuple[BrokerStores, SharedConfigs]:
    broker = await BrokerStores(zoo, broker_id).register()
    return broker, SharedConfigs(broker.session, PATHS)


def test_change_is_read_by_all_brokers() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        (_, one), (_, two) = await configs_of(zoo, 1), await configs_of(zoo, 2)
        heard: list[int] = []
        assert await two.read(lambda: heard.append(1)) == ConfigsDoc()
        await one.change({"broker:": lambda current: {"a": "1"}})
        assert heard == [1]
        await two.change({"group:g": lambda current: {**current, "b": "2"}})
        expected = {"broker:": {"a": "1"}, "group:g": {"b": "2"}}
        assert (await one.read(nothing)).resources == expected
        await one.change({"broker:": lambda current: {}})
        assert (await two.read(nothing)).resources == {"group:g": {"b": "2"}}

    run(scenario())


def test_refused_change_writes_nothing() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        _, one = await configs_of(zoo, 1)
        await one.change({"broker:": lambda current: None})
        assert PATHS.configs not in zoo.nodes

    run(scenario())


@pytest.mark.parametrize("exists", [True, False])
def test_concurrent_changes_are_both_applied(exists: bool) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        (_, one), (second, two) = await configs_of(zoo, 1), await configs_of(zoo, 2)
        if exists:
            await one.change({"group:g": lambda current: {"0": "0"}})

        quiet = second.session.before

        async def first_one(what: object) -> None:
            second.session.before = quiet
            await one.change({"broker:1": lambda current: {"a": "1"}})

        seen: list[Mapping[str, str]] = []

        def decide(current: Mapping[str, str]) -> Mapping[str, str]:
            if not seen:
                second.session.before = first_one
            seen.append(current)
            return {**current, "b": "2"}

        await two.change({"broker:1": decide})
        assert seen == [{}, {"a": "1"}]
        assert (await one.read()).resources["broker:1"] == {"a": "1", "b": "2"}

    run(scenario())


@pytest.mark.parametrize("is_applied", [True, False])
def test_lost_reply_applies_change_once(is_applied: bool) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        broker, one = await configs_of(zoo, 1)
        fault = lose_transactions()
        if is_applied:
            broker.session.after = fault
        else:
            broker.session.before = fault
        await one.change({"broker:": lambda current: {"a": "1"}})
        assert (await one.read()).resources == {"broker:": {"a": "1"}}

    run(scenario())


def test_too_many_configs_are_refused() -> None:
    async def scenario() -> None:
        _, one = await configs_of(MemoryZooKeeper(), 1)
        with pytest.raises(ConfigsTooLargeError, match="delete those of unused groups"):
            await one.change({"group:g": lambda current: {"a": "x" * 600_000}})
        assert await one.read() == ConfigsDoc()

    run(scenario())


def test_foreign_content_is_refused() -> None:
    async def scenario() -> None:
        broker, one = await configs_of(MemoryZooKeeper(), 1)
        operations: list[Operation] = [Create(PATHS.configs, b"[]")]
        await broker.session.transact(operations)
        with pytest.raises(ForeignDataError):
            await one.read()

    run(scenario())
