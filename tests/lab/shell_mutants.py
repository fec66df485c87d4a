"""Bugs to plant in the shells around the coordinators.

They were chosen from the code of the shells, before any world had run with one of them.
"""

from __future__ import annotations

from typing import Any, Final

from .mutant import Mutant

_HOST: Final = "partage.broker.coordination.base_shard_host"
_SHARD: Final = "partage.broker.coordination.shard_host"
_TIMERS: Final = "partage.broker.coordination.shard_timers"
_OWNED: Final = "partage.broker.cluster.owned_shards"
_STORE: Final = "partage.broker.cluster.shared_store"
_LEASE: Final = "partage.broker.cluster.lease_renewal"
_WRITER: Final = "partage.broker.cluster.session_writer"
_CLUSTER: Final[dict[str, Any]] = {"brokers": 3}
_CONSUMERS: Final[dict[str, Any]] = {"consumer_members": 3}  # only their groups compute targets

SHELL_MUTANTS = (
    Mutant(
        "replies are sent without a valid lease",
        _HOST,
        "return self._is_resigned or self._store.may_answer()",
        "return True",
        _CLUSTER,
    ),
    Mutant(
        "a failed append counts as durable",
        _HOST,
        "            if error:\n                self._fail(",
        "            if False:\n                self._fail(",
    ),
    Mutant(
        "results of appends before a failure count",
        _HOST,
        "        self._incarnation += 1\n        self._has_failed = True\n",
        "        self._has_failed = True\n",
    ),
    Mutant(
        "a log that has failed is not opened again",
        _HOST,
        "                if self._has_failed:\n                    await self._store.reopen()\n",
        "",
    ),
    Mutant(
        "a broker that gave up a shard answers that it is being loaded",
        _HOST,
        "        self._driver.resign()\n",
        "        self._driver.start_loading()\n",
        _CLUSTER,
    ),
    Mutant(
        "the records of a turn are appended in reverse order",
        _HOST,
        "self._store.append(append.records, self._clock",
        "self._store.append(append.records[::-1], self._clock",
    ),
    Mutant(
        "replies wait for the next turn of the shard",
        _HOST,
        "                self._driver.on_durable(mark)\n                self._flush_outputs()\n",
        "                self._driver.on_durable(mark)\n",
    ),
    Mutant(
        "the timers of a shard fire without a valid lease",
        _TIMERS,
        "return self._store.may_answer()",
        "return True",
        _CLUSTER,
    ),
    Mutant(
        "no timer is set after one has fired",
        _TIMERS,
        "            self._failed(error)\n        self._flush()\n        self.schedule()\n",
        "            self._failed(error)\n        self._flush()\n",
    ),
    Mutant(
        "a broker keeps the shards that another one owns",
        _OWNED,
        "                if self._registry.owner(shard) != self._broker_id:\n"
        "                    self._resign(shard)\n",
        "                pass\n",
        _CLUSTER,
    ),
    Mutant(
        "a takeover takes all topics for deleted ones",
        _OWNED,
        "self._hosts[shard].load(topics)",
        "self._hosts[shard].load(frozenset())",
        _CLUSTER,
    ),
    Mutant(
        "a broker keeps a shard after a write that was fenced",
        _OWNED,
        "if self._logs.get(lost.shard) is lost:",
        "if False:",
        _CLUSTER,
    ),
    Mutant(
        "replies wait for their next cause after the lease was renewed",
        _OWNED,
        "            self._hosts[shard].flush()\n",
        "            pass\n",
        _CLUSTER,
    ),
    Mutant(
        "a failed write to ZooKeeper counts as durable",
        _STORE,
        "stored(ErrorCode.KAFKA_STORAGE_ERROR)",
        "stored(ErrorCode.NONE)",
        _CLUSTER,
    ),
    Mutant(
        "the lease counts from the answer, not from the question",
        _LEASE,
        "lease.renew(sent_ms, answered_ms)",
        "lease.renew(answered_ms, answered_ms)",
        _CLUSTER,
    ),
    Mutant(
        "the renewal of the lease ends when the connection is lost",
        _LEASE,
        "                await session.wait_connected()\n                continue\n",
        "                return\n",
        _CLUSTER,
    ),
    Mutant(
        "only the first write to ZooKeeper is sent",
        _WRITER,
        "            return\n        self._flushing = None\n",
        "            return\n",
        _CLUSTER,
    ),
    Mutant(
        "a load takes all topics for deleted ones",
        _SHARD,
        "frozenset(known - topics)",
        "frozenset(known)",
    ),
    Mutant(
        "a computed target reaches a shard that was loaded later",
        _SHARD,
        "if incarnation == self._incarnation and not self._is_closed:",
        "if not self._is_closed:",
        _CONSUMERS,
    ),
    Mutant(
        "a loaded shard does not learn the topics",
        _SHARD,
        "            shard.handle(self._services.images.to_event(now_ms))\n        self._driver",
        "        self._driver",
    ),
)
