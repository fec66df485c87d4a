"""Fetch responses of a scripted broker."""

import asyncio
from contextlib import suppress

import pytest
from msgspec import structs

import partage
from partage.client import (
    BrokerResponseError,
    ClientError,
    CorruptRecordsError,
    TopicPartition,
)
from partage.client.consumer import (
    ApiTimeoutError,
    ConsumerClosedError,
    NoOffsetForPartitionError,
    PositionTimeoutError,
    ReadTimeoutError,
)
from partage.model.errors import ErrorCode
from partage.wire.apis.fetch import FetchAbortedTransaction
from partage.wire.apis.metadata import MetadataResponse, MetadataTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch

from ..scripted_broker import CLOSE, SILENCE, ScriptedBroker, fetched

T0 = TopicPartition("t", 0)
PATIENT = 10_000
QUICK = {
    "auto_offset_reset": "earliest",
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "fetch_max_wait_ms": 10,
}


def batch(first, count, **more):
    records = [SimpleRecord(None, b"%d" % (first + n), (), 1000) for n in range(count)]
    return encode_batch(records, base_offset=first, **more)


class Script:
    """A handler that sends these responses, and then an empty one after a pause."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.offsets = []

    def __call__(self, asked):
        if asked.api.name != "Fetch":
            return None
        self.offsets.append(asked.message.topics[0].partitions[0].fetch_offset)
        if not self.answers:
            return fetched(asked)
        answer = self.answers.pop(0)
        return answer(asked) if callable(answer) else answer


def records(blob):
    return lambda asked: fetched(asked, blob)


def error(code):
    return lambda asked: fetched(asked, error=code)


def scripted(script, work, **options):
    async def assigned(consumer, broker):
        consumer.assign([T0])
        return await work(consumer, broker)

    return unassigned(assigned, script, **options)


def unassigned(work, script=lambda asked: None, **options):
    async def main():
        async with (
            ScriptedBroker(script) as broker,
            partage.Consumer(str(broker.address), **{**QUICK, **options}) as consumer,
        ):
            return await work(consumer, broker)

    return asyncio.run(main())


async def polled(consumer, count):
    found = []
    while len(found) < count:
        found += [record.offset for record in await consumer.poll(PATIENT)]
    return found


def test_error_of_the_cluster_ends_a_poll_that_waits():
    """Without records and partitions with errors, nothing else would end the poll."""
    is_held, held = asyncio.Event(), []

    async def work(consumer, broker):
        def script(asked):
            if asked.api.name != "Metadata":
                return None
            if not held:
                held.append(asked)
                is_held.set()
                return SILENCE
            refused = MetadataTopic(error_code=29, name="t", partitions=[])
            answer = MetadataResponse(brokers=[], controller_id=1, topics=[refused])
            return [held[0].reply(answer), asked.reply(answer)]

        broker.script = script
        consumer.assign([T0])
        poll = asyncio.create_task(consumer.poll(10 * PATIENT))
        await is_held.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not poll.done()
        with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
            await consumer.partitions_of("t")
        with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
            await asyncio.wait_for(poll, PATIENT / 1000)

    unassigned(work)


class TestErrors:
    @pytest.mark.parametrize(
        "trouble",
        [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.OFFSET_NOT_AVAILABLE,
        ],
    )
    def test_transient_error_refreshes_metadata_and_retries(self, trouble):
        async def work(consumer, broker):
            assert await polled(consumer, 2) == [0, 1]
            return broker.names()

        names = scripted(Script(error(trouble), records(batch(0, 2))), work)
        assert names.count("Metadata") >= 2

    def test_connection_loss_is_retried(self):
        async def work(consumer, broker):
            assert await polled(consumer, 4) == [0, 1, 2, 3]
            assert broker.connections >= 2

        scripted(Script(records(batch(0, 2)), CLOSE, records(batch(2, 2))), work)

    @pytest.mark.parametrize("api", ["Metadata", "ListOffsets"])
    def test_outage_is_no_error_of_polls(self, api):
        """It lasts longer than `default_api_timeout_ms`; `position` reports it after that time."""
        answers = Script(records(batch(0, 2)))
        is_down = True

        def script(asked):
            return SILENCE if is_down and asked.api.name == api else answers(asked)

        async def work(consumer, broker):
            nonlocal is_down
            with pytest.raises(PositionTimeoutError, match=f"t-0 .* {api} within 20 ms"):
                await consumer.position(T0)
            assert not await consumer.poll(100)
            is_down = False
            assert await polled(consumer, 2) == [0, 1]

        scripted(script, work, default_api_timeout_ms=50, request_timeout_ms=20)

    @pytest.mark.parametrize("error", ["LEADER_NOT_AVAILABLE", "TOPIC_AUTHORIZATION_FAILED"])
    def test_error_of_a_topic_does_not_affect_other_topics(self, error):
        code = ErrorCode[error]

        def script(asked):
            if asked.api.name != "Metadata" or not asked.message.topics:
                return None
            answer = broker_of[0].default(asked)
            topics = [
                MetadataTopic(error_code=code, name="u", partitions=[]) if t.name == "u" else t
                for t in answer.topics
            ]
            return structs.replace(answer, topics=topics)

        broker_of = []

        async def work(consumer, broker):
            broker_of.append(broker)
            broker.topics = {"t": 1, "u": 1}
            answers = Script(records(batch(0, 2)))
            broker.script = lambda asked: script(asked) or answers(asked)
            consumer.assign([("u", 0), T0])
            found, raised = [], set()
            while len(found) < 2:
                try:
                    found += [record.offset for record in await consumer.poll(PATIENT)]
                except BrokerResponseError as failure:
                    raised.add(failure.code)
            assert found == [0, 1]
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                assert raised <= {code}
            else:
                assert not raised
                with pytest.raises(PositionTimeoutError, match="LEADER_NOT_AVAILABLE"):
                    await consumer.position(("u", 0))

        unassigned(work, default_api_timeout_ms=200)

    def test_denied_metadata_does_not_end_the_fetches_of_a_topic(self):
        """The last metadata is used: a denied fetch has a separate error."""
        answers = Script(records(batch(0, 2)))

        async def work(consumer, broker):
            assert await polled(consumer, 2) == [0, 1]
            denied = broker.default(next(a for a in broker.asked if a.api.name == "Metadata"))
            denied.topics[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            broker.script = lambda asked: denied if asked.api.name == "Metadata" else answers(asked)
            with pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED"):
                await consumer.poll(PATIENT)
            answers.answers.append(records(batch(2, 2)))
            found = []
            for _ in range(100):
                with suppress(BrokerResponseError):
                    found += [record.offset for record in await consumer.poll(50)]
            assert found == [2, 3]

        scripted(answers, work, metadata_max_age_ms=20)

    @pytest.mark.parametrize(
        ("api", "call"),
        [
            ("ListOffsets", lambda consumer: consumer.end_offsets([T0])),
            ("ListOffsets", lambda consumer: consumer.beginning_offsets([T0])),
            ("ListOffsets", lambda consumer: consumer.offsets_for_times({T0: 0})),
            ("Metadata", lambda consumer: consumer.partitions_of("t")),
        ],
    )
    def test_calls_end_within_their_timeout(self, api, call):
        """Although a request may take longer."""

        async def work(consumer, broker):
            broker.script = lambda asked: SILENCE if asked.api.name == api else None
            async with asyncio.timeout(10):
                with pytest.raises(ApiTimeoutError, match=r"default_api_timeout_ms \(50\)"):
                    await call(consumer)

        unassigned(work, default_api_timeout_ms=50)

    def test_timeout_of_a_call_names_the_last_error(self):
        asked_before = []

        def script(asked):
            if asked.api.name != "ListOffsets":
                return None
            asked_before.append(asked)
            return CLOSE if len(asked_before) == 1 else SILENCE

        async def work(consumer, broker):
            broker.script = script
            with pytest.raises(ApiTimeoutError, match=r"last error: .*the broker closed it"):
                await consumer.end_offsets([T0])

        unassigned(work, default_api_timeout_ms=2_000)

    @pytest.mark.parametrize("api", ["Metadata", "ListOffsets"])
    def test_timeout_of_to_arrow_includes_the_lookups(self, api):
        async def work(consumer, broker):
            consumer.assign([T0])
            broker.script = lambda asked: SILENCE if asked.api.name == api else None
            async with asyncio.timeout(10):
                with pytest.raises(ReadTimeoutError, match="t-0 was not reached within 50 ms"):
                    await consumer.to_arrow(timeout_ms=50)

        unassigned(work)

    def test_partition_whose_leader_returned_before_it_was_assigned_is_read(self):
        """Its leader is missing in the metadata that is known, and valid for five minutes."""
        answers = Script(records(batch(0, 2)))
        is_down = True

        async def work(consumer, broker):
            nonlocal is_down

            def script(asked):
                if asked.api.name == "Metadata" and is_down:
                    answer = broker.default(asked)
                    for topic in answer.topics:
                        topic.partitions[1].leader_id = -1
                    return answer
                return answers(asked)

            broker.topics = {"t": 2}
            broker.script = script
            consumer.assign([T0])
            assert await polled(consumer, 2) == [0, 1]
            is_down = False
            consumer.assign([T0, ("t", 1)])
            assert await consumer.position(("t", 1)) == broker.ends[0]

        unassigned(work, default_api_timeout_ms=10_000)

    def test_position_without_a_leader_says_so(self):
        async def work(consumer, broker):
            broker.leader_id = -1
            with pytest.raises(PositionTimeoutError, match="partition t-0 has no leader"):
                await consumer.position(T0)

        scripted(Script(), work, default_api_timeout_ms=50)

    def test_position_of_a_paused_partition_raises_the_error_of_its_lookup(self):
        async def work(consumer, broker):
            consumer.assign([T0])
            consumer.pause(T0)
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.position(T0)

        unassigned(work, auto_offset_reset="none")

    def test_permanent_error_is_raised_and_retried(self):
        async def work(consumer, broker):
            with pytest.raises(
                BrokerResponseError, match="fetching t-0: TOPIC_AUTHORIZATION_FAILED"
            ):
                await consumer.poll(PATIENT)
            assert await polled(consumer, 2) == [0, 1]

        refused = error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        scripted(Script(refused, records(batch(0, 2))), work)

    def test_leader_change_is_followed(self):
        async def main():
            script = Script(records(batch(0, 2)), error(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            async with (
                ScriptedBroker(script) as old,
                ScriptedBroker(Script(records(batch(2, 2)))) as new,
                partage.Consumer(str(old.address), **QUICK) as consumer,
            ):
                new.node_id = 2
                old.peers = [new]
                new.peers = [old]
                consumer.assign([T0])
                assert await polled(consumer, 2) == [0, 1]
                old.leader_id = new.leader_id = 2
                assert await polled(consumer, 2) == [2, 3]
                assert old.script.offsets == [0, 2]
                assert new.script.offsets[0] == 2

        asyncio.run(main())

    def test_missing_leader_is_waited_for(self):
        async def work(consumer, broker):
            broker.leader_id = -1
            assert not await consumer.poll(50)
            broker.leader_id = 1
            assert await polled(consumer, 2) == [0, 1]

        scripted(Script(records(batch(0, 2))), work)


class TestRecords:
    def test_corrupt_batch_is_raised_after_valid_records(self):
        damaged = bytearray(batch(2, 2))
        damaged[-1] ^= 1

        async def work(consumer, broker):
            assert await polled(consumer, 2) == [0, 1]
            for _ in range(2):
                with pytest.raises(
                    CorruptRecordsError, match=r"are corrupt at offset 2: a wrong .*at offset 4, "
                ) as raised:
                    await consumer.poll(PATIENT)
                assert (raised.value.offset, raised.value.next_offset) == (2, 4)
            assert await consumer.position(T0) == 2
            consumer.seek(T0, 4)
            assert await polled(consumer, 1) == [4]

        answers = [records(batch(0, 2) + bytes(damaged)), *[records(bytes(damaged))] * 4]

        def script(asked):
            if asked.api.name != "Fetch":
                return None
            offset = asked.message.topics[0].partitions[0].fetch_offset
            if offset >= 4:
                return fetched(asked, batch(4, 1) if offset == 4 else b"")
            return answers[min(offset, 1)](asked)

        scripted(script, work)

    def test_corrupt_message_from_broker_is_raised_at_once(self):
        async def work(consumer, broker):
            with pytest.raises(CorruptRecordsError, match="corrupt at offset 0: the broker found"):
                await consumer.poll(PATIENT)

        scripted(Script(error(ErrorCode.CORRUPT_MESSAGE)), work)

    def test_check_crcs_false_reads_wrong_checksum(self):
        damaged = bytearray(batch(0, 2))
        damaged[17] ^= 1  # the checksum itself

        async def work(consumer, broker):
            assert await polled(consumer, 2) == [0, 1]

        scripted(Script(records(bytes(damaged))), work, check_crcs=False)

    def test_old_record_format_is_refused(self):
        old = bytearray(batch(0, 2))
        old[16] = 1

        async def work(consumer, broker):
            with pytest.raises(CorruptRecordsError, match="a format older than Kafka"):
                await consumer.poll(PATIENT)

        scripted(Script(records(bytes(old))), work)

    def test_batch_before_position_is_trimmed(self):
        async def work(consumer, broker):
            consumer.seek(T0, 3)
            found = await consumer.poll(PATIENT)
            assert [r.offset for r in found] == [3, 4]
            assert found.to_arrow(["offset"])["offset"].to_pylist() == [3, 4]

        scripted(Script(records(batch(0, 5)), records(batch(0, 5))), work)

    def test_both_timestamp_types_in_one_response(self):
        both = batch(0, 2) + batch(2, 2, append_time_ms=5)

        async def work(consumer, broker):
            found = [r.timestamp_type for r in await consumer.poll(PATIENT)]
            assert found == [0, 0, 1, 1]

        scripted(Script(records(both)), work)

    def test_aborted_transactions_are_skipped(self):
        blob = batch(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)

        def aborted(asked):
            answer = fetched(asked, blob + batch(2, 2))
            (result,) = answer.responses[0].partitions
            result.aborted_transactions = [FetchAbortedTransaction(producer_id=7, first_offset=0)]
            assert asked.message.isolation_level == 1
            return answer

        async def work(consumer, broker):
            assert await polled(consumer, 2) == [2, 3]

        scripted(Script(aborted), work, isolation_level="read_committed")


class TestUser:
    def test_cancelled_poll_loses_no_records(self):
        async def work(consumer, broker):
            waiting = asyncio.create_task(consumer.poll(PATIENT))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await polled(consumer, 2) == [0, 1]

        scripted(Script(records(batch(0, 2))), work)

    def test_close_during_fetch_returns(self):
        async def work(consumer, broker):
            await consumer.position(T0)
            await consumer.close()
            with pytest.raises(ConsumerClosedError):
                await consumer.end_offsets([T0])

        scripted(Script(), work)
