"""Errors of the streaming source for invalid options, checkpoints and topics."""

import logging
import traceback

import pytest

from partage.client import ClientError, RecordsUnavailableError, UnknownTopicError
from partage.client.errors import BrokersUnreachableError
from partage.client.group.errors import MemberFailedError
from partage.spark.bounds import SparkOptionError
from partage.spark.stream.offset import CheckpointError
from partage.spark.stream.query_topics import TopicDeletedError
from partage.sync import Membership

from .group_state import filled_topic, produce, wait_until
from .reader_driver import group_query_options


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "story"),
        [
            ({"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
            ({"kafka__session__timeout__ms": "9"}, "heartbeat.interval.ms=3000 must be less"),
            ({"kafka__session__timeout__ms": "9000"}, "only a group member uses it"),
            ({"kafka__group__instance__id": "i"}, "names a group member; set kafka.group.id"),
            ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "is more than max"),
            ({"maxTriggerDelay": "soon"}, "takes a time such as 15m"),
            ({"kafka__partition__assignment__strategy": "rnage"}, "did you mean range"),
            ({"kafka__partition__assignment__strategy": "x:Y"}, "cannot be imported"),
            (
                {"kafka__partition__assignment__strategy": "json:loads"},
                "is not a subclass of partage",
            ),
            ({"kafka__partition__assignment__strategy": "range,range"}, "two assignors"),
            ({"kafka__group__id": " "}, "kafka.group.id is empty"),
        ],
    )
    def test_invalid_options_are_rejected(self, query, options, story):
        with pytest.raises(SparkOptionError, match=story):
            query("h:1", subscribe="t", **options)

    def test_foreign_checkpoint_is_rejected(self, query, kafka):
        topic, truth = filled_topic(kafka, 1, 3)
        one = query(**group_query_options(topic))
        assert one.all() == truth
        kept = one.checkpoint
        with pytest.raises(CheckpointError, match="this one is in group 'another'"):
            query(checkpoint=kept, **group_query_options(topic, kafka__group__id="another")).all()
        elsewhere = kafka.topic()
        with pytest.raises(CheckpointError, match=f"belongs to topics {topic}, none of which"):
            query(checkpoint=kept, **group_query_options(topic, subscribe=elsewhere)).all()
        moved = [{**kept[-1], "cluster": "another"}]
        with pytest.raises(CheckpointError, match="belongs to another cluster"):
            query(checkpoint=moved, **group_query_options(topic)).all()
        with pytest.raises(CheckpointError, match="belongs to another cluster"):
            query(checkpoint=[{}, *moved], **group_query_options(topic)).read()

    def test_topic_removed_from_options_is_logged(self, query, kafka, caplog):
        topic, _ = filled_topic(kafka, 1, 3)
        other, _ = filled_topic(kafka, 1, 3)
        one = query(**group_query_options(topic, subscribe=f"{topic},{other}"))
        one.all()
        one.stop()
        produce(kafka, topic, 1)
        with caplog.at_level(logging.WARNING):
            again = query(checkpoint=one.checkpoint, **group_query_options(topic))
            assert again.all() == [(0, 3)]
        assert f"the checkpoint has topics that the query does not read: ['{other}']" in caplog.text

    def test_group_with_other_protocol_type_fails(self, query, kafka):
        topic, _ = filled_topic(kafka, 1, 3)
        with Membership(kafka.servers, topic, "crew", {}) as member:
            member.assignment(timeout_ms=60_000)
            with pytest.raises(MemberFailedError, match="INCONSISTENT_GROUP_PROTOCOL"):
                query(**group_query_options(topic)).all()

    def test_replaced_static_member_is_fenced(self, query, kafka):
        topic, _ = filled_topic(kafka, 1, 3)
        options = group_query_options(
            topic, kafka__group__instance__id="i", kafka__heartbeat__interval__ms="100"
        )
        one = query(**options)
        one.all()
        query(**options).all()

        def is_told():
            with pytest.raises(MemberFailedError, match="FENCED_INSTANCE_ID"):
                wait_until(lambda: one.plan() is not None)
            return True

        assert is_told()

    def test_unreachable_broker_fails(self, query):
        with pytest.raises(BrokersUnreachableError, match=r"127\.0\.0\.1:1: Connection refused"):
            query("127.0.0.1:1", subscribe="t", kafka__group__id="g").all()

    def test_unknown_topic_fails(self, query, kafka):
        for options in ({}, {"kafka__group__id": "g"}):
            with pytest.raises(UnknownTopicError, match="there is no topic 'nowhere'"):
                query(subscribe="nowhere", **options).all()

    @pytest.mark.parametrize("in_group", [True, False])
    def test_deleted_records_fail_or_are_skipped(self, query, kafka, caplog, in_group):
        topic, truth = filled_topic(kafka, 1, 10)
        options = group_query_options(topic)
        if not in_group:
            del options["kafka__group__id"]
        one = query(**options)
        assert one.all() == truth
        produce(kafka, topic, 1, 10)
        kafka.cut(topic, 15)
        with pytest.raises(RecordsUnavailableError, match=f"offset 10 of {topic}-0 was deleted"):
            one.plan()
        one.stop()
        with caplog.at_level(logging.WARNING):
            again = query(checkpoint=one.checkpoint, failOnDataLoss="false", **options)
            assert again.all() == [(0, o) for o in range(15, 20)]
        assert "skipped because failOnDataLoss=false" in caplog.text

    def test_records_deleted_after_plan_fail_or_are_skipped(self, query, kafka):
        topic, _ = filled_topic(kafka, 1, 10)
        one = query(**group_query_options(topic))
        one.plan()
        kafka.cut(topic, 4)
        with pytest.raises(RecordsUnavailableError, match="offset 0 of"):
            one.read()
        again = query(
            checkpoint=one.checkpoint, failOnDataLoss="false", **group_query_options(topic)
        )
        assert again.read() == [(0, o) for o in range(4, 10)]

    @pytest.mark.parametrize("in_group", [True, False])
    def test_deleted_topic_fails_or_is_skipped(self, query, kafka, caplog, in_group):
        topic, truth = filled_topic(kafka, 1, 3)
        stays, _ = filled_topic(kafka, 1, 3)
        options = group_query_options(
            topic, subscribe=f"{topic},{stays}", fetchOffset__retryIntervalMs="10"
        )
        if not in_group:
            del options["kafka__group__id"]
        one = query(**options)
        two = query(
            failOnDataLoss="false",
            **(options | {"kafka__group__id": stays} if in_group else options),
        )
        assert one.all() == two.all() == sorted(truth * 2)
        kafka.delete(topic)
        produce(kafka, stays, 1)
        with pytest.raises(
            TopicDeletedError, match=f"'{topic}' was deleted while the query read it"
        ) as failed:
            wait_until(lambda: one.plan() and False)
        assert "did you mean" not in "".join(traceback.format_exception(failed.value))
        with caplog.at_level(logging.WARNING):
            assert wait_until(two.batch) == [(0, 3)]
        assert "Continuing without it" in caplog.text

    def test_topic_deleted_before_restart_fails(self, query, kafka):
        """The checkpoint shows that the topic has existed, so its name is no mistake."""
        topic, _ = filled_topic(kafka, 1, 3)
        kafka.create(f"{topic}x")
        options = group_query_options(topic, fetchOffset__retryIntervalMs="10")
        one = query(**options)
        one.all()
        one.stop()
        kafka.delete(topic)
        again = query(checkpoint=one.checkpoint, **options)
        with pytest.raises(TopicDeletedError, match=f"'{topic}' was deleted") as failed:
            wait_until(again.plan)
        assert "did you mean" not in "".join(traceback.format_exception(failed.value))

    def test_topic_deleted_after_plan_fails_or_is_skipped(self, query, kafka):
        topic, _ = filled_topic(kafka, 1, 3)
        kafka.create(f"{topic}x")
        one = query(**group_query_options(topic))
        one.plan()
        kafka.delete(topic)
        with pytest.raises(TopicDeletedError, match=f"'{topic}' was deleted before") as failed:
            wait_until(lambda: one.read() and False)
        assert "did you mean" not in "".join(traceback.format_exception(failed.value))
        skips = query(
            checkpoint=one.checkpoint, failOnDataLoss="false", **group_query_options(topic)
        )
        assert skips.read() == []

    @pytest.mark.parametrize("in_group", [True, False])
    def test_recreated_topic_fails_or_restarts(self, query, kafka, in_group):
        topic, truth = filled_topic(kafka, 1, 10)
        options = group_query_options(topic)
        if not in_group:
            del options["kafka__group__id"]
        one, two = query(**options), query(failOnDataLoss="false", **options)
        assert one.all() == truth
        one.stop()
        kafka.delete(topic)
        kafka.create(topic)
        produce(kafka, topic, 1, 15)
        again = query(checkpoint=one.checkpoint, **options)
        with pytest.raises(ClientError, match=f"topic '{topic}' was deleted and recreated"):
            again.all()
        again.stop()
        two.checkpoint = one.checkpoint
        assert two.all() == [(0, o) for o in range(15)]
