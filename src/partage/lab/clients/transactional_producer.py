"""Transactional producers: plain ones, and loops that consume, transform and produce.

A producer speaks the protocol of clients from before KIP-890 (``old``) or with it (``new``). After
a lost response, an old one takes a new epoch before its next transaction: with the same epoch, the
late request could change that transaction, which KIP-890 has fixed.

Each record has a unique value: the tag of its transaction, its partition, its number there, and the
offset of the input record that it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from partage.lab import history
from partage.lab.clients.client_process import ClientProcess
from partage.lab.clients.transaction_requests import (
    TaggedOffset,
    TransactionRequests,
    WrongRequests,
    draw_batches,
)
from partage.lab.context import WorldContext
from partage.lab.environment.coroutines import SimFuture
from partage.lab.names import (
    INPUT_TOPIC,
    OUTPUT_PARTITIONS,
    OUTPUT_TOPIC,
    TRANSACTIONAL_GROUP,
    UNREAD_TOPIC,
)
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.api import AnyApi
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
)
from partage.wire.apis.end_txn import END_TXN
from partage.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    GROUP,
    TRANSACTION,
    FindCoordinatorRequest,
)
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.records.decoder import decode_records
from partage.wire.records.encoder import encode_batch
from partage.wire.types import Message

_INPUT_RECORDS_MAX: Final = 3
_TRANSACTION_KEYS: Final = frozenset(
    {INIT_PRODUCER_ID.key, ADD_PARTITIONS_TO_TXN.key, ADD_OFFSETS_TO_TXN.key, END_TXN.key}
)
_GROUP_KEYS: Final = frozenset(
    {
        TXN_OFFSET_COMMIT.key,
        OFFSET_FETCH.key,
        JOIN_GROUP.key,
        SYNC_GROUP.key,
        HEARTBEAT.key,
        LEAVE_GROUP.key,
    }
)
_LOOKUP_LANE: Final = 20  # the first one; each connection has a separate one
_REPETITION_LANE: Final = 50  # the first one of the connections for repeated requests
#: The first version of InitProducerId with the id and epoch of a producer that recovers (KIP-360).
_RECOVERY_VERSION: Final = 3
_FORGOTTEN_SHARE: Final = 0.03
_RECOVERY_SHARE: Final = 0.06
_OTHER_OFFSETS_SHARE: Final = 0.3
_RETRY_AFTER_MS: Final = 50
_ATTEMPTS: Final = 40
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class FencedError(Exception):
    """Raised when another producer has taken the transactional id, or it timed out."""


class AbortableError(Exception):
    """Raised when the transaction cannot be committed."""


class TransactionalProducer(ClientProcess):
    """A process with the transactional id of ``number``, the ``life``-th one with it."""

    #: The group of the offsets in its transactions.
    group_id = TRANSACTIONAL_GROUP

    def __init__(self, world: WorldContext, number: int, life: int) -> None:
        self.number = number
        self.life = life
        self.transactional_id = f"tx{number}"
        name = f"{self.transactional_id}.{life}"
        protocol = world.options.transaction_protocol
        super().__init__(world, name, {})
        self.is_new_protocol = protocol == "new" or (
            protocol == "mixed" and self.rng.random() < 0.5
        )
        self._versions = self._draw_versions()
        self.is_superseded = False  # another process has its transactional id
        self.is_idle = False  # it was stopped, and has no open transaction
        self.is_in_group = False  # it joins a group, or has not left it
        self._is_stopped = False
        # one transactional id for each input partition, as before KIP-447
        self._is_loop = number < world.options.partitions_t and self.rng.random() < 0.6
        self._input = TopicPartition(INPUT_TOPIC, number)
        self._positions: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[int, int] = {}
        self._is_uncertain = False  # a request of this epoch may arrive late
        self._count = 0
        self._requests = TransactionRequests(self.transactional_id)
        self._wrong_requests = WrongRequests(world, name, self._requests)
        self._written: set[tuple[int, int]] = set()  # producer ids with partitions that know them
        self.spawn(self._run())

    def _draw_versions(self) -> Mapping[int, int]:
        pick = self.rng.choice
        fixed = {FETCH.key: 11, OFFSET_FETCH.key: 8}
        if self.is_new_protocol:
            return {
                **fixed,
                INIT_PRODUCER_ID.key: 5,
                PRODUCE.key: 12,
                TXN_OFFSET_COMMIT.key: 5,
                END_TXN.key: 5,
            }
        return {
            **fixed,
            INIT_PRODUCER_ID.key: pick((0, 2, 3, 4)),
            ADD_PARTITIONS_TO_TXN.key: pick((0, 1, 3)),
            ADD_OFFSETS_TO_TXN.key: pick((0, 3)),
            PRODUCE.key: pick((3, 7, 9, 10, 11)),
            TXN_OFFSET_COMMIT.key: pick((0, 2, 3, 4)),
            END_TXN.key: pick((0, 1, 3, 4)),
        }

    async def request(
        self, api: AnyApi, message: Message, lane: int = 0, broker_id: int | None = None
    ) -> Any:
        """Send a request to the broker that is responsible for it; see `ClientProcess.request`."""
        key = self._coordinator_key(api)
        if key is None or self.world.options.brokers == 1:
            return await super().request(api, message, lane, broker_id)
        coordinator = self._coordinators.get(key) or await self._find_coordinator(key, lane)
        if coordinator is None:
            await self.sleep(_RETRY_AFTER_MS)
            return None
        response = await super().request(api, message, lane, coordinator)
        if response is None:
            self.forget_coordinators()
        return response

    def _coordinator_key(self, api: AnyApi) -> tuple[int, str] | None:
        """Return type and key of the coordinator for a request; None for a leader."""
        if api.key in _TRANSACTION_KEYS:
            return TRANSACTION, self.transactional_id
        return (GROUP, self.group_id) if api.key in _GROUP_KEYS else None

    async def _find_coordinator(self, key: tuple[int, str], lane: int) -> int | None:
        request = FindCoordinatorRequest(key_type=key[0], coordinator_keys=[key[1]])
        broker_id = self.world.shuffled_broker_ids(self.rng)[0]
        response = await super().request(FIND_COORDINATOR, request, _LOOKUP_LANE + lane, broker_id)
        if response is None or response.coordinators[0].error_code:
            return None
        self._coordinators[key] = response.coordinators[0].node_id
        return self._coordinators[key]

    def forget_coordinators(self) -> None:
        """Look the coordinators up again, because they may have moved."""
        self._coordinators.clear()

    def stop(self) -> None:
        """Stop after the transaction under way."""
        self._is_stopped = True

    # Life

    async def _run(self) -> None:
        every_ms = self.world.options.transaction_every_ms
        while True:
            try:
                await self._init()
                while not self._is_uncertain and not self._is_stopped:
                    await self._transact()
                    await self.sleep(1 + self.rng.randrange(every_ms))
            except FencedError:
                # An application restarts after it was fenced; a zombie ends.
                if not self.is_superseded:
                    self._producer_id = self._epoch = -1
                    await self.sleep(500)
                elif self._versions[INIT_PRODUCER_ID.key] >= _RECOVERY_VERSION:
                    await self._request_init(sends_identity=True)
            except AbortableError:
                await self._abort()
            if self.is_superseded or (self._is_stopped and not self._is_uncertain):
                break
        self.is_idle = True

    async def _init(self) -> None:
        """Take the id and an epoch; an open transaction of the id is aborted."""
        sends_identity = (
            self._versions[INIT_PRODUCER_ID.key] >= _RECOVERY_VERSION
            and self._producer_id >= 0
            and self.rng.random() < 0.7
        )
        while True:
            response = await self._request_init(sends_identity=sends_identity)
            if response is not None and not response.error_code:
                break
            if self.is_superseded:
                raise FencedError
            if response is not None and response.error_code in _FENCED:
                raise FencedError
            self.forget_coordinators()
            await self.sleep(_RETRY_AFTER_MS)
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        self._is_uncertain = False
        self._positions.clear()

    async def _request_init(self, *, sends_identity: bool) -> Any:
        return await self.request(
            INIT_PRODUCER_ID,
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.world.options.transaction_timeout_ms,
                producer_id=self._producer_id if sends_identity else -1,
                producer_epoch=self._epoch if sends_identity else -1,
            ),
        )

    # Transactions

    async def _transact(self) -> None:
        self._count += 1
        tag = f"{self.name}.{self._count}".encode()
        sources: list[int] = []
        if self._is_loop:
            sources = await self._read_input()
        targets = self.rng.sample(range(OUTPUT_PARTITIONS), self.rng.randrange(1, 4))
        is_commit = self.rng.random() < 0.8
        batches = draw_batches(self.rng, tag, sorted(targets), sources)
        values = [
            (TopicPartition(OUTPUT_TOPIC, index), value)
            for round_ in batches
            for index, records in round_.items()
            for value in records
        ]
        if not self.is_new_protocol:
            added = targets
            if len(targets) > 1 and self.rng.random() < _FORGOTTEN_SHARE:
                added = targets[1:]  # a bug of the client: the broker must reject the records
            await self._add_partitions(added)
            targets = added
        await self._send_after_lost_batch(targets)
        for round_ in batches:
            await self._produce(round_)
        consumed = None
        if sources:
            consumed = (self._input, sources[0], sources[-1] + 1)
        if sources or self.rng.random() < _OTHER_OFFSETS_SHARE:
            await self._commit_offsets(consumed, tag)
        if self.rng.random() < 0.2:
            await self.sleep(self.rng.choice((100, 1_000, 4_000)))
        if self.rng.random() < _RECOVERY_SHARE:
            raise AbortableError  # as after a delivery that failed
        await self._send_with_foreign_id(targets)
        self._append_ending(tag, tuple(values), consumed, is_commit=is_commit)
        ended = self._producer_id, self._epoch
        await self._end(is_commit=is_commit)
        self.world.append_history(
            history.TransactionEnded(
                at_ms=self.world.now_ms, process=self.name, tag=tag, is_commit=is_commit
            )
        )
        if consumed is not None:
            if is_commit:
                self._positions[consumed[0]] = consumed[2]
            else:
                self._positions.pop(consumed[0], None)
        await self._end_otherwise(*ended, is_commit=not is_commit)

    # Wrong requests

    async def _send_after_lost_batch(self, targets: list[int]) -> None:
        producer_id = self._producer_id
        known = [index for index in targets if (producer_id, index) in self._written]
        if known and self._wrong_requests.draw_is_due():
            sequences = {index: self._sequences.get(index, 0) for index in known}
            index, message = self._wrong_requests.after_lost_batch(
                producer_id, self._epoch, sequences
            )
            await self._send_wrong_request(PRODUCE, message, self._leader_of(index))

    async def _send_with_foreign_id(self, targets: list[int]) -> None:
        if self._wrong_requests.draw_is_due():
            api, message = self._wrong_requests.with_foreign_id(
                self.number, self._epoch, targets, is_new_protocol=self.is_new_protocol
            )
            await self._send_wrong_request(api, message)

    async def _end_otherwise(self, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        """End a transaction again, with the other decision, once all markers are written."""
        if not self._wrong_requests.draw_is_due():
            return
        message = self._requests.end(producer_id, epoch, is_commit=is_commit)
        response = await self._send_wrong_request(END_TXN, message)
        while response is not None and response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            await self.sleep(_RETRY_AFTER_MS)
            response = await self._send_wrong_request(END_TXN, message)

    async def _send_wrong_request(self, api: AnyApi, message: Message, leader: int = 1) -> Any:
        """Send a request once. After a lost response, the producer takes a new epoch."""
        broker_id = None if leader == self.broker_id else leader
        response = await self.request(api, message, 0, broker_id)
        self._is_uncertain = self._is_uncertain or response is None
        return response

    def _append_ending(
        self,
        tag: bytes,
        values: tuple[tuple[TopicPartition, bytes], ...],
        consumed: tuple[TopicPartition, int, int] | None,
        *,
        is_commit: bool,
    ) -> None:
        self.world.append_history(
            history.TransactionEnding(
                at_ms=self.world.now_ms,
                process=self.name,
                tag=tag,
                is_commit=is_commit,
                values=values,
                consumed=consumed,
                group_id=self.group_id,
            )
        )

    async def _add_partitions(self, targets: list[int]) -> None:
        await self._request_until_done(
            ADD_PARTITIONS_TO_TXN,
            self._requests.add_partitions(self._producer_id, self._epoch, targets),
            lambda response: [
                p.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for p in topic.results_by_partition
            ],
        )

    async def _produce(self, batches: dict[int, list[bytes]]) -> None:
        """Send the batches of a round: in one request for each leader, or in one for each batch.

        Several requests are sent at once, over several connections.
        """
        encoded = {index: self._encode(index, records) for index, records in batches.items()}
        if len(batches) == 1 or self.rng.random() < 0.5:
            requests = self._by_leader(encoded)
        else:
            requests = [{index: batch} for index, batch in encoded.items()]
        if len(requests) == 1:
            await self._produce_request(requests[0], 0)
            return
        failures: list[Exception] = []
        done: list[SimFuture[None]] = []
        for lane, request in enumerate(requests):
            finished: SimFuture[None] = SimFuture()
            done.append(finished)
            self.spawn(self._produce_aside(request, lane, finished, failures))
        for finished in done:
            await finished
        if failures:
            raise failures[0]

    def _by_leader(self, batches: dict[int, bytes]) -> list[dict[int, bytes]]:
        """Return the batches of each leader."""
        found: dict[int, dict[int, bytes]] = {}
        for index, batch in batches.items():
            found.setdefault(self._leader_of(index), {})[index] = batch
        return list(found.values())

    def _leader_of(self, index: int) -> int:
        return self.world.leader_of(TopicPartition(OUTPUT_TOPIC, index))

    async def _produce_aside(
        self,
        batches: dict[int, bytes],
        lane: int,
        finished: SimFuture[None],
        failures: list[Exception],
    ) -> None:
        try:
            await self._produce_request(batches, lane)
        except (FencedError, AbortableError) as error:
            failures.append(error)
        finished.set_result(None)

    def _encode(self, index: int, values: list[bytes]) -> bytes:
        sequence = self._sequences.get(index, 0)
        self._sequences[index] = sequence + len(values)
        return encode_batch(
            [self.world.output_record(value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    async def _produce_request(self, batches: dict[int, bytes], lane: int) -> None:
        await self._request_until_done(
            PRODUCE,
            self._requests.produce(batches),
            lambda response: [
                p.error_code for topic in response.responses for p in topic.partition_responses
            ],
            lane,
            self._leader_of(next(iter(batches))),
        )
        self._written.update((self._producer_id, index) for index in batches)

    async def _commit_offsets(
        self, consumed: tuple[TopicPartition, int, int] | None, tag: bytes
    ) -> None:
        """Commit the position of a loop, and offsets without a meaning, some of them twice."""
        if not self.is_new_protocol:
            await self._request_until_done(
                ADD_OFFSETS_TO_TXN,
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    group_id=self.group_id,
                ),
                lambda response: [response.error_code],
            )
        if consumed is not None:
            await self._commit_offset(consumed[0], consumed[2], tag)
        while self.rng.random() < _OTHER_OFFSETS_SHARE:
            self.world.identities.last_offset += 1
            place = TopicPartition(UNREAD_TOPIC, self.rng.randrange(2))
            await self._commit_offset(place, self.world.identities.last_offset, tag)

    async def _commit_offset(self, place: TopicPartition, position: int, tag: bytes) -> None:
        await self._request_until_done(
            TXN_OFFSET_COMMIT,
            self._requests.commit_offset(
                self._producer_id,
                self._epoch,
                TaggedOffset(self.group_id, place, position, tag.decode()),
                self._group_metadata(),
            ),
            lambda response: [p.error_code for topic in response.topics for p in topic.partitions],
        )

    def _group_metadata(self) -> Mapping[str, Any]:
        """Return the generation and the member id in a TxnOffsetCommit; none without a member."""
        return {}

    async def _end(self, *, is_commit: bool) -> None:
        message = self._requests.end(self._producer_id, self._epoch, is_commit=is_commit)
        response = await self._request_until_done(
            END_TXN, message, lambda response: [response.error_code]
        )
        if self.is_new_protocol:
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
            self._is_uncertain = False

    async def _request_until_done(
        self, api: Any, message: Any, codes_of: Any, lane: int = 0, leader: int = 1
    ) -> Any:
        """Send a request again until it succeeds.

        Raises:
            FencedError: The producer has an old epoch.
            AbortableError: It fails otherwise, or too often.
        """
        for _ in range(_ATTEMPTS):
            broker_id = None if leader == self.broker_id else leader
            repeated: SimFuture[Any] | None = None
            if self._wrong_requests.draw_is_repetition_due():
                repeated = SimFuture()
                self.spawn(self._repeat(api, message, lane, broker_id, repeated))
            response = await self.request(api, message, lane, broker_id)
            if repeated is not None:
                again = await repeated
                self._is_uncertain = self._is_uncertain or again is None
                if again is not None and (response is None or not any(codes_of(again))):
                    response = again
            if response is None:
                self._is_uncertain = True
                continue
            codes = {ErrorCode(code) for code in codes_of(response)} - {ErrorCode.NONE}
            if not codes:
                return response
            if codes & _FENCED:
                raise FencedError
            if codes - _RETRIABLE:
                raise AbortableError(codes)
            self.forget_coordinators()
            await self.sleep(_RETRY_AFTER_MS)
        raise AbortableError

    async def _repeat(
        self,
        api: AnyApi,
        message: Message,
        lane: int,
        broker_id: int | None,
        done: SimFuture[Any],
    ) -> None:
        """Send a request over another connection, as after the loss of the first one."""
        done.set_result(await self.request(api, message, _REPETITION_LANE + lane, broker_id))

    async def _abort(self) -> None:
        """Abort after an error; then take a new epoch, since the state is uncertain."""
        self._is_uncertain = True
        if self.rng.random() < 0.5:
            with suppress(FencedError, AbortableError):
                await self._end(is_commit=False)
            self._is_uncertain = True

    # Input

    async def _read_input(self) -> list[int]:
        """Return the offsets of the next input records."""
        positions, place = self._positions, self._input
        if place not in positions:
            committed = await self._fetch_position()
            if committed is None:
                return []
            positions[place] = committed
        position = positions[place]
        topic = FetchTopic(
            topic=place.topic,
            partitions=[
                FetchPartition(
                    partition=place.partition,
                    fetch_offset=position,
                    partition_max_bytes=1 << 20,
                )
            ],
        )
        response = await self.request(
            FETCH, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
        )
        if response is None:
            return []
        (result,) = response.responses[0].partitions
        if result.error_code or not result.records:
            return []
        found = decode_records(bytes(result.records[0]), position)
        offsets = [record[0] for record in found if record[0] >= position]
        return offsets[: self.rng.randrange(1, _INPUT_RECORDS_MAX + 1)]

    async def _fetch_position(self) -> int | None:
        """Return the committed offset; None if it is not stable, or the response was lost."""
        topics = [
            OffsetFetchTopic(name=self._input.topic, partition_indexes=[self._input.partition])
        ]
        group = OffsetFetchGroup(group_id=self.group_id, topics=topics)
        response = await self.request(
            OFFSET_FETCH, OffsetFetchRequest(groups=[group], require_stable=True)
        )
        if response is None or response.groups[0].error_code:
            self.forget_coordinators()
            return None
        (result,) = response.groups[0].topics[0].partitions
        return None if result.error_code else max(result.committed_offset, 0)
