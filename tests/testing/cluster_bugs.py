"""Bugs planted in the code with which brokers form a cluster; each replaces one method."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from partage.broker.cluster import cluster_membership
from partage.broker.cluster.cluster_membership import ClusterMembership
from partage.broker.cluster.owned_shards import OwnedShards
from partage.broker.cluster.registry_view import RegistryView
from partage.broker.cluster.session_writer import SessionWriter
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.transactions.transaction_shard_host import TransactionShardHost
from partage.store.lease import Lease
from partage.store.shared_log import SharedLog
from partage.store.zookeeper import StoreError

Patch = pytest.MonkeyPatch


def acknowledges_before_it_stores(patch: Patch) -> None:
    """A commit is acknowledged before ZooKeeper has stored it."""
    append = SessionWriter.append

    def early(self: SessionWriter, to: SharedLog, batch: bytes, written: Any) -> None:
        append(self, to, batch, lambda fault: None)
        asyncio.get_running_loop().call_soon(written, None)

    patch.setattr(SessionWriter, "append", early)


def answers_without_a_lease(patch: Patch) -> None:
    """A broker that is cut off from ZooKeeper, or was paused, answers from old state."""
    patch.setattr(OwnedShards, "may_answer", lambda self: True)


def keeps_shards_after_its_session(patch: Patch) -> None:
    """A broker keeps its shards when its session has ended."""
    patch.setattr(ClusterMembership, "_on_session_ended", lambda self: self._changed.set())


def keeps_released_shards(patch: Patch) -> None:
    """A broker serves a shard that it has released for another broker."""

    def resign(self: OwnedShards, shard: int) -> None:
        self._logs.pop(shard, None)

    patch.setattr(OwnedShards, "_resign", resign)


def does_not_load_shards(patch: Patch) -> None:
    """A broker takes over shards without reading their state."""
    for host in (ShardHost, TransactionShardHost):
        patch.setattr(host, "load", lambda self, topics=None: self.start_empty())


def does_not_register_again(patch: Patch) -> None:
    """A broker whose session has ended does not come back."""

    async def forever(self: ClusterMembership) -> None:
        await asyncio.Event().wait()

    patch.setattr(ClusterMembership, "_start_new_session", forever)


def flushes_only_once(patch: Patch) -> None:
    """Only the first batch of appends of a session is written."""
    flush = SessionWriter._flush

    async def once(self: SessionWriter) -> None:
        flushing = self._flushing
        await flush(self)
        self._flushing = flushing

    patch.setattr(SessionWriter, "_flush", once)


def does_not_follow_the_registry(patch: Patch) -> None:
    """A broker does not notice that another one has ended."""
    refresh = ClusterMembership._refresh_registry

    async def once(self: ClusterMembership) -> None:
        if not self._registry.brokers:
            await refresh(self)

    patch.setattr(ClusterMembership, "_refresh_registry", once)


def names_itself_as_each_coordinator(patch: Patch) -> None:
    """FindCoordinator names the broker that was asked."""
    patch.setattr(RegistryView, "_owner", lambda self, shard: self.node.node_id)


def does_not_read_topics_before_it_takes_shards(patch: Patch) -> None:
    """A broker that was away does not apply the topics of the cluster."""

    async def nothing(self: ClusterMembership, *, is_first: bool = False) -> None:
        await self._registry.mark_ready()

    async def never(self: ClusterMembership, *, is_first: bool = False) -> None:
        if not is_first:
            await asyncio.Event().wait()

    patch.setattr(ClusterMembership, "_become_ready", nothing)
    patch.setattr(ClusterMembership, "_reconcile_topics", never)


def gives_up_on_a_lost_connection(patch: Patch) -> None:
    """A request in doubt ends the loop that follows the cluster."""
    run = ClusterMembership._run_session

    async def fragile(self: ClusterMembership) -> None:
        try:
            await run(self)
        except StoreError:
            await asyncio.Event().wait()

    patch.setattr(ClusterMembership, "_run_session", fragile)


def waits_for_ever_for_a_connection(patch: Patch) -> None:
    """The lease is renewed until the first lost connection only."""
    renew = cluster_membership.renew_lease

    async def until_lost(lease: Lease, session: Any, *arguments: Any) -> None:
        session.wait_connected = asyncio.Event().wait
        await renew(lease, session, *arguments)

    patch.setattr(cluster_membership, "renew_lease", until_lost)


#: The bugs, each with a seed. Its world finds the bug, or one of the next few worlds does.
BUGS: dict[Callable[[Patch], None], int] = {
    acknowledges_before_it_stores: 1,
    answers_without_a_lease: 12,
    keeps_shards_after_its_session: 10,
    keeps_released_shards: 2,
    does_not_load_shards: 1,
    does_not_register_again: 1,
    flushes_only_once: 1,
    does_not_follow_the_registry: 1,
    names_itself_as_each_coordinator: 1,
    does_not_read_topics_before_it_takes_shards: 1,
    gives_up_on_a_lost_connection: 1,
    waits_for_ever_for_a_connection: 1,
}
