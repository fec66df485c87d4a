"""A transactional producer that sends the requests of ``transaction.version`` 2 (KIP-890).

It adds no partitions and no groups: their first write does. Each EndTxn returns the epoch of the
next transaction. It runs in a simulated world.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from partage.client.errors import ClientError
from partage.model.errors import ErrorCode
from partage.testing import PartageWorld
from partage.wire.api import Api, Req, Res
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from world_connections import connect

from .requests import batch, produce_request, produce_result

#: The first versions of the requests that belong to ``transaction.version`` 2.
INIT_VERSION, PRODUCE_VERSION, OFFSETS_VERSION, END_VERSION = 5, 12, 5, 5
RETRIABLE: Final = frozenset(
    {
        # of Produce, while the transaction coordinator is loading
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        # of OffsetFetch, while a transaction holds an offset back
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


#: Limits in virtual time.
PATIENCE_S: Final = 120.0
_RETRY_S: Final = 0.02


class Identity(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    epoch: int


class RawProducer:
    """A producer; it repeats a request unchanged until the broker answers it.

    ``identity`` is that of the current transaction, or of the next one.
    """

    def __init__(self, world: PartageWorld, transactional_id: str) -> None:
        self.identity = Identity(-1, -1)
        self._world = world
        self._transactional_id = transactional_id
        self._sequences: dict[int, int] = {}

    def copy(self, identity: Identity) -> RawProducer:
        """Return a producer with another identity, which has written nothing."""
        copied = RawProducer(self._world, self._transactional_id)
        copied.identity = identity
        return copied

    async def find_coordinator(self, key_type: int, key: str) -> None:
        """Find the coordinator of a group or a transactional id; this creates its topic."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        await self.repeat(
            FIND_COORDINATOR, request, 4, lambda found: found.coordinators[0].error_code
        )

    async def init(self, timeout_ms: int = 60_000) -> None:
        """Get an identity; this aborts the open transaction of a predecessor."""
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._adopt(await self.repeat(INIT_PRODUCER_ID, request, INIT_VERSION, error_of))

    async def produce(self, topic: str, partition: int, value: bytes) -> ErrorCode:
        """Write a record to a partition."""
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        records = batch(
            value,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(
            topic, records, partition=partition, transactional_id=self._transactional_id
        )
        response = await self.repeat(
            PRODUCE, request, PRODUCE_VERSION, lambda found: produce_result(found).error_code
        )
        return ErrorCode(produce_result(response).error_code)

    async def commit_offset(self, group: str, topic: str, offset: int) -> ErrorCode:
        """Commit the position of a group in partition 0 of a topic."""
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            topics=[
                TxnOffsetCommitTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        response = await self.repeat(TXN_OFFSET_COMMIT, request, OFFSETS_VERSION, offset_error)
        return ErrorCode(offset_error(response))

    async def end(self, *, is_commit: bool) -> ErrorCode:
        """End the transaction, and take the identity of the next one."""
        response = await self.send_end(self.identity, is_commit=is_commit)
        if not response.error_code:
            self._adopt(response)
        return ErrorCode(response.error_code)

    async def send_end(self, identity: Identity, *, is_commit: bool) -> Any:
        """Return the response to EndTxn with any identity."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )
        return await self.repeat(END_TXN, request, END_VERSION, error_of)

    async def repeat(
        self, api: Api[Req, Res], message: Req, version: int, error: Callable[[Any], int]
    ) -> Res:
        """Repeat a request until the response has no retriable error, and return it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    connection = await connect(self._world.broker)
                    try:
                        response = await connection.send(api, message, version_max=version)
                    finally:
                        connection.close()
                except ClientError:
                    pass
                else:
                    if error(response) not in RETRIABLE:
                        return response
                await asyncio.sleep(_RETRY_S)

    def _adopt(self, response: Any) -> None:
        assert not response.error_code, response
        self.identity = Identity(response.producer_id, response.producer_epoch)
        self._sequences.clear()


def error_of(response: Any) -> int:
    code: int = response.error_code
    return code


def coordinator_error(response: Any) -> int:
    code: int = response.coordinators[0].error_code
    return code


def offset_error(response: Any) -> int:
    """Return the error of the only partition of a TxnOffsetCommit response."""
    ((result,),) = [topic.partitions for topic in response.topics]
    code: int = result.error_code
    return code
