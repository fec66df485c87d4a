"""The rules about transactional producers: histories that break them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pytest

from partage.coordinator.records import OffsetRecord
from partage.lab import history
from partage.lab.checkers import attach_checkers
from partage.lab.history import RuleViolationError
from partage.lab.names import OUTPUT_PARTITIONS, TRANSACTIONAL_GROUP
from partage.lab.offset_log import PendingOffset
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest, EndTxnResponse
from partage.wire.apis.fetch import (
    FETCH,
    FetchAbortedTransaction,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
)
from partage.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
)
from partage.wire.apis.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from partage.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartition,
    TxnOffsetCommitPartitionResult,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
    TxnOffsetCommitTopicResult,
)
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .history_builder import HistoryBuilder, member

PLACE = TopicPartition("o", 0)
INPUT = TopicPartition("t", 0)
TAG = b"tx0.1.1"
FIRST = b"tx0.1.1/0/0/"
SECOND = b"tx0.1.1/0/1/"


class TransactionHistory(HistoryBuilder):
    """A history of one producer with id 1 that writes to one partition."""

    def __init__(self) -> None:
        super().__init__(partial(attach_checkers, has_transactions=True))

    def write(
        self,
        offset: int,
        *values: bytes,
        epoch: int = 0,
        producer_id: int = 1,
        base_sequence: int = -1,
    ) -> None:
        self.append(
            history.BatchAppended,
            partition=PLACE,
            base_offset=offset,
            last_offset=offset + len(values) - 1,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            marker=None,
            base_sequence=base_sequence,
            values=values,
        )

    def mark(
        self,
        offset: int,
        *,
        commit: bool,
        epoch: int = 0,
        decided: bool = True,
        coordinator_epoch: int = 0,
    ) -> None:
        """Append a marker, by default after its decision."""
        if decided:
            self.append(
                history.DecisionDurable,
                transactional_id="tx0",
                producer_id=1,
                epoch=epoch,
                is_commit=commit,
            )
        self.append(
            history.BatchAppended,
            partition=PLACE,
            base_offset=offset,
            last_offset=offset,
            producer_id=1,
            producer_epoch=epoch,
            is_transactional=True,
            marker=commit,
            coordinator_epoch=coordinator_epoch,
            values=(),
        )

    def init(self, epoch: int = 0, code: int = 0, asked_epoch: int = -1) -> None:
        message = InitProducerIdRequest(
            transactional_id="tx0",
            transaction_timeout_ms=60_000,
            producer_id=-1 if asked_epoch < 0 else 1,
            producer_epoch=asked_epoch,
        )
        asked = self.receive_request(INIT_PRODUCER_ID, message)
        self.send_response(
            asked, InitProducerIdResponse(error_code=code, producer_id=1, producer_epoch=epoch)
        )

    def end(
        self,
        *,
        commit: bool = True,
        version: int = 4,
        code: int = 0,
        epoch: int = 0,
        producer_id: int = 1,
    ) -> None:
        message = EndTxnRequest(
            transactional_id="tx0", producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        self.at_ms += 1
        asked = history.RequestReceived(
            at_ms=self.at_ms,
            arrived_ms=self.at_ms,
            broker_ms=self.at_ms,
            is_loaded=True,
            serial=self.at_ms,
            connection=1,
            client="c",
            api_key=END_TXN.key,
            version=version,
            message=message,
        )
        self.history.append(asked)
        response = EndTxnResponse(error_code=code)
        if version >= 5 and not code:
            response = EndTxnResponse(error_code=0, producer_id=1, producer_epoch=epoch + 1)
        self.send_response(asked, response)

    def complete(self, serial: int = 1, *, durable: bool = True) -> None:
        """Append the end of the transaction of the producer, which its log may reject."""
        self.append(
            history.CompletionAppended,
            serial=serial,
            transactional_id="tx0",
            producer_id=1,
            epoch=1,
        )
        if durable:
            self.append(history.CompletionDurable, serial=serial)

    def produce(self, error: ErrorCode, *, epoch: int = 0, opens_log: bool = False) -> None:
        """Send a Produce request that gets an error."""
        record = SimpleRecord(None, FIRST, timestamp_ms=0)
        batch = encode_batch(
            [record],
            producer_id=1,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = ProduceTopic(
            name=PLACE.topic, partition_data=[ProducePartition(index=0, records=[batch])]
        )
        message = ProduceRequest(
            transactional_id="tx0", acks=-1, timeout_ms=5_000, topic_data=[data]
        )
        asked = self.receive_request(PRODUCE, message)
        if opens_log:
            self.append(history.LogOpened, partition=PLACE, end_offset=0)
        result = ProducePartitionResult(index=0, error_code=error, base_offset=-1)
        topic = ProduceTopicResult(name=PLACE.topic, partition_responses=[result])
        self.send_response(asked, ProduceResponse(responses=[topic]))

    def announce_end(self, *values: bytes, commit: bool = True, consumes: bool = False) -> None:
        self.append(
            history.TransactionEnding,
            process="tx0.1",
            tag=TAG,
            is_commit=commit,
            values=tuple((PLACE, value) for value in values),
            consumed=(INPUT, 0, 1) if consumes else None,
            group_id=TRANSACTIONAL_GROUP,
        )

    def acknowledge_end(self, *, commit: bool = True) -> None:
        self.append(history.TransactionEnded, process="tx0.1", tag=TAG, is_commit=commit)

    def fetch(
        self,
        *values: bytes,
        begin: int = 0,
        stable: int = 10,
        high_watermark: int = 10,
        aborted: Sequence[int] = (),
        committed: bool = True,
    ) -> None:
        """Send a Fetch response with a transactional batch of these values."""
        topic = FetchTopic(
            topic=PLACE.topic,
            partitions=[FetchPartition(partition=0, fetch_offset=begin, partition_max_bytes=99)],
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, isolation_level=int(committed), topics=[topic]
        )
        asked = self.receive_request(FETCH, request)
        content = b""
        if values:
            records = [SimpleRecord(None, value, timestamp_ms=0) for value in values]
            content = encode_batch(
                records,
                base_offset=begin,
                producer_id=1,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        result = FetchPartitionResult(
            partition_index=0,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            aborted_transactions=[
                FetchAbortedTransaction(producer_id=1, first_offset=first) for first in aborted
            ],
            records=[content],
        )
        topic_result = FetchTopicResult(topic=PLACE.topic, partitions=[result])
        self.send_response(asked, FetchResponse(responses=[topic_result]))

    def reread(self) -> None:
        """Read all partitions again, as they were written."""
        for index in range(OUTPUT_PARTITIONS):
            batches = tuple(
                entry
                for entry in self.history.entries
                if isinstance(entry, history.BatchAppended) and entry.partition.partition == index
            )
            self.append(history.OutputReread, partition=TopicPartition("o", index), batches=batches)

    def receive_offset_commit(self) -> OffsetRecord:
        """Receive a TxnOffsetCommit of the producer; return the record of its offset."""
        partition = TxnOffsetCommitPartition(
            partition_index=0, committed_offset=2, committed_metadata=TAG.decode()
        )
        message = TxnOffsetCommitRequest(
            transactional_id="tx0",
            group_id=TRANSACTIONAL_GROUP,
            producer_id=1,
            producer_epoch=0,
            topics=[TxnOffsetCommitTopic(name="t", partitions=[partition])],
        )
        asked = self.receive_request(TXN_OFFSET_COMMIT, message)
        return OffsetRecord(
            group_id=TRANSACTIONAL_GROUP,
            topic="t",
            partition=0,
            offset=2,
            metadata=TAG.decode(),
            commit_ms=asked.at_ms,
        )

    def commit_as_member(
        self, name: str, generation: int, code: int = 0, *, is_loaded: bool = True
    ) -> None:
        """Handle a TxnOffsetCommit of a group member."""
        message = TxnOffsetCommitRequest(
            transactional_id="tx0",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            generation_id=generation,
            member_id=name,
            topics=[],
        )
        asked = self.receive_request(TXN_OFFSET_COMMIT, message, is_loaded=is_loaded)
        results = [TxnOffsetCommitPartitionResult(partition_index=0, error_code=code)]
        topics = [TxnOffsetCommitTopicResult(name="t", partitions=results)]
        self.send_response(asked, TxnOffsetCommitResponse(topics=topics))

    def append_pending(self, *, with_end: bool = False) -> None:
        """Append a pending offset of the producer, and maybe the abort of its transaction."""
        pending = PendingOffset(
            group_id=TRANSACTIONAL_GROUP,
            producer_id=1,
            producer_epoch=0,
            offset=self.receive_offset_commit(),
        )
        records = [pending]
        pairs: list[tuple[bytes, bytes | None]] = [(b"pending", b"")]
        if with_end:
            records.append(msgspec.structs.replace(pending, offset=None))
            pairs.append((b"pending", None))
        self.append(history.RecordsAppended, records=tuple(records), pairs=tuple(pairs))
        self.append(history.RecordsDurable, count=len(records))

    def mark_offsets(
        self, coordinator_epoch: int = 0, shard_epoch: int = 0, epoch: int = 0
    ) -> None:
        """Append a marker to the log of the group, and make it durable."""
        self.append(
            history.OffsetsMarkerDurable,
            broker=1,
            shard=0,
            shard_epoch=shard_epoch,
            producer_id=1,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
        )

    def fetch_offset(self, offset: int, metadata: str = "") -> None:
        """Send the response to an OffsetFetch that requires stable offsets."""
        topic = OffsetFetchTopic(name="t", partition_indexes=[0])
        group = OffsetFetchGroup(group_id=TRANSACTIONAL_GROUP, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        asked = self.receive_request(OFFSET_FETCH, request)
        result = OffsetFetchPartitionResult(
            partition_index=0, committed_offset=offset, metadata=metadata, error_code=0
        )
        topics = [OffsetFetchTopicResult(name="t", partitions=[result])]
        shown = OffsetFetchGroupResult(group_id=TRANSACTIONAL_GROUP, topics=topics)
        self.send_response(asked, OffsetFetchResponse(groups=[shown]))


def aborted_record_is_shown(built: TransactionHistory) -> None:
    built.write(0, FIRST)
    built.mark(1, commit=False)
    built.fetch(FIRST)


def open_record_is_shown(built: TransactionHistory) -> None:
    built.write(0, FIRST)
    built.fetch(FIRST, stable=0)


def committed_record_is_not_shown(built: TransactionHistory) -> None:
    built.end()
    built.write(0, FIRST)
    built.mark(1, commit=True)
    built.fetch(FIRST, aborted=[0])


def record_of_other_offset_is_shown(built: TransactionHistory) -> None:
    built.write(0, FIRST)
    built.fetch(SECOND, begin=1, stable=0, committed=False)


def decision_that_was_shown_is_lost(built: TransactionHistory) -> None:
    built.end()
    built.announce_end(FIRST)
    built.write(0, FIRST)
    built.mark(1, commit=True)
    built.fetch(FIRST)
    built.append(history.LogOpened, partition=PLACE, end_offset=1)
    built.mark(1, commit=False)
    built.reread()


def stable_offset_passes_open_transaction(built: TransactionHistory) -> None:
    built.write(3, FIRST)
    built.fetch(stable=4, begin=9)


def stable_offset_moves_back(built: TransactionHistory) -> None:
    built.fetch(stable=4, begin=9)
    built.fetch(stable=3, begin=9)


def stable_offset_exceeds_high_watermark(built: TransactionHistory) -> None:
    built.fetch(stable=4, begin=9, high_watermark=3)


def zombie_writes(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.init(epoch=1)
    built.write(0, FIRST, epoch=0)


def zombie_commits_offsets(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.init(epoch=1)
    built.append_pending()


def late_record_begins_transaction(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.end(version=5)
    built.write(0, FIRST, epoch=0)


def producer_is_fenced_without_successor(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.end(code=90)


def producer_cannot_repeat_its_recovery(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.init(code=51, asked_epoch=0)
    built.init(code=90, asked_epoch=0)


def commit_marker_has_no_request(built: TransactionHistory) -> None:
    built.end(commit=False)
    built.mark(0, commit=True)


def marker_ends_records_after_its_decision(built: TransactionHistory) -> None:
    built.end()
    built.write(0, FIRST)
    built.mark(1, commit=True)
    built.write(2, SECOND)
    built.mark(3, commit=True, decided=False)


def transaction_completes_without_a_marker(built: TransactionHistory) -> None:
    built.write(0, FIRST)
    built.complete()


def batch_of_open_transaction_is_refused(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.produce(ErrorCode.INVALID_TXN_STATE)


def former_coordinator_writes_marker(built: TransactionHistory) -> None:
    built.mark(0, commit=False, coordinator_epoch=2)
    built.mark(1, commit=False, coordinator_epoch=1)


def former_coordinator_writes_offsets_marker(built: TransactionHistory) -> None:
    built.mark_offsets(coordinator_epoch=2, shard_epoch=1)
    built.mark_offsets(coordinator_epoch=1, shard_epoch=2)


def old_marker_is_written(built: TransactionHistory) -> None:
    built.mark(0, commit=False, epoch=2)
    built.mark(1, commit=False, epoch=1)


def old_offsets_marker_is_written(built: TransactionHistory) -> None:
    built.mark_offsets(epoch=2, shard_epoch=1)
    built.mark_offsets(epoch=1, shard_epoch=2)


def batch_of_old_epoch_follows_a_marker(built: TransactionHistory) -> None:
    built.mark(0, commit=False, epoch=1)
    built.write(1, FIRST, epoch=0)


def first_batch_of_epoch_is_missing(built: TransactionHistory) -> None:
    built.write(0, FIRST, base_sequence=0)
    built.write(1, SECOND, base_sequence=1, epoch=1)


def batch_is_stored_twice(built: TransactionHistory) -> None:
    built.write(0, FIRST, base_sequence=0)
    built.write(1, FIRST, base_sequence=0)


def foreign_producer_id_is_accepted(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.end(producer_id=100)


def other_decision_is_acknowledged(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.end(commit=False)
    built.mark(0, commit=False)
    built.end(commit=True)


def open_transaction_outlives_its_timeout(built: TransactionHistory) -> None:
    """The coordinator has loaded the transaction again, which must not extend its timeout."""
    built.append(history.TransactionShardLoaded)
    built.init(epoch=0)
    built.produce(ErrorCode.NONE)
    built.at_ms += 50_000
    built.append(history.TransactionShardDropped)
    built.append(history.TransactionShardLoaded)
    built.at_ms += 14_000
    built.append(history.DecisionAppended, transactional_id="tx0", producer_id=1, epoch=1)


def offset_is_written_after_its_marker(built: TransactionHistory) -> None:
    built.announce_end(FIRST, consumes=True)
    built.append_pending()
    built.mark_offsets()
    built.append_pending()


def marker_precedes_its_decision(built: TransactionHistory) -> None:
    built.mark(0, commit=False, decided=False)


def client_gets_last_epoch(built: TransactionHistory) -> None:
    built.init(epoch=32_767)


def zombie_recovers_its_epoch(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.init(epoch=1)
    built.init(epoch=2)
    built.init(epoch=3, asked_epoch=1)


def markers_of_one_transaction_differ(built: TransactionHistory) -> None:
    built.init(epoch=0)
    built.end(version=5)
    built.mark(0, commit=True, epoch=1)
    built.mark(1, commit=False, epoch=1)


def acknowledged_commit_is_lost(built: TransactionHistory) -> None:
    built.write(0, FIRST)
    built.announce_end(FIRST)
    built.acknowledge_end()
    built.mark(1, commit=False)
    built.reread()


def acknowledged_record_is_not_committed(built: TransactionHistory) -> None:
    built.end()
    built.write(0, FIRST)
    built.announce_end(FIRST, SECOND)
    built.acknowledge_end()
    built.mark(1, commit=True)
    built.reread()


def aborted_transaction_is_committed(built: TransactionHistory) -> None:
    built.end()
    built.write(0, FIRST)
    built.announce_end(FIRST, commit=False)
    built.mark(1, commit=True)
    built.reread()


def half_of_transaction_is_committed(built: TransactionHistory) -> None:
    built.end()
    built.write(0, FIRST)
    built.announce_end(FIRST, SECOND)
    built.mark(1, commit=True)
    built.reread()


def offsets_of_committed_transaction_are_missing(built: TransactionHistory) -> None:
    built.end()
    built.write(0, FIRST)
    built.announce_end(FIRST, consumes=True)
    built.mark(1, commit=True)
    built.reread()


def record_is_committed_twice(built: TransactionHistory) -> None:
    built.end()
    built.write(0, FIRST, FIRST)
    built.announce_end(FIRST)
    built.mark(2, commit=True)
    built.reread()


def records_are_out_of_order(built: TransactionHistory) -> None:
    built.end()
    built.write(0, SECOND, FIRST)
    built.announce_end(FIRST, SECOND)
    built.mark(2, commit=True)
    built.reread()


def batch_is_missing_on_disk(built: TransactionHistory) -> None:
    built.write(0, FIRST)
    for index in range(OUTPUT_PARTITIONS):
        built.append(history.OutputReread, partition=TopicPartition("o", index), batches=())


def pending_partition_is_shown(built: TransactionHistory) -> None:
    built.append_pending()
    built.fetch_offset(-1)


def input_record_has_no_result(built: TransactionHistory) -> None:
    value = FIRST + b"1"
    built.write(0, value)
    built.announce_end(value, consumes=True)
    built.end()
    built.mark(1, commit=True)
    built.append_records(built.receive_offset_commit())
    built.fetch_offset(2, TAG.decode())
    built.reread()


def earlier_generation_commits_offsets(built: TransactionHistory) -> None:
    built.generation(1, member("a"))
    built.commit_as_member("a", 1)
    built.generation(2, member("a"))
    built.commit_as_member("a", 1)


def former_member_commits_offsets(built: TransactionHistory) -> None:
    built.generation(1, member("a"))
    built.commit_as_member("b", 1)


def current_member_cannot_commit_offsets(built: TransactionHistory) -> None:
    built.generation(1, member("a"))
    built.commit_as_member("a", 1, ErrorCode.ILLEGAL_GENERATION)


def loading_shard_accepts_offsets(built: TransactionHistory) -> None:
    built.generation(1, member("a"))
    built.commit_as_member("a", 1, is_loaded=False)


def loading_shard_accepts_offsets_without_member(built: TransactionHistory) -> None:
    built.commit_as_member("", -1, is_loaded=False)


BROKEN: dict[Callable[[TransactionHistory], None], str] = {
    aborted_record_is_shown: "G1a",
    open_record_is_shown: "G1b",
    committed_record_is_not_shown: "poll-skip",
    record_of_other_offset_is_shown: "inconsistent-offsets",
    decision_that_was_shown_is_lost: "G1a",
    stable_offset_passes_open_transaction: "last-stable-offset",
    stable_offset_moves_back: "last-stable-offset",
    stable_offset_exceeds_high_watermark: "last-stable-offset",
    zombie_writes: "producer-fence",
    zombie_commits_offsets: "producer-fence",
    late_record_begins_transaction: "producer-fence",
    producer_is_fenced_without_successor: "producer-fence",
    producer_cannot_repeat_its_recovery: "producer-fence",
    commit_marker_has_no_request: "decision",
    marker_precedes_its_decision: "decision",
    marker_ends_records_after_its_decision: "decision",
    transaction_completes_without_a_marker: "completion",
    batch_of_open_transaction_is_refused: "admission",
    former_coordinator_writes_marker: "coordinator-fence",
    former_coordinator_writes_offsets_marker: "coordinator-fence",
    foreign_producer_id_is_accepted: "producer-fence",
    other_decision_is_acknowledged: "decision",
    open_transaction_outlives_its_timeout: "transaction-timeout",
    old_marker_is_written: "epoch-order",
    old_offsets_marker_is_written: "epoch-order",
    batch_of_old_epoch_follows_a_marker: "epoch-order",
    first_batch_of_epoch_is_missing: "sequences",
    batch_is_stored_twice: "sequences",
    offset_is_written_after_its_marker: "late-offsets",
    client_gets_last_epoch: "producer-fence",
    zombie_recovers_its_epoch: "producer-fence",
    markers_of_one_transaction_differ: "decision",
    acknowledged_commit_is_lost: "lost-write",
    acknowledged_record_is_not_committed: "lost-write",
    aborted_transaction_is_committed: "G1a",
    half_of_transaction_is_committed: "torn-transaction",
    offsets_of_committed_transaction_are_missing: "torn-transaction",
    record_is_committed_twice: "duplicate",
    records_are_out_of_order: "int-nonmonotonic-send",
    batch_is_missing_on_disk: "lost-write",
    pending_partition_is_shown: "stable-offsets",
    input_record_has_no_result: "exactly-once",
    earlier_generation_commits_offsets: "generation-fence",
    former_member_commits_offsets: "generation-fence",
    loading_shard_accepts_offsets: "generation-fence",
    loading_shard_accepts_offsets_without_member: "generation-fence",
    current_member_cannot_commit_offsets: "generation-fence",
}


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.__name__)
def test_invalid_transaction_history_is_rejected(
    build: Callable[[TransactionHistory], None],
) -> None:
    with pytest.raises(RuleViolationError) as violation:
        build(TransactionHistory())
    assert violation.value.rule == BROKEN[build]


def test_valid_transaction_history_is_accepted() -> None:
    built = TransactionHistory()
    built.init(epoch=0)
    built.write(0, FIRST, SECOND)
    built.fetch(stable=0, begin=0)
    built.announce_end(FIRST, SECOND)
    built.end(version=5)
    built.mark(2, commit=True, epoch=1)
    built.acknowledge_end()
    built.fetch(FIRST, SECOND, stable=3)
    built.reread()


def test_rejected_completion_of_a_former_coordinator_breaks_no_rule() -> None:
    """Meanwhile the producer's next transaction is open."""
    built = TransactionHistory()
    built.init(epoch=0)
    built.write(0, FIRST)
    built.end(version=5)
    built.mark(1, commit=True, epoch=1)
    built.complete()
    built.write(2, SECOND, epoch=1)
    built.complete(2, durable=False)


