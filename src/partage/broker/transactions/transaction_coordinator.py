"""The transaction coordinator of a broker: a host for each partition of its topic."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from partage.broker.clock import Clock
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.broker.transactions.transaction_shard_host import ReplyTicket, TransactionShardHost
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.statemachine.linear_pattern import LinearPattern
from partage.store.shard_log import find_shard
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
from partage.transactions.records import TransactionRecord
from partage.transactions.replies import (
    DescribeTransactionReply,
    ListTransactionsReply,
    PartitionsReply,
    ProducerReply,
    TransactionReply,
    error_reply,
)
from partage.transactions.transaction import LAST_CLIENT_EPOCH

#: Transactional ids that ListTransactions examines in one turn of the loop.
_LISTED_PER_TURN: Final = 1024

PartitionsDone = Callable[[Mapping[TopicPartition, ErrorCode]], None]
Reply = TypeVar("Reply")


class TransactionCoordinator(ABC):
    """Routes each request to the shard of its transactional id.

    It implements `TransactionParticipation`.

    Args:
        clock: the broker's clock.
        producer_ids: allocates producer ids.
        markers: writes markers.
    """

    def __init__(
        self, clock: Clock, producer_ids: ProducerIdManager, markers: MarkerWriter
    ) -> None:
        self.hosts: list[TransactionShardHost] = []
        self._clock = clock
        self._producer_ids = producer_ids
        self._markers = markers
        self._fails_verification: Callable[[TopicPartition], bool] | None = None

    @abstractmethod
    async def create_topic(self) -> bool:
        """Create the storage of the shards if it does not exist; return True if it exists then."""

    # Start and stop.

    async def wait_loaded(self) -> None:
        """Return once every shard is loaded."""
        for host in self.hosts:
            await host.wait_loaded()

    def close(self) -> None:
        """Stop handling events."""
        for host in self.hosts:
            host.close()
        self._markers.close()

    @property
    def markers(self) -> MarkerWriter:
        """The writer of markers, for tests that inject faults."""
        return self._markers

    def fail_verification_if(self, fails: Callable[[TopicPartition], bool]) -> None:
        """Admit no partition for which ``fails`` returns True; for tests that inject faults."""
        self._fails_verification = fails

    def host_of(self, transactional_id: str) -> TransactionShardHost:
        """Return the host of the shard of a transactional id; the topic must exist."""
        return self.hosts[find_shard(transactional_id, len(self.hosts))]

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
        *,
        may_wait: bool = True,
    ) -> None:
        """Add partitions to a transaction; ``done`` gets an error for each.

        Args:
            transactional_id: the transactional id.
            producer_id: the producer id.
            epoch: its epoch.
            partitions: the partitions.
            version: the version of transactions.
            done: called with the errors, once the partitions are durable.
            may_wait: False to refuse the request at once while the previous transaction still lacks
                markers. Requests of other brokers must not wait, because one request at a time has
                the questions of all their producers.
        """
        request = AddPartitions(
            at_ms=self._clock.now_ms(),
            reply_to=_partitions_ticket(partitions, done),
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=tuple(partitions),
            version=version,
        )
        if may_wait and self.hosts:
            self.host_of(transactional_id).handle_when_complete(request)
        else:
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
        if self._fails_verification is not None:
            failed = {each for each in partitions if self._fails_verification(each)}
            if failed:
                done = _merge_failed(failed, done)
                partitions = [each for each in partitions if each not in failed]
                if not partitions:
                    done({})
                    return
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
        """Return the transactional ids of this broker's shards that pass the filters.

        While a shard is loading, the reply is its error, as in Kafka. Other requests are handled
        between parts of a shard.
        """
        filters = ListTransactions(
            at_ms=self._clock.now_ms(),
            reply_to=None,
            states=states,
            producer_ids=producer_ids,
            duration_ms=duration_ms,
            pattern=pattern,
            count_max=_LISTED_PER_TURN,
        )
        first_replies = []
        for host in self.hosts:
            first_replies.append(_list_part(host, filters))
            await asyncio.sleep(0)
        records: list[TransactionRecord] = []
        for host, first_reply in zip(self.hosts, first_replies, strict=True):
            reply = await first_reply
            unlisted = reply.unlisted
            records += reply.records
            for begin in range(0, len(unlisted), _LISTED_PER_TURN):
                if reply.error:
                    break
                names = unlisted[begin : begin + _LISTED_PER_TURN]
                part = msgspec.structs.replace(filters, names=names)
                reply = await _list_part(host, part)
                records += reply.records
                await asyncio.sleep(0)
            # Another broker lists the ids of the shards that it owns.
            if reply.error and reply.error is not ErrorCode.NOT_COORDINATOR:
                return reply
        return ListTransactionsReply(records=tuple(records))


def _list_part(
    host: TransactionShardHost, request: ListTransactions
) -> asyncio.Future[ListTransactionsReply]:
    waiter = _Waiter[ListTransactionsReply]()
    host.handle(msgspec.structs.replace(request, reply_to=waiter.ticket))
    return waiter.future


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


def _merge_failed(failed: Collection[TopicPartition], done: PartitionsDone) -> PartitionsDone:
    """Return ``done`` for the other partitions of a request whose verification failed in part."""
    errors = dict.fromkeys(failed, ErrorCode.TRANSACTION_ABORTABLE)
    return lambda others: done({**others, **errors})


def _unknown_id(request: TransactionRequest) -> TransactionReply:
    """Return the reply if no transactional id exists."""
    return error_reply(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
