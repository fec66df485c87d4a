"""Bugs to plant in the recipes and in their leases; see `shell_mutation`."""

from __future__ import annotations

from lab.mutant import Mutant

_ELECTION = "partage.recipes.election"
_GUARD = "partage.recipes.lease_guard"
_POOL = "partage.recipes.pool"
_ASSIGNOR = "partage.recipes.unit_assignor"
_WRITER = "partage.recipes.single_writer"
_PROCESSOR = "partage.recipes.processor"
_BASE = "partage.recipes.base_processor"
_TASKS = "partage.recipes.tasks"
_LEASE = "partage.client.group.lease_tracker"
_PROTOCOL = "partage.client.group.membership_protocol"
_MEMBERSHIP = "partage.client.membership"

_OF_ELECTION = {"recipe": "election"}
_OF_POOL = {"recipe": "pool"}
_OF_WRITER = {"recipe": "single_writer"}
_OF_PROCESSOR = {"recipe": "processor"}
_OF_MEMBERSHIP = {"recipe": "membership"}

RECIPE_MUTANTS = (
    Mutant(
        "a lease counts from the response",
        _LEASE,
        "self._note(sent_ms, event)",
        "self._note(event.at_ms, event)",
        _OF_ELECTION,
    ),
    Mutant(
        "a lease outlasts a rebalance that the member misses",
        _LEASE,
        """return min(
            self._heard_ms + self._settings.session_timeout_ms,
            self._stable_ms + self._rejoin_timeout_ms,
        )""",
        "return self._heard_ms + self._settings.session_timeout_ms",
        _OF_ELECTION,
    ),
    Mutant(
        "the time to stop is not subtracted from a lease",
        _GUARD,
        "ends_ms - margin_ms - now_ms()",
        "ends_ms - now_ms()",
        _OF_ELECTION,
    ),
    Mutant(
        "a term ends without waiting for its work",
        _ELECTION,
        "        await cancel_and_wait(term.task)\n",
        "        if term.task is not None:\n            term.task.cancel()\n",
        _OF_ELECTION,
    ),
    Mutant(
        "no task watches the lease of a term",
        _ELECTION,
        "await wait_lease_expired(self._membership, self._margin_ms)",
        "await asyncio.Event().wait()",
        _OF_ELECTION,
    ),
    Mutant(
        "a lost member keeps its term",
        _ELECTION,
        "self._election._leader = None\n        await self._election._end(self._election._term)",
        "self._election._leader = None",
        _OF_ELECTION,
    ),
    Mutant(
        "the members do not learn of a term",
        _ELECTION,
        "token = None if self._term is None else self._term.token",
        "token = None",
        _OF_ELECTION,
    ),
    Mutant(
        "a term is active after the end of its lease",
        _ELECTION,
        "return not self._ended.is_set() and self._is_sure()",
        "return not self._ended.is_set()",
        _OF_ELECTION,
    ),
    Mutant(
        "a term begins again with its token",
        _ELECTION,
        "== assignment.generation != self._ended_token",
        "== assignment.generation",
        _OF_ELECTION,
    ),
    Mutant(
        "a process that resigned is a candidate",
        _ELECTION,
        "        self._stands = False\n        term = self._term\n",
        "        term = self._term\n",
        _OF_ELECTION,
    ),
    Mutant(
        "the priority is ignored",
        "partage.recipes.elector",
        "key=lambda each: (-each[0].priority, each[1])",
        "key=lambda each: each[1]",
        _OF_ELECTION,
    ),
    Mutant(
        "units move without waiting for their work",
        _POOL,
        "        await self._stop(gone)\n",
        "        for unit in gone:\n            self._running.pop(unit).cancel()\n",
        _OF_POOL,
    ),
    Mutant(
        "moving units start before they are stopped",
        _ASSIGNOR,
        "{unit: member_id for unit, member_id in now.items() if unit not in moving}",
        "dict(target)",
        _OF_POOL,
    ),
    Mutant(
        "no task watches the lease of a worker",
        _POOL,
        "if self._watch is None or self._watch.done():",
        "if False:",
        _OF_POOL,
    ),
    Mutant(
        "a lost worker keeps its units",
        _POOL,
        "    async def on_lost(self, reason: str) -> None:\n        await self._pool.stop_all()",
        "    async def on_lost(self, reason: str) -> None:\n        pass",
        _OF_POOL,
    ),
    Mutant(
        "the units of a lost worker do not wait",
        _ASSIGNOR,
        "if name is not None and before.waited_ms.get(unit, 0) < delay_ms:",
        "if False:",
        _OF_POOL,
    ),
    Mutant(
        "units that waited are never given to others",
        _POOL,
        "if its.again_ms is not None and assignment.is_leader:",
        "if False:",
        _OF_POOL,
    ),
    Mutant(
        "a pool whose units were all stopped stays uneven",
        _ASSIGNOR,
        "placed = self.holders.keys()",
        "placed = running",
        _OF_POOL,
    ),
    Mutant(
        "a changed configuration restarts no unit",
        _POOL,
        "        await self._stop(self._changed_units(its.configs))\n",
        "",
        _OF_POOL,
    ),
    Mutant(
        "each term has its own transactional id",
        _WRITER,
        "self._create_producer(self.transactional_id)",
        'self._create_producer(f"{self.transactional_id}-{term.token}")',
        _OF_WRITER,
    ),
    Mutant(
        "a fenced writer is no candidate",
        _WRITER,
        'return type(error).__name__ in ("ProducerFenced", "InvalidProducerEpoch")',
        "return False",
        _OF_WRITER,
    ),
    Mutant(
        "an interrupted close leaves the producer open",
        _WRITER,
        "await asyncio.wait({closing}, timeout=self._margin_ms / 1000)",
        "await asyncio.wait({closing}, timeout=self._margin_ms / 1000)\n"
        "            closing.cancel()",
        _OF_WRITER,
    ),
    Mutant(
        "no commit before partitions are given up",
        _PROCESSOR,
        "            await self._commit(slots)\n        finally:",
        "            pass\n        finally:",
        _OF_PROCESSOR,
    ),
    Mutant(
        "commits without a flush",
        _PROCESSOR,
        "await call_task(slot.task.flush)",
        "pass",
        _OF_PROCESSOR,
    ),
    Mutant(
        "offsets of a failed task are committed",
        _BASE,
        "        for slot in slots\n        if not slot.has_failed\n",
        "        for slot in slots\n",
        _OF_PROCESSOR,
    ),
    Mutant(
        "a task is created before it has all partitions",
        _TASKS,
        "if task_id not in self._slots and self._owned.issuperset(task_id.partitions):",
        "if task_id not in self._slots:",
        _OF_PROCESSOR,
    ),
    Mutant(
        "a batch counts as processed when it begins",
        _PROCESSOR,
        "    slot = work.slot\n",
        "    slot = work.slot\n    work.mark_done()\n",
        _OF_PROCESSOR,
    ),
    Mutant(
        "tasks of lost partitions stay open",
        _PROCESSOR,
        "await self.close_tasks(self._tasks.remove_partitions(partitions))\n\n    def _pause",
        "self._tasks.remove_partitions(partitions)\n\n    def _pause",
        _OF_PROCESSOR,
    ),
    Mutant(
        "listener methods run at the same time",
        _PROTOCOL,
        "        async with self._listener_lock:\n"
        "            await self._call_listener(listen, what)",
        "        await self._call_listener(listen, what)",
        _OF_MEMBERSHIP,
    ),
    Mutant(
        "new metadata waits for the next rebalance",
        _MEMBERSHIP,
        "        if rejoins:\n",
        "        if False:\n",
        _OF_MEMBERSHIP,
    ),
    Mutant(
        "a closed membership does not leave",
        _MEMBERSHIP,
        "if not self._protocol.has_left:",
        "if False:",
        _OF_MEMBERSHIP,
    ),
    Mutant(
        "the connections of a membership stay open after close",
        _MEMBERSHIP,
        "            driver.close()\n            self._cluster.close()\n",
        "            driver.close()\n",
        _OF_MEMBERSHIP,
    ),
    Mutant(
        "an assignment of a lost generation is applied",
        _PROTOCOL,
        "            if era != self._era:\n",
        "            if False:\n",
        _OF_MEMBERSHIP,
    ),
    Mutant(
        "a lost generation keeps its lease",
        _LEASE,
        "            self._sent.clear()\n            self._stable_ms = None\n",
        "            self._sent.clear()\n",
        _OF_MEMBERSHIP,
    ),
)