def test_producer_with_a_successor_cannot_recover() -> None:
    built = TransactionHistory()
    built.init(epoch=0)
    built.init(epoch=1)
    built.init(code=90, asked_epoch=0)


def test_expired_transactional_id_is_given_to_an_old_producer() -> None:
    built = TransactionHistory()
    built.init(epoch=0)
    built.init(epoch=1)
    built.init(epoch=2)
    built.append(
        history.TransactionalIdExpired, transactional_id="tx0", changed_ms=None, wall_ms=built.at_ms
    )
    built.init(epoch=3, asked_epoch=1)


def test_batch_may_be_refused_after_the_end_of_its_transaction() -> None:
    built = TransactionHistory()
    built.init(epoch=0)
    built.end(version=5)
    built.produce(ErrorCode.INVALID_TXN_STATE)
    built.produce(ErrorCode.INVALID_TXN_STATE, epoch=1, opens_log=True)
    built.init(epoch=2)
    built.receive_request(
        INIT_PRODUCER_ID,
        InitProducerIdRequest(transactional_id="tx0", transaction_timeout_ms=60_000),
    )
    built.produce(ErrorCode.INVALID_TXN_STATE, epoch=2)


def test_stored_offset_counts_without_a_later_fetch() -> None:
    """The coordinator may move when the offsets are read for the last time."""
    built = TransactionHistory()
    values = [FIRST + b"0", SECOND + b"1"]
    built.write(0, *values)
    built.fetch_offset(-1)
    built.announce_end(*values, consumes=True)
    built.end()
    built.mark(2, commit=True)
    built.append_records(built.receive_offset_commit())
    built.reread()


