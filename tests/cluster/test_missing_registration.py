"""A broker whose registration was removed, on a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from partage.store.shard_log import shard_of
from partage.store.zookeeper import Create, Delete, Operation
from store.zk_fixture import PATHS, SHARDS

from .test_cluster_membership import MembershipFixture, run_scenario, until


def test_broker_without_registration_gives_up_shards() -> None:
    """Other brokers take its shards at once, so it must not wait until it is registered again."""

    async def scenario(place: MembershipFixture) -> None:
        await place.owns()
        is_free = asyncio.Event()

        async def register_later(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str) and isinstance(what[0], Create):
                await is_free.wait()

        place.session.before = register_later
        await place.player.session.transact([Delete(PATHS.broker(1))])
        await until(lambda: not place.cluster.owns(shard_of("g", SHARDS)))
        is_free.set()
        await place.owns()

    run_scenario(scenario)
