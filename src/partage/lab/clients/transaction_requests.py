"""Requests of transactional producers, and wrong ones, as of clients with bugs.

A wrong request is sent between those of a correct producer. The rules judge its response, and what
is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from partage.lab.context import WorldContext
from partage.lab.names import OUTPUT_TOPIC
from partage.model.topic_partition import TopicPartition
from partage.wire.api import AnyApi
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest
from partage.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.apis.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from partage.wire.records.encoder import encode_batch
from partage.wire.types import Message

#: More than the records of a world.
_LOST_SEQUENCES: Final = 1_000_000
#: The first of the producer ids that no transactional id has.
_FOREIGN_PRODUCER_ID: Final = 100


def draw_batches(
    rng: Random, tag: bytes, targets: list[int], sources: list[int]
) -> list[dict[int, list[bytes]]]:
    """Return the records of each round of requests, by partition.

    Args:
        rng: Draws the records.
        tag: The tag of the transaction.
        targets: The partitions to write to.
        sources: The offsets of the input records.
    """
    rounds: list[dict[int, list[bytes]]] = []
    numbers = dict.fromkeys(targets, 0)
    left: Iterator[int | None] = iter([*sources])
    for number in range(rng.randrange(1, 4)):
        of_round: dict[int, list[bytes]] = {}
        for index in targets:
            if number and rng.random() < 0.4:
                continue
            records = []
            for _ in range(rng.randrange(1, 3)):
                source = next(left, None)
                text = "" if source is None else f"{source}"
                records.append(b"%b/%d/%d/%b" % (tag, index, numbers[index], text.encode()))
                numbers[index] += 1
            of_round[index] = records
        if of_round:
            rounds.append(of_round)
    index = targets[0]
    last = [
        b"%b/%d/%d/%d" % (tag, index, numbers[index] + at, source)
        for at, source in enumerate(s for s in left if s is not None)
    ]
    return [*rounds, {index: last}] if last else rounds


class TaggedOffset(NamedTuple):
    """An offset of a group, with the tag of its transaction as metadata."""

    group_id: str
    place: TopicPartition
    position: int
    metadata: str


class TransactionRequests:
    """Makes the requests of one transactional id."""

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id

    def add_partitions(
        self, producer_id: int, epoch: int, targets: Sequence[int]
    ) -> AddPartitionsToTxnRequest:
        """Return an AddPartitionsToTxn from before KIP-890."""
        topic = AddPartitionsToTxnTopic(name=OUTPUT_TOPIC, partitions=[*targets])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )

    def produce(self, batches: Mapping[int, bytes]) -> ProduceRequest:
        """Return a Produce request with a batch for each partition."""
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                ProduceTopic(
                    name=OUTPUT_TOPIC,
                    partition_data=[
                        ProducePartition(index=index, records=[batch])
                        for index, batch in batches.items()
                    ],
                )
            ],
        )

    def commit_offset(
        self,
        producer_id: int,
        epoch: int,
        offset: TaggedOffset,
        group_metadata: Mapping[str, Any],
    ) -> TxnOffsetCommitRequest:
        """Return a TxnOffsetCommit; ``group_metadata`` are fields of a group member (KIP-447)."""
        partition = TxnOffsetCommitPartition(
            partition_index=offset.place.partition,
            committed_offset=offset.position,
            committed_metadata=offset.metadata,
        )
        return TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=offset.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitTopic(name=offset.place.topic, partitions=[partition])],
            **group_metadata,
        )

    def end(self, producer_id: int, epoch: int, *, is_commit: bool) -> EndTxnRequest:
        """Return an EndTxn."""
        return EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=is_commit,
        )


class WrongRequests:
    """Draws the wrong and the repeated requests of one producer.

    Separate random generators leave the other draws of a seed unchanged.
    """

    def __init__(self, world: WorldContext, name: str, requests: TransactionRequests) -> None:
        self._world = world
        self._requests = requests
        self._rng = Random(f"wrong requests {world.scenario.seed} {name}")
        self._repetition_rng = Random(f"repeated requests {world.scenario.seed} {name}")

    def draw_is_due(self) -> bool:
        """Draw whether a producer sends a wrong request now."""
        share = self._world.options.wrong_request_share
        return not self._world.is_healed and self._rng.random() < share

    def draw_is_repetition_due(self) -> bool:
        """Draw whether a producer sends a request twice now, over two connections."""
        share = self._world.options.repeated_request_share
        return not self._world.is_healed and self._repetition_rng.random() < share

    def after_lost_batch(
        self, producer_id: int, epoch: int, sequences: Mapping[int, int]
    ) -> tuple[int, ProduceRequest]:
        """Return a batch that follows one that was lost, and the index of its partition.

        Before KIP-890, a partition accepts any sequence of a producer that it does not know.

        Args:
            producer_id: The producer.
            epoch: Its epoch.
            sequences: The next sequences of partitions that know the producer.
        """
        index = self._rng.choice(list(sequences))
        batch = encode_batch(
            [self._world.output_record(b"lost/%d/0/" % index)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequences[index] + _LOST_SEQUENCES,
            is_transactional=True,
        )
        return index, self._requests.produce({index: batch})

    def with_foreign_id(
        self, number: int, epoch: int, targets: Sequence[int], *, is_new_protocol: bool
    ) -> tuple[AnyApi, Message]:
        """Return a request with a producer id that does not belong to the transactional id."""
        producer_id = _FOREIGN_PRODUCER_ID + number
        if is_new_protocol or self._rng.random() < 0.5:
            is_commit = self._rng.random() < 0.5
            return END_TXN, self._requests.end(producer_id, epoch, is_commit=is_commit)
        return ADD_PARTITIONS_TO_TXN, self._requests.add_partitions(producer_id, epoch, targets)
