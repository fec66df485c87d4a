"""The worlds of `SingleWriter`: an election, and a journal in which no writer writes too late."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from partage.client.consumer.consumer import Consumer
from partage.model.topic_partition import TopicPartition
from partage.recipes.election import LeaderElection, Term
from partage.recipes.single_writer import SingleWriter
from partage.testing.recipe_worlds.election_program import UNIT, ElectionProcess, ElectionProgram
from partage.testing.recipe_worlds.exclusive_work import ExclusiveWork
from partage.testing.recipe_worlds.recipe_process import InjectedError
from partage.testing.recipe_worlds.recipe_program import GROUP
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.world.world import PartageWorld

_JOURNAL: Final = TopicPartition("journal", 0)
_RECORDS: Final = 2  # of each transaction
_POLL_MS: Final = 500
#: aiokafka's names of the errors after which the recipe makes the process a candidate again.
_FENCED: Final = ("ProducerFenced", "InvalidProducerEpoch")


class Journal:
    """The transactions of all writers.

    Attributes:
        acknowledged: The transactions whose commit has returned, in this order.
        begun: The number of transactions.
        visible: The visible offsets when the producer of a term was initialized, by token.
    """

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.begun = 0
        self.visible: dict[int, set[int]] = {}

    def late(self, token: int, offset: int) -> list[int]:
        """Return the tokens of later terms that began before a record was visible."""
        return [
            each for each, known in self.visible.items() if token < each and offset not in known
        ]


class SingleWriterProcess(ElectionProcess):
    """A participant that writes transactions while it leads."""

    def __init__(
        self,
        name: str,
        world: PartageWorld,
        scenario: RecipeScenario,
        work: ExclusiveWork,
        journal: Journal,
    ) -> None:
        super().__init__(name, world, scenario, work)
        self._journal = journal

    def create(self) -> LeaderElection:
        return SingleWriter(
            self.world.bootstrap_servers,
            GROUP,
            create_producer=self._create_producer,
            write=self._write,
            identity={"name": self.name},
            priority=self.priority,
            stop_ms=self.scenario.stop_ms,
            **self.scenario.group_options,
        )

    def is_out_after(self, failure: BaseException) -> bool:
        return type(failure).__name__ not in _FENCED

    def _create_producer(self, transactional_id: str) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.world.bootstrap_servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=10_000,
            request_timeout_ms=5_000,
        )
        start = producer.start

        async def watched_start() -> None:
            try:
                await start()
            except BaseException:  # aiokafka leaves connections behind
                self.checks_connections = False
                raise

        producer.start = watched_start
        return producer

    async def _write(self, term: Term, producer: Any) -> None:
        if self.has_resigned:
            self.world.break_rule("resigned", f"{self.name} begins a term after it resigned")
        run = self.work.begin(UNIT, lambda: term.is_active, term.token)
        broker = self.world.leader(*_JOURNAL)
        if self.world.is_running(broker):
            self._journal.visible[term.token] = self.world.visible_offsets(_JOURNAL)
        try:
            while True:
                if term.is_active:
                    self.work.step(run)
                if self.fails_now():
                    raise InjectedError
                await self._write_transaction(term, producer)
                await asyncio.sleep(self.rng.uniform(0.1, 3.0 if self.is_calm else 0.5))
        except Exception as error:
            self.world.note(f"{self.name}: {type(error).__name__}: {error}")
            raise
        finally:
            try:
                await self.clean_up()
            finally:
                self.work.end(run)

    async def _write_transaction(self, term: Term, producer: Any) -> None:
        self._journal.begun += 1
        transaction = f"{term.token} {self._journal.begun}"
        await producer.begin_transaction()
        for number in range(_RECORDS):
            value = f"{transaction} {number}".encode()
            await producer.send_and_wait(_JOURNAL.topic, value, partition=_JOURNAL.partition)
        await producer.commit_transaction()
        self._journal.acknowledged.append(transaction)


class SingleWriterProgram(ElectionProgram):
    """The participants of a single writer."""

    def __init__(self, world: PartageWorld, scenario: RecipeScenario) -> None:
        self._journal = Journal()
        super().__init__(world, scenario)

    @property
    def work_count(self) -> int:
        return len(self._journal.acknowledged)

    def create_process(self, name: str) -> SingleWriterProcess:
        return SingleWriterProcess(name, self.world, self.scenario, self.work, self._journal)

    async def prepare(self) -> None:
        await self.world.create_topic(_JOURNAL.topic, 1)

    async def check(self) -> None:
        await super().check()
        count = len(self._journal.acknowledged)
        await self.wait(
            "liveness",
            "a transaction of the last leader",
            lambda: len(self._journal.acknowledged) > count,
            self.handover_s,
        )

    async def finish(self) -> None:
        """Read the journal: tokens never fall, and each acknowledged transaction is complete."""
        await asyncio.sleep(15)  # open transactions are aborted after 10 s
        records = await self._read()
        values = [value for _, value in records]
        counts = Counter(value.rpartition(" ")[0] for value in values)
        token = -1
        for offset, value in records:
            own = int(value.split()[0])
            if own < token:
                await self.fail("journal", f"{value!r} is behind records of the token {token}")
            token = own
            if later := self._journal.late(own, offset):
                await self.fail("journal", f"{value!r} was committed in the terms {later}")
        torn = [each for each, count in counts.items() if count != _RECORDS]
        if torn:
            await self.fail("journal", f"transactions in part or twice: {torn}")
        lost = [each for each in self._journal.acknowledged if each not in counts]
        if lost:
            await self.fail("journal", f"acknowledged transactions are lost: {lost}")

    async def _read(self) -> list[tuple[int, str]]:
        end = len(self.world.records(_JOURNAL.topic))
        async with Consumer(
            self.world.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign([_JOURNAL])
            found: list[tuple[int, str]] = []
            while len(found) < end:
                records = list(await consumer.poll(_POLL_MS))
                if not records:
                    break
                found += [(each.offset, (each.value or b"").decode()) for each in records]
        return found
