"""Performs the requests of `transaction_flow` at a cluster, with Kafka's protocol.

A plain producer cannot end the transaction of another process, so these requests use this
package's own client. They have the versions from before KIP-890, like librdkafka: there, a
transaction keeps its epoch when it ends, and a repeated EndTxn succeeds.
"""

from __future__ import annotations

import asyncio
import os.path
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

from partage.bridge.member_requests import to_error_code
from partage.client.cluster import Cluster
from partage.client.connection import Connection
from partage.client.errors import BrokerResponseError
from partage.client.group.committed_offsets import committed_offsets
from partage.client.group.offsets import OffsetAndMetadata
from partage.client.retries import Retries
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.spark.sink.batch_decision import (
    Marker,
    PreparedTransaction,
    SinkName,
    SinkState,
    decode_state,
    document_count,
    encode_state,
)
from partage.spark.sink.transaction_flow import (
    AbortOpen,
    AwaitMarkers,
    AwaitOwner,
    CommitAll,
    FindClosed,
    Flow,
    ReadMarkers,
    ReadState,
    Request,
    StoreState,
    TakeOver,
)
from partage.wire.api import Api
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from partage.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    GROUP,
    TRANSACTION,
    FindCoordinatorRequest,
)
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from partage.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from partage.wire.types import Message

#: The last versions before KIP-890.
_VERSION_MAX: Final = 3
_INIT_VERSION_MAX: Final = 4
_OPEN: Final = "Ongoing"
#: A longer pattern of ListTransactions is not sent: our brokers accept 250 characters.
_PATTERN_PREFIX_MAX: Final = 200
_OWNER_POLL_S: Final = 0.05
#: The topic of the offsets of a sink without a fixed topic. It always exists.
_ANY_TOPIC: Final = "__consumer_offsets"

_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)

T = TypeVar("T")
Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