def test_offset_that_is_aborted_in_its_append_is_not_pending() -> None:
    built = TransactionHistory()
    built.append_pending(with_end=True)
    built.fetch_offset(-1)


def test_lost_marker_of_later_coordinator_fences_nothing() -> None:
    built = TransactionHistory()
    built.mark(0, commit=False, coordinator_epoch=2)
    built.append(history.LogOpened, partition=PLACE, end_offset=0)
    built.mark(0, commit=False, coordinator_epoch=1)


def test_late_report_of_former_shard_owner_fences_nothing() -> None:
    built = TransactionHistory()
    built.mark_offsets(coordinator_epoch=2, shard_epoch=2)
    built.mark_offsets(coordinator_epoch=1, shard_epoch=1)


def test_sequences_continue_after_markers_and_lost_batches() -> None:
    built = TransactionHistory()
    built.write(0, FIRST, base_sequence=0)
    built.write(1, FIRST, SECOND, base_sequence=1)
    built.append(history.LogOpened, partition=PLACE, end_offset=1)
    built.write(1, FIRST, SECOND, base_sequence=1)
    built.mark(3, commit=False)
    built.write(4, FIRST, base_sequence=3)
    built.mark(5, commit=False, epoch=1)
    built.write(6, FIRST, base_sequence=0, epoch=1)


