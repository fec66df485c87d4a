"""The transaction coordinator of a single broker: a host for each partition of its topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from partage.broker.clock import Clock
from partage.broker.coordination.state_store import LocalStore
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.broker.transactions.transaction_shard_host import ReplyTicket, TransactionShardHost
from partage.log.disk import Disk
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.statemachine.linear_pattern import LinearPattern
from partage.store.shard_log import shard_of
from partage.store.transaction_log import TOPIC, TOPIC_CONFIGS, encode_transactions
from partage.transactions.events import (
    VERSION_2,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    TransactionRequest,
    VerifyPartitions,
)
from partage.transactions.replies import (
    DescribeTransactionReply,
    ListTransactionsReply,
    PartitionsReply,
    ProducerReply,
    TransactionReply,
    error_reply,
)
from partage.transactions.transaction import LAST_CLIENT_EPOCH

log = logging.getLogger(__name__)

PartitionsDone = Callable[[Mapping[TopicPartition, ErrorCode]], None]
Reply = TypeVar("Reply")


class TransactionCoordinator:
    """Routes each request to the shard of its transactional id.

    It implements `TransactionParticipation`. The topic is created at the first use, so brokers
    without transactions have no such partitions.

    Args:
        log_manager: the broker's partitions.
        disk: the data directory.
        settings: the transaction settings.
        clock: the broker's clock.
        producer_ids: allocates producer ids.
        markers: writes markers.
        loaders: threads for loading; by default the loop's pool.
    """

    def __init__(
        self,
        log_manager: LogManager,
        disk: Disk,
        settings: TransactionSettings,
        clock: Clock,
        producer_ids: ProducerIdManager,
        markers: MarkerWriter,
        loaders: Executor | None = None,
    ) -> None:
        self.hosts: list[TransactionShardHost] = []
        self._log_manager = log_manager
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._producer_ids = producer_ids
        self._markers = markers
        self._loaders = loaders
        self._creation = asyncio.Lock()

    # Start and stop.

    def open(self) -> None:
        """Load the shards if the topic exists; decided transactions are completed."""
        topic = self._log_manager.topic(TOPIC)
        if topic is None or self.hosts:
            return
        for index in range(topic.partition_count):
            store = LocalStore(self._log_manager, self._disk, index, TOPIC, encode_transactions)
            host = TransactionShardHost(
                f"{TOPIC}-{index}",
                store,
                self._settings,
                self._clock,
                self._markers,
                self._loaders,
            )
            self.hosts.append(host)
            if store.is_empty:
                host.start_empty()
            else:
                host.load()

    async def create_topic(self) -> bool:
        """Create the topic if it does not exist; return True if it exists then."""
        async with self._creation:
            if not self.hosts:
                created = await self._log_manager.create(
                    TOPIC, self._settings.partitions, TOPIC_CONFIGS
                )
                if isinstance(created, Refusal):
                    log.error("topic %s cannot be created: %s", TOPIC, created.message)
                    return False
                self.open()
        return True

    async def wait_loaded(self) -> None:
        """Return once every shard is loaded."""
        for host in self.hosts:
            await host.wait_loaded()

    def close(self) -> None:
        """Stop handling events."""
        for host in self.hosts:
            host.close()

    @property
    def markers(self) -> MarkerWriter:
        """The writer of markers, for tests that inject faults."""
        return self._markers

    def host_of(self, transactional_id: str) -> TransactionShardHost:
        """Return the host of the shard of a transactional id; the topic must exist."""
        return self.hosts[shard_of(transactional_id, len(self.hosts))]

    # Requests.

    def _handle(self, transactional_id: str, request: TransactionRequest, missing: Any) -> None:
        """Hand a request to its shard; reply ``missing`` if the topic does not exist."""
        if self.hosts:
            self.host_of(transactional_id).handle(request)
        else:
            ticket = request.reply_to
            assert isinstance(ticket, ReplyTicket)
            ticket.done(missing)

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        done: Callable[[ProducerReply], None],
    ) -> None:
        """Give a transactional producer its id and epoch."""
        request = InitProducer(
            at_ms=self._clock.now_ms(),
            reply_to=ReplyTicket(done),
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            producer_id=producer_id,
            epoch=epoch,
            fresh_producer_id=self._producer_ids.next_id(),
        )
        missing = ProducerReply(error=ErrorCode.NOT_COORDINATOR)
        self._handle(transactional_id, request, missing)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        version: int,
        done: PartitionsDone,
    ) -> None:
        """Add partitions to a transaction; ``done`` gets an error for each."""
        request = AddPartitions(
            at_ms=self._clock.now_ms(),
            reply_to=_partitions_ticket(partitions, done),
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=tuple(partitions),
            version=version,
        )
        self._handle(transactional_id, request, _unknown_id(request))

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        done: PartitionsDone,
    ) -> None:
        """Check that partitions belong to the open transaction."""
        request = VerifyPartitions(
            at_ms=self._clock.now_ms(),
            reply_to=_partitions_ticket(partitions, done),
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=tuple(partitions),
        )
        self._handle(transactional_id, request, _unknown_id(request))

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: PartitionsDone,
    ) -> None:
        """Check that partitions belong to the open transaction, or add them to it."""
        if adds:
            self.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, VERSION_2, done
            )
        else:
            self.verify_partitions(transactional_id, producer_id, producer_epoch, partitions, done)

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        version: int,
        done: Callable[[ProducerReply], None],
    ) -> None:
        """Commit or abort a transaction; ``done`` is called when the decision is durable."""
        is_exhausted = epoch >= LAST_CLIENT_EPOCH
        request = EndTransaction(
            at_ms=self._clock.now_ms(),
            reply_to=ReplyTicket(done),
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            is_commit=is_commit,
            version=version,
            fresh_producer_id=self._producer_ids.next_id() if is_exhausted else -1,
        )
        self._handle(transactional_id, request, _unknown_id(request))

    async def describe(self, transactional_id: str) -> DescribeTransactionReply:
        """Return the state of a transactional id."""
        waiter = _Waiter[DescribeTransactionReply]()
        request = DescribeTransaction(
            at_ms=self._clock.now_ms(), reply_to=waiter.ticket, transactional_id=transactional_id
        )
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if not transactional_id:
            missing = ErrorCode.INVALID_REQUEST
        self._handle(transactional_id, request, DescribeTransactionReply(error=missing))
        return await waiter.future

    async def list_transactions(
        self,
        states: frozenset[str],
        producer_ids: frozenset[int],
        duration_ms: int,
        pattern: LinearPattern | None,
    ) -> ListTransactionsReply:
        """Return the transactional ids of all shards that pass the filters.

        While a shard is loading, the reply is its error, as in Kafka.
        """
        waiters = []
        for host in self.hosts:
            waiter = _Waiter[ListTransactionsReply]()
            waiters.append(waiter)
            host.handle(
                ListTransactions(
                    at_ms=self._clock.now_ms(),
                    reply_to=waiter.ticket,
                    states=states,
                    producer_ids=producer_ids,
                    duration_ms=duration_ms,
                    pattern=pattern,
                )
            )
        replies = [await waiter.future for waiter in waiters]
        failed = next((reply for reply in replies if reply.error), None)
        if failed is not None:
            return failed
        return ListTransactionsReply(
            records=tuple(record for reply in replies for record in reply.records)
        )


class _Waiter(Generic[Reply]):
    """A ticket whose reply can be awaited."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.ticket = ReplyTicket(self._on_reply)

    def _on_reply(self, reply: Reply) -> None:
        if not self.future.done():
            self.future.set_result(reply)


def _partitions_ticket(partitions: Sequence[TopicPartition], done: PartitionsDone) -> ReplyTicket:
    def on_reply(reply: PartitionsReply) -> None:
        done(dict(zip(partitions, reply.errors, strict=True)))

    return ReplyTicket(on_reply)


def _unknown_id(request: TransactionRequest) -> TransactionReply:
    """Return the reply if no transactional id exists."""
    return error_reply(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