class TransactionError(BrokerResponseError):
    """A coordinator responded with an error code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(code, what)
        self.is_retriable |= code == ErrorCode.CONCURRENT_TRANSACTIONS

    @property
    def is_fenced(self) -> bool:
        """True if the transaction has ended, or belongs to a later producer."""
        return self.code in _FENCED


class TransactionClient:
    """The transactions of one query's sink.

    Args:
        cluster: the cluster; its retry policy limits each request.
        sink: the names of the sink.
        topic: the topic to which all rows are written; None if each row names one.
        timeout_ms: ``transaction.timeout.ms``.
    """

    def __init__(
        self, cluster: Cluster, sink: SinkName, topic: str | None, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._sink = sink
        self._place = TopicPartition(topic or _ANY_TOPIC, 0)
        self._timeout_ms = timeout_ms

    async def run(self, flow: Flow[T]) -> T:
        """Perform the requests of a flow and return its result.

        Raises:
            ClientError: if a request fails.
            RuntimeError: the error of the flow.
        """
        reply: Any = None
        while True:
            try:
                request = flow.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await self.perform(request)

    async def perform(self, request: Request) -> Any:
        """Perform one request and return its reply.

        Raises:
            ClientError: if the cluster does not answer in time, or refuses the request.
        """
        match request:
            case ReadState(is_stable):
                return await self._read_state(is_stable=is_stable)
            case AwaitOwner():
                return await self._await_owner(request)
            case ReadMarkers(tasks):
                return await self._read_markers(tasks)
            case AwaitMarkers(tasks, batch):
                return await self._await_markers(tasks, batch)
            case TakeOver(transactional_id):
                return await self._take_over(transactional_id)
            case StoreState(state):
                return await self._store_state(state)
            case FindClosed(transactions):
                return await self._find_closed(transactions)
            case CommitAll(transactions):
                return await self._commit_all(transactions)
            case AbortOpen(prefixes):
                return await self._abort_open(prefixes)
        raise AssertionError(request)

    async def identify(self, transactional_id: str) -> tuple[int, int]:
        """Return the current producer id and epoch of a transactional id.

        Raises:
            ClientError: if the cluster does not answer in time, or the id does not exist.
        """
        described = await self._describe(transactional_id)
        return described.producer_id, described.producer_epoch

    async def add_marker(self, prepared: PreparedTransaction, marker: Marker) -> bool:
        """Add the marker of a task to its transaction; return False if it has ended.

        Raises:
            ClientError: if the cluster does not answer in time, or refuses the request.
        """
        group = self._sink.marker_group(prepared.task)
        producer = prepared.producer_id, prepared.producer_epoch
        transactional_id = self._transactional_id(prepared)
        document = f"{marker.digest:016x}"
        return await self._add_document(transactional_id, producer, group, marker.batch, document)

    # Requests of flows

    async def _read_state(self, *, is_stable: bool) -> SinkState:
        retries = Retries(self._cluster.options.retries)
        while True:
            first = self._sink.document_group(0)
            documents = [(await self._read([first], is_stable=is_stable)).get(first)]
            if documents[0] is not None:
                groups = [
                    self._sink.document_group(number)
                    for number in range(1, document_count(documents[0][1]))
                ]
                found = await self._read(groups, is_stable=is_stable)
                documents += [found.get(group) for group in groups]
            state = decode_state([each and each[1] for each in documents])
            if state is not None:
                return state
            await retries.wait_or_raise(
                TransactionError(ErrorCode.CONCURRENT_TRANSACTIONS, "reading a decision")
            )

    async def _await_owner(self, request: AwaitOwner) -> SinkState:
        deadline = time.monotonic() + request.timeout_s * random.uniform(0.5, 1)
        while True:
            state = await self._read_state(is_stable=False)
            if request.is_met_by(state) or time.monotonic() >= deadline:
                return state
            await asyncio.sleep(_OWNER_POLL_S)

    async def _read_markers(self, tasks: Iterable[int]) -> dict[int, Marker]:
        groups = {self._sink.marker_group(task): task for task in tasks}
        found = await self._read(groups)
        return {
            groups[group]: Marker(batch, int(digest, 16))
            for group, (batch, digest) in found.items()
        }

    async def _await_markers(self, tasks: Sequence[int], batch: int) -> dict[int, Marker]:
        retries = Retries(self._cluster.options.retries)
        while True:
            markers = await self._read_markers(tasks)
            if all(task in markers and markers[task].batch >= batch for task in tasks):
                return markers
            await retries.wait_or_raise(
                TransactionError(ErrorCode.CONCURRENT_TRANSACTIONS, "reading markers of tasks")
            )

    async def _take_over(self, transactional_id: str) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self._timeout_ms
        )

        async def attempt() -> tuple[int, int]:
            answer = await self._send_to_coordinator(
                TRANSACTION, transactional_id, INIT_PRODUCER_ID, request, _INIT_VERSION_MAX
            )
            _check(answer.error_code, f"initializing transactional id {transactional_id!r}")
            return answer.producer_id, answer.producer_epoch

        return await self._cluster.with_retries(attempt)

    async def _store_state(self, state: SinkState) -> bool:
        assert state.owner is not None
        producer = state.owner.producer_id, state.owner.producer_epoch
        batch = -1 if state.decision is None else state.decision.batch
        for number, document in enumerate(encode_state(state)):
            group = self._sink.document_group(number)
            if not await self._add_document(self._sink.root, producer, group, batch, document):
                return False
        return await self._commit(self._sink.root, producer)

    async def _find_closed(
        self, transactions: Iterable[PreparedTransaction]
    ) -> list[PreparedTransaction]:
        # A decision is stored within max.block.ms, unless the coordinator does not answer.
        needed_ms = self._cluster.options.retries.timeout_ms

        async def is_open(one: PreparedTransaction) -> bool:
            try:
                found = await self._describe(self._transactional_id(one))
            except TransactionError as error:
                if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return False
                raise
            current = found.producer_id, found.producer_epoch
            is_same = current == (one.producer_id, one.producer_epoch)
            ends_ms = found.transaction_start_time_ms + found.transaction_timeout_ms
            lasts = ends_ms - time.time() * 1000 > needed_ms
            return is_same and found.transaction_state == _OPEN and lasts

        return await _unless(is_open, transactions)

    async def _commit_all(
        self, transactions: Iterable[PreparedTransaction]
    ) -> list[PreparedTransaction]:
        async def commit(one: PreparedTransaction) -> bool:
            producer = one.producer_id, one.producer_epoch
            return await self._commit(self._transactional_id(one), producer)

        return await _unless(commit, transactions)

    async def _abort_open(self, prefixes: tuple[str, ...]) -> None:
        if prefixes:
            for transactional_id in await self._cluster.with_retries(
                lambda: self._find_open(prefixes)
            ):
                await self._take_over(transactional_id)

    # Internals

    def _transactional_id(self, prepared: PreparedTransaction) -> str:
        return self._sink.task_id(prepared.run, prepared.task, prepared.attempt)

    async def _read(
        self, groups: Collection[str], *, is_stable: bool = False
    ) -> dict[str, tuple[int, str]]:
        """Return the batch and the document of each group that has one."""
        if is_stable:
            # A request for all partitions does not see that a group's first offset is pending.
            await committed_offsets(
                self._cluster, groups, partition=self._place, require_stable=True
            )
        found = await committed_offsets(self._cluster, groups, require_stable=is_stable)
        return {
            group: (latest[1].offset - 1, latest[1].metadata)
            for group, offsets in found.items()
            # After a change of the option topic, a group has the offsets of both topics.
            for latest in [max(offsets.items(), key=self._age, default=None)]
            if latest is not None
        }

    def _age(self, committed: tuple[TopicPartition, OffsetAndMetadata]) -> tuple[int, bool]:
        place, found = committed
        return found.offset, place == self._place

    async def _add_document(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        group: str,
        batch: int,
        document: str,
    ) -> bool:
        """Commit a document as metadata of an offset in a transaction; return False if fenced."""
        producer_id, producer_epoch = producer
        join = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group,
        )
        offset = TxnOffsetCommitPartition(
            partition_index=self._place.partition,
            committed_offset=batch + 1,
            committed_metadata=document,
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[TxnOffsetCommitTopic(name=self._place.topic, partitions=[offset])],
        )

        async def attempt() -> None:
            joined = await self._send_to_coordinator(
                TRANSACTION, transactional_id, ADD_OFFSETS_TO_TXN, join
            )
            _check(joined.error_code, f"adding group {group!r} to {transactional_id!r}")
            answer = await self._send_to_coordinator(GROUP, group, TXN_OFFSET_COMMIT, commit)
            (topic,) = answer.topics
            what = f"committing an offset of {self._place} in group {group!r}"
            _check(topic.partitions[0].error_code, what)

        return await self._is_done(attempt)

    async def _commit(self, transactional_id: str, producer: tuple[int, int]) -> bool:
        """Commit a transaction; return False if it has ended otherwise."""
        producer_id, producer_epoch = producer
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=True,
        )

        async def attempt() -> None:
            answer = await self._send_to_coordinator(
                TRANSACTION, transactional_id, END_TXN, request
            )
            _check(answer.error_code, f"committing the transaction of {transactional_id!r}")

        return await self._is_done(attempt)

    async def _is_done(self, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Return False if the transaction of an attempt is fenced."""
        try:
            await self._cluster.with_retries(attempt)
        except TransactionError as error:
            if error.is_fenced:
                return False
            raise
        return True

    async def _describe(self, transactional_id: str) -> DescribedTransaction:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def attempt() -> DescribedTransaction:
            answer = await self._send_to_coordinator(
                TRANSACTION, transactional_id, DESCRIBE_TRANSACTIONS, request
            )
            (described,) = answer.transaction_states
            _check(described.error_code, f"describing transactional id {transactional_id!r}")
            return described

        return await self._cluster.with_retries(attempt)

    async def _find_open(self, prefixes: tuple[str, ...]) -> list[str]:
        """Return the transactional ids with open transactions and a prefix, of all brokers."""
        # Our brokers limit the length of a pattern, and a query may have had many runs.
        common = re.escape(os.path.commonprefix(prefixes))  # noqa: RUF071 - not of paths
        request = ListTransactionsRequest(
            state_filters=[_OPEN],
            producer_id_filters=[],
            transactional_id_pattern=f"{common}.*" if len(common) < _PATTERN_PREFIX_MAX else None,
        )
        found = dict[str, None]()
        addresses = list((await self._cluster.broker_addresses()).values())
        # A shard of ids may move from a broker to one that was asked before. It is listed there in
        # the second pass. A broker that still loads it refuses the request.
        for address in addresses * 2 if len(addresses) > 1 else addresses:
            broker = await self._cluster.connect_to(address)
            answer = await broker.send(LIST_TRANSACTIONS, request)
            _check(answer.error_code, f"listing the transactions of the broker at {address}")
            # Brokers before Kafka 4.1 ignore the pattern.
            found |= dict.fromkeys(
                each.transactional_id
                for each in answer.transaction_states
                if each.transactional_id.startswith(prefixes)
            )
        return list(found)

    async def _send_to_coordinator(
        self,
        kind: int,
        key: str,
        api: Api[Req, Res],
        request: Req,
        version_max: int = _VERSION_MAX,
    ) -> Res:
        """Send a request to the coordinator of a group or a transactional id, in one attempt."""
        connection = await self._coordinator(kind, key)
        return await connection.send(api, request, version_max=version_max)

    async def _coordinator(self, kind: int, key: str) -> Connection:
        broker = await self._cluster.any_broker()
        lookup = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        answer = await broker.send(FIND_COORDINATOR, lookup)
        found = answer.coordinators[0] if answer.coordinators else answer
        _check(found.error_code, f"finding the coordinator of {key!r}")
        return await self._cluster.connect_to(Address(found.host, found.port))


def _check(code: int, what: str) -> None:
    if code:
        raise TransactionError(to_error_code(code), what)


async def _unless(
    is_kept: Callable[[PreparedTransaction], Awaitable[bool]],
    transactions: Iterable[PreparedTransaction],
) -> list[PreparedTransaction]:
    """Return the transactions for which a condition is false; ask about all at the same time."""
    given = tuple(transactions)
    kept = await asyncio.gather(*map(is_kept, given))
    return [one for one, is_one_kept in zip(given, kept, strict=True) if not is_one_kept]
