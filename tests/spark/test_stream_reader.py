"""The streaming source on a real broker, called as Spark calls it; no Spark."""

import time

import pytest

from partage.model.topic_partition import TopicPartition
from partage.spark.bounds import SparkOptionError
from partage.spark.stream.partition_source import PartitionSource
from partage.sync import Consumer

from .group_state import committed, filled_topic, member_partitions, produce, wait_until
from .reader_driver import group_query_options


class StubSource(PartitionSource):
    """A source with one partition, and revoked partitions whose batch is committed."""

    def __init__(self, done, partition):
        super().__init__()
        self._done = done
        self._owned = {partition: 1}
        self.commits = []

    async def start(self):
        pass

    async def readable(self):
        return self._owned

    @property
    def owned(self):
        return self._owned

    @property
    def pending_revocation(self):
        return tuple(self._done)

    async def committed_offsets(self, partitions):
        return {p: at for p, at in self._done.items() if p in partitions}

    async def commit(self, offsets):
        if offsets:
            self.commits.append(dict(offsets))
        return True


class ReturningSource(StubSource):
    """A source whose partition is lost and returns during the first lookup of its offset."""

    lookups = lookups_before_commit = 0

    async def committed_offsets(self, partitions):
        self.lookups += 1
        if self.lookups == 1:
            self._owned = {partition: number + 1 for partition, number in self._owned.items()}
        return await super().committed_offsets(partitions)

    async def commit(self, offsets):
        if offsets and not self.commits:
            self.lookups_before_commit = self.lookups
        return await super().commit(offsets)