def test_transaction_may_outlive_its_timeout_while_no_coordinator_runs() -> None:
    built = TransactionHistory()
    built.append(history.TransactionShardLoaded)
    built.init(epoch=0)
    built.produce(ErrorCode.NONE)
    built.append(history.TransactionShardDropped)
    built.at_ms += 70_000
    built.append(history.TransactionShardLoaded)
    built.at_ms += 500
    built.append(history.StallEnded, broker=1, began_ms=built.at_ms - 10)
    built.at_ms += 2_000
    built.append(history.DecisionAppended, transactional_id="tx0", producer_id=1, epoch=1)
    built.at_ms += 10_000
    built.mark(0, commit=False, epoch=1)


def test_timers_wait_after_a_pause_although_the_coordinator_loads_then() -> None:
    built = TransactionHistory()
    built.append(history.TransactionShardLoaded)
    built.init(epoch=0)
    built.produce(ErrorCode.NONE)
    built.append(history.TransactionShardDropped)
    built.at_ms += 60_000
    built.append(history.StallEnded, began_ms=built.at_ms - 5_000)
    built.append(history.TransactionShardLoaded)
    built.at_ms += 7_000
    built.append(history.DecisionAppended, transactional_id="tx0", producer_id=1, epoch=1)


def test_repeated_marker_may_follow_records_that_were_lost() -> None:
    built = TransactionHistory()
    built.init(epoch=0)
    built.end()
    built.mark(0, commit=True)
    built.write(1, FIRST)
    built.append(history.LogOpened, partition=PLACE, end_offset=1)
    built.mark(1, commit=True, decided=False)
