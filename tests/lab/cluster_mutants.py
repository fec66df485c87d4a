"""Mutants that only show in clusters, where brokers share their groups."""

from __future__ import annotations

from .mutant import Mutant

_S = "partage.store"

CLUSTER_MUTANTS = (
    Mutant(
        "a lease does not expire",
        f"{_S}.lease",
        "return self._until_ms is not None and now_ms < self._until_ms",
        "return self._until_ms is not None",
    ),
    Mutant(
        "a transaction in doubt counts as committed",
        "partage.store.write_batcher",
        "                    one.is_in_doubt = True\n"
        "                await self._session.wait_connected()\n",
        "                    self._complete(one)\n                return\n",
    ),
    Mutant(
        "the last entry of a shared log is not read",
        f"{_S}.shared_log",
        "+ [entry.batch for entry in self._entries]",
        "+ [entry.batch for entry in self._entries[:-1]]",
    ),
    Mutant(
        "replies of a resigned shard are sent",
        "partage.runtime.shard_driver",
        "(ticket, self.replace_with_error(reply, error)) for",
        "(ticket, reply) for",
    ),
    Mutant(
        "a merge keeps only the first entry",
        f"{_S}.shared_log",
        "blobs += [entry.batch for entry in entries]",
        "blobs += [entry.batch for entry in entries[:1]]",
    ),
    Mutant(
        "merged entries are read twice",
        f"{_S}.shared_log",
        "await self._commit_state(entries[-1].number + 1, [part",
        "await self._commit_state(entries[0].number, [part",
    ),
    Mutant(
        "live brokers are read before shard owners",
        "partage.store.cluster_registry",
        "        await self._read_shards(changed)\n        await self.refresh_brokers(changed)\n",
        "        await self.refresh_brokers(changed)\n        await self._read_shards(changed)\n",
    ),
    Mutant(
        "writes have no fence",
        f"{_S}.shared_log",
        "self.fence = Check(paths.shard(shard), version)",
        "self.fence = Check(paths.shard(shard), -1)",
    ),
)