class TestGroups:
    def test_batch_is_committed_at_next_call(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        one = query(**group_query_options(topic))
        assert one.batch() == truth
        assert committed(kafka, topic, topic, 2) == [0, 0]
        assert one.batch() == []
        assert committed(kafka, topic, topic, 2) == [5, 5]

    def test_report_has_metrics_of_connector(self, query, kafka):
        topic, _ = filled_topic(kafka, 2, 8)
        kafka.produce(topic, [{"value": b"x", "partition": 1}] * 8)
        one = query(**group_query_options(topic, maxOffsetsPerTrigger="8"))
        assert one.reader.reportLatestOffset() is None
        assert len(one.batch()) == 8
        assert one.reader.reportLatestOffset()["metrics"] == {
            "avgOffsetsBehindLatest": "4.0",
            "maxOffsetsBehindLatest": "6",
            "minOffsetsBehindLatest": "2",
        }
        assert one.reader.reportLatestOffset()["lag"] == 8
        assert len(one.batch()) == 8
        assert one.batch() == []
        assert one.reader.reportLatestOffset()["metrics"]["maxOffsetsBehindLatest"] == "0"

    def test_report_without_partitions_has_no_metrics(self, query, kafka):
        topic, _ = filled_topic(kafka, 1, 2)
        one, two = (query(**group_query_options(topic)) for _ in range(2))
        assert len(one.batch()) == 2
        assert two.batch() == []
        report = two.reader.reportLatestOffset()
        assert report is None or report["metrics"] == {}

    def test_partitions_are_revoked_between_batches_only(self, query, kafka):
        topic, truth = filled_topic(kafka, 4, 40)
        one, two = query(**group_query_options(topic)), query(**group_query_options(topic))
        assert one.batch() == truth
        wait_until(lambda: two.batch() == [] and len(member_partitions(kafka, topic)) == 2)
        assert sorted(map(len, member_partitions(kafka, topic).values())) == [0, 2]
        assert two.plan() is None  # the first query still has its partitions in a batch
        one.plan()  # finishes the batch
        wait_until(
            lambda: (
                (two.plan(), sorted(map(len, member_partitions(kafka, topic).values())))[1]
                == [2, 2]
            )
        )
        produce(kafka, topic, 4)
        rows = []
        wait_until(lambda: len(rows.extend(one.batch() + two.batch()) or rows) >= 4)
        assert sorted(rows) == [(p, 10) for p in range(4)]

    def test_idle_query_releases_revoked_partitions(self, query, kafka):
        """With a trigger once an hour and no batch in progress, members do not wait for the
        trigger.
        """
        topic, truth = filled_topic(kafka, 2, 10)
        one = query(**group_query_options(topic))
        assert one.all() == truth
        two = query(**group_query_options(topic))
        wait_until(
            lambda: (
                (two.plan(), sorted(map(len, member_partitions(kafka, topic).values())))[1]
                == [1, 1]
            )
        )

    def test_restarted_query_starts_new_partitions_by_options(self, query, kafka, monkeypatch):
        """After a restart, Spark first repeats the last batch; a revocation can arrive before the
        next call.
        """
        topic, _ = filled_topic(kafka, 2, 10)
        before = query(subscribe=topic, startingOffsets="earliest")
        before.plan()
        before.last_offset["ranges"][topic].pop("1")  # then owned by another member
        before.stop()
        holding = StubSource({TopicPartition(topic, 0): 5}, TopicPartition(topic, 1))
        monkeypatch.setattr(
            "partage.spark.stream.stream_source.AllPartitions", lambda look: holding
        )
        monkeypatch.setattr("partage.spark.stream.stream_source._IDLE_CHECK_INTERVAL_S", 0.01)
        again = query(checkpoint=before.checkpoint, subscribe=topic, startingOffsets="latest")
        again.read()
        wait_until(lambda: holding.commits)
        assert holding.commits[0] == {TopicPartition(topic, 1): 5}

    def test_partition_that_returned_is_not_committed(self, query, kafka, monkeypatch):
        """It was lost and returned while the query looked up its first position."""
        topic, _ = filled_topic(kafka, 1, 1)
        source = ReturningSource({}, TopicPartition(topic, 0))
        monkeypatch.setattr("partage.spark.stream.stream_source.AllPartitions", lambda look: source)
        assert query(subscribe=topic, startingOffsets="earliest").all() == [(0, 0)]
        assert source.lookups_before_commit == 2

    def test_stopped_query_leaves_the_group(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        one = query(**group_query_options(topic))
        assert one.all() == truth
        one.stop()
        assert member_partitions(kafka, topic) == {}
        produce(kafka, topic, 2)
        assert query(**group_query_options(topic)).all() == [(0, 5), (1, 5)]

    def test_killed_query_expires_and_repeats_its_batch(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        hasty = {"kafka__session__timeout__ms": "1000", "kafka__heartbeat__interval__ms": "200"}
        one = query(**group_query_options(topic, **hasty))
        assert one.batch() == truth
        one.kill()
        produce(kafka, topic, 2)
        two = query(**group_query_options(topic))
        rows = []
        wait_until(lambda: rows.extend(two.batch()) or len(rows) >= 12)
        assert sorted(rows) == sorted([*truth, (0, 5), (1, 5)])  # the batch was never committed
        one.start()
        # the batch in progress is unchanged, although its partitions have another owner
        assert one.read() == truth
        assert two.all() == []
        assert committed(kafka, topic, topic, 2) == [6, 6]
        wait_until(lambda: one.plan() is None and len(member_partitions(kafka, topic)) == 2)
        assert committed(kafka, topic, topic, 2) == [6, 6]  # not back to 5

    def test_expired_member_rejoins_without_decreasing_commits(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        hasty = {"kafka__session__timeout__ms": "1000", "kafka__heartbeat__interval__ms": "200"}
        one = query(**group_query_options(topic, **hasty))
        assert one.batch() == truth
        with kafka.blocked_loop(one.reader._runtime.loop):
            two = query(**group_query_options(topic))
            rows = []
            wait_until(lambda: rows.extend(two.batch()) or len(rows) >= 10)
            produce(kafka, topic, 2)
            wait_until(lambda: rows.extend(two.batch()) or len(rows) >= 12)
            assert two.plan() is None
        assert committed(kafka, topic, topic, 2) == [6, 6]
        wait_until(
            lambda: (
                one.plan(),
                two.plan(),
                sorted(map(len, member_partitions(kafka, topic).values())) == [1, 1],
            )[2]
        )
        assert committed(kafka, topic, topic, 2) == [6, 6]
        produce(kafka, topic, 2)
        rows = []
        wait_until(lambda: rows.extend(one.batch() + two.batch()) or len(rows) >= 2)
        assert sorted(rows) == [(0, 6), (1, 6)]

    def test_committed_offsets_override_starting_offsets(self, query, kafka):
        topic, _ = filled_topic(kafka, 2, 10)
        with Consumer(kafka.servers, group_id=topic) as consumer:
            consumer.assign([(topic, 0), (topic, 1)])
            consumer.commit({(topic, 0): 3})
        assert query(**group_query_options(topic)).all() == [
            (0, 3),
            (0, 4),
            *((1, n) for n in range(5)),
        ]

    def test_latest_start_is_committed_for_the_next_owner(self, query, kafka):
        """With ``latest``, records that arrive during a handover are not skipped."""
        topic, _ = filled_topic(kafka, 1, 5)
        options = {"subscribe": topic, "kafka__group__id": topic}
        one = query(**options)
        assert one.all() == []
        assert committed(kafka, topic, topic, 1) == [5]
        one.stop()
        produce(kafka, topic, 1)
        assert query(**options).all() == [(0, 5)]

    def test_new_partitions_are_read_from_earliest(self, query, kafka):
        topic, _ = filled_topic(kafka, 1, 5)
        options = {"subscribe": topic, "kafka__group__id": topic}
        one = query(kafka__metadata__max__age__ms="100", **options)
        assert one.all() == []
        kafka.widen(topic, 2)
        produce(kafka, topic, 2)
        rows = []
        wait_until(lambda: rows.extend(one.batch()) or len(rows) >= 2)
        assert sorted(rows) == [(0, 5), (1, 0)]

    def test_pattern_includes_new_topics(self, query, kafka):
        topic, truth = filled_topic(kafka, 1, 5)
        options = {"subscribePattern": f"{topic}(x.*)?", "startingOffsets": "earliest"}
        one = query(kafka__metadata__max__age__ms="100", kafka__group__id=topic, **options)
        assert one.all() == truth
        kafka.create(f"{topic}x")
        produce(kafka, f"{topic}x", 1)
        assert wait_until(one.batch) == [(0, 0)]

    def test_assigned_partitions_are_committed_without_joining(self, query, kafka):
        topic, truth = filled_topic(kafka)
        options = group_query_options(topic, assign=f'{{"{topic}": [1, 3]}}')
        del options["subscribe"]
        one = query(**options)
        assert one.all() == [row for row in truth if row[0] in (1, 3)]
        assert member_partitions(kafka, topic) == {}
        assert committed(kafka, topic, topic, 4) == [None, 25, None, 25]

    @pytest.mark.parametrize(
        ("strategy", "protocol"),
        [
            ("range", "range"),
            ("org.apache.kafka.clients.consumer.RoundRobinAssignor", "roundrobin"),
            ("weighted, cooperative-sticky", "weighted"),
            ("partage.assignors:ConsistentHashing", "consistent-hashing"),
        ],
    )
    def test_configured_assignor_is_used(self, query, kafka, strategy, protocol):
        topic, truth = filled_topic(kafka, 12, 24)
        options = group_query_options(topic, kafka__partition__assignment__strategy=strategy)
        one, two = query(**options), query(**options)
        assert one.all() == truth
        wait_until(
            lambda: (
                one.plan(),
                two.plan(),
                [bool(owned) for owned in member_partitions(kafka, topic).values()] == [True, True],
            )[2]
        )
        assert kafka.protocol(topic) == protocol

    def test_static_member_keeps_its_assignment(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        options = group_query_options(topic, kafka__group__instance__id="i")
        one = query(**options)
        assert one.all() == truth
        (before,) = member_partitions(kafka, topic).items()
        one.stop()
        # a static member does not send LeaveGroup (KIP-345)
        assert member_partitions(kafka, topic) == dict([before])
        two = query(**options)
        assert two.all() == []
        generation = one.checkpoint[-1]["generation"]
        produce(kafka, topic, 2)
        assert two.all() == [(0, 5), (1, 5)]
        assert two.checkpoint[-1]["generation"] == generation  # no rebalance happened

    def test_query_survives_broker_restart(self, query):
        from partage.testing import BrokerProcess

        with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
            from .conftest import Kafka

            there = Kafka(broker.bootstrap_servers)
            topic, truth = filled_topic(there, 2, 10)
            one = query(broker.bootstrap_servers, **group_query_options(topic))
            assert one.batch() == truth
            broker.kill()
            broker.start()
            produce(there, topic, 2)
            assert wait_until(one.batch) == [(0, 5), (1, 5)]
            wait_until(lambda: one.plan() is None and committed(there, topic, topic, 2) == [6, 6])


class TestTriggers:
    def test_max_offsets_per_trigger_is_respected(self, query, kafka):
        topic, _ = filled_topic(kafka, 4, 100)
        kafka.produce(topic, [{"value": b"x", "partition": 0}] * 100)
        one = query(**group_query_options(topic, maxOffsetsPerTrigger="40"))
        rows = one.batch()
        assert [sum(p == n for p, _ in rows) for n in range(4)] == [25, 5, 5, 5]
        assert one.checkpoint[-1]["lag"] == {topic: {"0": 100, "1": 20, "2": 20, "3": 20}}
        assert len(one.batch(one.everything())) == 160

    def test_min_offsets_per_trigger_delays_batch(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        options = group_query_options(topic, minOffsetsPerTrigger="4", maxTriggerDelay="1h")
        one = query(**options)
        assert one.batch() == truth  # the first batch does not wait
        produce(kafka, topic, 1, 3)
        assert one.batch() == []
        assert committed(kafka, topic, topic, 2) == [5, 5]
        produce(kafka, topic, 1, 1)
        assert one.batch() == [(0, n) for n in range(5, 9)]
        produce(kafka, topic, 1)
        one.stop()
        again = query(checkpoint=one.checkpoint, **options)
        assert again.available_now() == [(0, 9)]  # no further records will come

    def test_max_trigger_delay_limits_the_wait(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        one = query(**group_query_options(topic, minOffsetsPerTrigger="4", maxTriggerDelay="300ms"))
        assert one.batch() == truth
        produce(kafka, topic, 1)
        assert wait_until(one.batch) == [(0, 5)]

    def test_available_now_ends_at_initial_end_offsets(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        one = query(**group_query_options(topic, maxOffsetsPerTrigger="4"))
        one.reader.prepareForTriggerAvailableNow()
        rows = one.batch()
        produce(kafka, topic, 2)
        assert sorted(rows + one.all()) == truth
        assert committed(kafka, topic, topic, 2) == [5, 5]

    def test_idle_call_waits_for_fetch_max_wait(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        one = query(**group_query_options(topic, kafka__fetch__max__wait__ms="300"))
        assert one.all() == truth
        began = time.monotonic()
        assert one.plan() is None
        assert time.monotonic() - began >= 0.25


class TestOutsideAnyGroup:
    def test_each_query_reads_all_partitions(self, query, kafka):
        topic, truth = filled_topic(kafka, 2, 10)
        options = {"subscribe": topic, "startingOffsets": "earliest", "minPartitions": "6"}
        one, two = query(**options), query(**options)
        assert one.all() == two.all() == truth
        produce(kafka, topic, 2)
        again = query(checkpoint=one.checkpoint, **options)
        assert again.all() == [(0, 5), (1, 5)]
        kafka.widen(topic, 3)
        produce(kafka, topic, 3)
        rows = []
        wait_until(lambda: rows.extend(again.batch()) or len(rows) >= 3)
        assert sorted(rows) == [(0, 6), (1, 6), (2, 0)]

    def test_starting_options_are_applied(self, query, kafka):
        topic = kafka.topic(2)
        records = [{"value": b"x", "partition": n % 2, "timestamp": 1000 + n} for n in range(10)]
        kafka.produce(topic, records)

        def rows(**options):
            return query(subscribe=topic, **options).all()

        assert rows() == []
        starting = f'{{"{topic}": {{"0": 3, "1": -1}}}}'
        assert rows(startingOffsets=starting) == [(0, 3), (0, 4)]
        assert rows(startingTimestamp="1007") == [(0, 4), (1, 3), (1, 4)]
        with pytest.raises(SparkOptionError, match="no record of"):
            rows(startingTimestamp="5000")
        strategy = {"startingOffsetsByTimestampStrategy": "latest"}
        assert rows(startingTimestamp="1009", **strategy) == [(1, 4)]
        with pytest.raises(SparkOptionError, match="starting offsets must name exactly"):
            rows(startingOffsets=f'{{"{topic}": {{"0": 3}}}}')
