"""Metadata: topics, brokers, and automatic creation of topics."""

from __future__ import annotations

import time

import pytest

from partage.model.errors import ErrorCode
from partage.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic

from .requests import create, metadata


def ask(raw, topics, version=None, **options):
    return raw.request(METADATA, MetadataRequest(topics=topics, **options), version)


@pytest.mark.parametrize("version", range(METADATA.version_max + 1))
def test_metadata_every_version(broker, raw, version):
    topic_id = create(raw, "t", 2).topic_id
    answer = ask(raw, [MetadataRequestTopic(name="t")], version)
    (node,) = answer.brokers
    assert (node.node_id, f"{node.host}:{node.port}") == (1, broker.bootstrap_servers)
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert bool(answer.cluster_id) == (version >= 2)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
    assert [p.partition_index for p in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert partition.leader_epoch == (0 if version >= 7 else -1)


def test_metadata_all_topics_and_none(raw):
    create(raw, "t")
    everything = {"t": False, "__consumer_offsets": True}
    assert {t.name: t.is_internal for t in ask(raw, None).topics} == everything
    assert ask(raw, [], 0).topics[0].name  # in version 0 an empty list means all topics
    assert len(ask(raw, [], 0).topics) == 2
    assert ask(raw, [], 1).topics == []
    assert ask(raw, []).topics == []


def test_metadata_by_id(raw):
    topic_id = create(raw, "t").topic_id
    unknown = b"\x01" * 16
    topics = [MetadataRequestTopic(name=None, topic_id=i) for i in (topic_id, unknown)]
    known, missing = ask(raw, topics).topics
    assert (known.name, known.error_code, len(known.partitions)) == ("t", 0, 1)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, 100)


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_old_version_is_refused(raw, version):
    """Their responses cannot omit the name; Kafka refuses too."""
    topic = MetadataRequestTopic(name=None, topic_id=b"\x01" * 16)
    (answered,) = ask(raw, [topic], version).topics
    assert (answered.name, answered.error_code) == ("", ErrorCode.INVALID_REQUEST)


def test_metadata_duplicate_topic_is_described_once(raw):
    """Otherwise a small request could produce a response of megabytes."""
    create(raw, "wide", 1000)
    answer = ask(raw, [MetadataRequestTopic(name="wide") for _ in range(3000)])
    assert len(answer.topics) == 1


@pytest.mark.parametrize("version", [8, 10, 11, 13])
def test_metadata_authorized_operations(raw, version):
    """KIP-430: without an authorizer a client may do everything, even to a missing topic."""
    create(raw, "t")
    topics = [MetadataRequestTopic(name=name) for name in ("t", "missing")]
    options = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
    has_cluster = version <= 10
    answer = ask(raw, topics, version, include_cluster_authorized_operations=has_cluster, **options)
    assert [t.topic_authorized_operations for t in answer.topics] == [3576, 3576]
    assert answer.cluster_authorized_operations == (8096 if has_cluster else -(2**31))
    plain = ask(raw, topics[:1], version)
    assert plain.topics[0].topic_authorized_operations == -(2**31)
    assert plain.cluster_authorized_operations == -(2**31)


@pytest.mark.partage_broker({"num.partitions": "3"})
@pytest.mark.parametrize("version", [0, 3, 4, 9, 13])
def test_metadata_creates_missing_topic(raw, version):
    (topic,) = ask(raw, [MetadataRequestTopic(name="new")], version).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    assert len(metadata(raw, "new").topics[0].partitions) == 3


def test_auto_create_disabled_by_client(raw):
    (topic,) = metadata(raw, "new", may_create=False).topics
    assert (topic.error_code, topic.partitions) == (3, [])
    assert len(metadata(raw).topics) == 1


@pytest.mark.partage_broker({"auto.create.topics.enable": "false"})
@pytest.mark.parametrize("version", [0, 13])
def test_auto_create_disabled_by_broker(raw, version):
    (topic,) = ask(raw, [MetadataRequestTopic(name="new")], version).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("may_create", [True, False])
@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250, "x" * 32_000])
def test_metadata_invalid_name(raw, name, may_create):
    (topic,) = metadata(raw, name, may_create=may_create).topics
    assert (topic.name, topic.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_auto_create_internal_topic_is_refused(raw):
    (topic,) = metadata(raw, "__transaction_state", may_create=True).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_auto_create_concurrent_requests(broker, raw):
    for _ in range(20):
        raw.send(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name="new")]))
    ids = {raw.receive().topics[0].topic_id for _ in range(20)}
    assert len(ids) == 1


def test_metadata_hundreds_of_topics(raw):
    began = time.monotonic()
    answer = metadata(raw, *(f"t{n}" for n in range(300)), may_create=True)
    assert {t.error_code for t in answer.topics} == {0}
    assert time.monotonic() - began < 10
