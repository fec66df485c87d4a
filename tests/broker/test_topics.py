"""CreateTopics, DeleteTopics and CreatePartitions, and concurrent requests."""

from __future__ import annotations

import time

import pytest

from partage.model.errors import ErrorCode
from partage.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from partage.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreateTopicsRequest,
)
from partage.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsTopic
from partage.wire.apis.produce import PRODUCE

from .group_requests import commit, fetch_offsets, heartbeat, join_and_sync
from .raw_client import RawClient
from .requests import (
    batch,
    creatable_topic,
    create,
    delete,
    fetch,
    metadata,
    offset_range,
    produce,
    produce_request,
    produce_result,
    values,
)


def ask_to_create(raw, *topics, version=None, **options):
    request = CreateTopicsRequest(topics=list(topics), **options)
    return raw.request(CREATE_TOPICS, request, version).topics


def names(raw):
    return {topic.name for topic in metadata(raw).topics} - {"__consumer_offsets"}


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_every_version(raw, version):
    (result,) = ask_to_create(raw, creatable_topic("t", 3, retention_ms="1000"), version=version)
    assert (result.name, result.error_code) == ("t", 0)
    assert result.num_partitions == (3 if version >= 5 else -1)
    assert result.replication_factor == (1 if version >= 5 else -1)
    if version >= 5:
        configs = {c.name: (c.value, c.config_source) for c in result.configs}
        assert configs["retention.ms"] == ("1000", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
    (described,) = metadata(raw, "t").topics
    assert len(described.partitions) == 3
    assert result.topic_id == (described.topic_id if version >= 7 else bytes(16))


def test_create_topics_validate_only_creates_nothing(raw):
    create(raw, "there")
    wanted = [creatable_topic("t", 2), creatable_topic("there"), creatable_topic("bad/name")]
    results = ask_to_create(raw, *wanted, validate_only=True)
    assert [r.error_code for r in results] == [0, 36, 17]
    assert results[0].num_partitions == 2
    assert names(raw) == {"there"}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"name": ""}, 17),
        ({"name": "."}, 17),
        ({"name": "a b"}, 17),
        ({"name": "x" * 250}, 17),
        ({"name": "a.b"}, 17),  # a_b exists, and the two names are equal in metrics
        ({"name": "there"}, 36),
        ({"name": "__consumer_offsets"}, 36),
        ({"num_partitions": 0}, 37),
        ({"num_partitions": -2}, 37),
        ({"num_partitions": 100_000}, 44),
        ({"replication_factor": 2}, 38),
        ({"replication_factor": 0}, 38),
    ],
)
def test_create_topics_invalid_request_is_refused(raw, wanted, error):
    create(raw, "there")
    create(raw, "a_b")
    topic = creatable_topic("t")
    for field, value in wanted.items():
        setattr(topic, field, value)
    (result,) = ask_to_create(raw, topic)
    assert result.error_code == error
    assert result.error_message
    assert names(raw) == {"there", "a_b"}


@pytest.mark.parametrize("configs", [{"no.such": "1"}, {"retention.ms": "x"}, {"segment.ms": None}])
def test_create_topics_invalid_configs_are_refused(raw, configs):
    topic = creatable_topic("t", **configs)
    (result,) = ask_to_create(raw, topic)
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert next(iter(configs)) in result.error_message


def test_create_topics_duplicate_name_is_refused(raw):
    results = ask_to_create(
        raw, creatable_topic("t"), creatable_topic("u"), creatable_topic("t", 2)
    )
    assert [r.error_code for r in results] == [42, 0, 42]
    assert names(raw) == {"u"}


def test_create_topics_thousands_of_names_is_fast(raw):
    """No step may take time quadratic in the number of names."""
    results = ask_to_create(
        raw, *(creatable_topic(f"t{n}") for n in range(2000)), validate_only=True
    )
    assert {r.error_code for r in results} == {0}


@pytest.mark.parametrize(
    ("partitions", "error"),
    [
        ({0: [1], 1: [1]}, 0),
        ({0: [1], 2: [1]}, 39),
        ({0: [1, 2]}, 39),
        ({0: []}, 39),
        ({0: [7]}, 39),
    ],
)
def test_create_topics_with_assignments(raw, partitions, error):
    topic = creatable_topic("t", -1)
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in partitions.items()
    ]
    (result,) = ask_to_create(raw, topic)
    assert result.error_code == error
    if not error:
        assert len(metadata(raw, "t").topics[0].partitions) == len(partitions)


@pytest.mark.partage_broker({"num.partitions": "4", "log.retention.ms": "5000"})
def test_create_topics_uses_broker_defaults(raw):
    (result,) = ask_to_create(raw, creatable_topic("t", -1))
    assert result.num_partitions == 4
    configs = {c.name: (c.value, c.config_source) for c in result.configs}
    assert configs["retention.ms"] == ("5000", 4)


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_every_version(raw, version):
    create(raw, "t")
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version >= 6:
        request.topics = [DeleteTopicsTopic(name="t"), DeleteTopicsTopic(name="nothing")]
    else:
        request.topic_names = ["t", "nothing"]
    gone, missing = raw.request(DELETE_TOPICS, request, version).responses
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == ("nothing", 3)
    assert names(raw) == set()


def test_delete_topics_by_id(raw):
    topic_id = create(raw, "t").topic_id
    unknown = b"\x07" * 16
    topics = [DeleteTopicsTopic(topic_id=topic_id), DeleteTopicsTopic(topic_id=unknown)]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=1000)
    gone, missing = raw.request(DELETE_TOPICS, request).responses
    assert (gone.name, gone.topic_id, gone.error_code) == ("t", topic_id, 0)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, 100)


def test_delete_topics_internal_topic_is_refused(raw):
    topics = [DeleteTopicsTopic(name="__consumer_offsets")]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=1000)
    (result,) = raw.request(DELETE_TOPICS, request).responses
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_recreated_topic_is_empty(raw):
    create(raw, "t", 2)
    produce(raw, "t", batch(b"old", producer_id=1, producer_epoch=0, base_sequence=0))
    delete(raw, "t")
    assert produce(raw, "t", batch(b"x")).error_code == 3
    create(raw, "t")
    assert offset_range(raw, "t") == (0, 0)
    made = batch(b"new", producer_id=1, producer_epoch=0, base_sequence=0)
    assert produce(raw, "t", made).base_offset == 0
    assert values(*fetch(raw, "t")) == [b"new"]


def test_commit_to_recreated_topic_is_kept(broker, raw):
    """Offsets for the old topic are deleted before the new one can exist."""
    going = [f"t{n}" for n in range(60)]
    assert not any(t.error_code for t in ask_to_create(raw, *map(creatable_topic, going)))
    wanted = [DeleteTopicsTopic(name=name) for name in going]
    raw.send(DELETE_TOPICS, DeleteTopicsRequest(topics=wanted, timeout_ms=30_000))
    with RawClient(broker.bootstrap_servers) as other:
        deadline = time.monotonic() + 30
        while ask_to_create(other, creatable_topic("t0"))[0].error_code:
            assert time.monotonic() < deadline
        assert commit(other, "g", "t0", 5) == 0
        assert {t.error_code for t in raw.receive().responses} == {0}
        assert fetch_offsets(other, "g") == {("t0", 0): 5}


def test_delete_topic_during_produce(broker, raw):
    """Each request is stored or refused, and the connection stays open."""
    create(raw, "t")
    with RawClient(broker.bootstrap_servers) as other:
        for n in range(50):
            other.send(PRODUCE, produce_request("t", batch(b"%d" % n)))
        delete(raw, "t")
        for n in range(50):
            other.send(PRODUCE, produce_request("t", batch(b"%d" % n)))
        results = [produce_result(other.receive()) for _ in range(100)]
    taken = [r for r in results if not r.error_code]
    assert [r.base_offset for r in taken] == list(range(len(taken)))
    assert {r.error_code for r in results[len(taken) :]} == {3}


def test_delete_topic_deletes_committed_offsets(raw):
    create(raw, "t", 2)
    create(raw, "kept")
    joined = join_and_sync(raw, "g", protocol_type="consumer")
    assert commit(raw, "g", "t", 5, joined=joined) == 0
    assert commit(raw, "g", "kept", 6, joined=joined) == 0
    assert commit(raw, "simple", "t", 7) == 0
    delete(raw, "t")
    create(raw, "t", 2)
    assert fetch_offsets(raw, "g") == {("kept", 0): 6}
    assert fetch_offsets(raw, "simple", {"t": [0]}) == {("t", 0): -1}
    assert heartbeat(raw, "g", joined) == 0


def grow(raw, name, count, *, version=3, validate_only=False):
    topics = [CreatePartitionsTopic(name=name, count=count)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
    (result,) = raw.request(CREATE_PARTITIONS, request, version).results
    return result.error_code


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_adds_partitions(raw, version):
    create(raw, "t", 2)
    produce(raw, "t", batch(b"a"))
    assert grow(raw, "t", 4, version=version) == 0
    assert len(metadata(raw, "t").topics[0].partitions) == 4
    assert produce(raw, "t", batch(b"b"), partition=3).base_offset == 0
    assert values(*fetch(raw, "t")) == [b"a"]


def test_create_partitions_invalid_request_is_refused(raw):
    create(raw, "t", 2)
    assert grow(raw, "t", 2) == ErrorCode.INVALID_PARTITIONS
    assert grow(raw, "t", 1) == ErrorCode.INVALID_PARTITIONS
    assert grow(raw, "nothing", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(raw, "__consumer_offsets", 60) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert grow(raw, "t", 4, validate_only=True) == 0
    assert len(metadata(raw, "t").topics[0].partitions) == 2


def test_create_partitions_duplicate_name_is_refused(raw):
    create(raw, "t")
    topics = [CreatePartitionsTopic(name="t", count=count) for count in (2, 3)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000)
    assert [r.error_code for r in raw.request(CREATE_PARTITIONS, request).results] == [42, 42]
    assert len(metadata(raw, "t").topics[0].partitions) == 1
