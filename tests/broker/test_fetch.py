"""Fetch: content, limits and waiting."""

from __future__ import annotations

import time

import pytest

from partage.model.errors import ErrorCode
from partage.wire.apis.fetch import FETCH, FetchReplicaState
from partage.wire.apis.produce import PRODUCE
from partage.wire.records.batch import parse_header
from polled_conditions import eventually

from .raw_client import RawClient
from .requests import (
    LAST_VERSION_BY_NAME,
    batch,
    content,
    create,
    delete,
    fetch,
    fetch_request,
    fetch_results,
    produce,
    produce_request,
    values,
)

LONG_MS = 60_000


@pytest.fixture
def topic(raw):
    return create(raw, "t", 3).topic_id


@pytest.fixture
def other(broker):
    """Another client, for requests while the first one waits."""
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def waiting(raw, topic="t", offsets=(0,), **options):
    """Send a fetch that has to wait."""
    options = {"max_wait_ms": LONG_MS, "min_bytes": 1} | options
    raw.send(FETCH, fetch_request(topic, offsets, **options), LAST_VERSION_BY_NAME)
    assert raw.is_silent()


def sizes(result):
    """Return the sizes of the complete fetched batches, and the number of bytes after them."""
    left, found = content(result), []
    while len(left) >= 61 and (size := parse_header(left).size) <= len(left):
        found.append(size)
        left = left[size:]
    return found, len(left)


@pytest.mark.parametrize("version", range(FETCH.version_min, FETCH.version_max + 1))
def test_fetch_every_version(raw, topic, version):
    produce(raw, "t", batch(b"a", b"b"))
    (result,) = fetch(raw, "t" if version <= LAST_VERSION_BY_NAME else topic, [1], version=version)
    assert values(result, 1) == [b"b"]
    assert (result.high_watermark, result.last_stable_offset) == (2, 2)
    assert result.log_start_offset == (0 if version >= 5 else -1)
    assert result.preferred_read_replica == -1
    assert result.aborted_transactions is None


def test_fetch_offset_inside_batch_returns_whole_batch(raw, topic):
    produce(raw, "t", batch(b"a", b"b", b"c"))
    (result,) = fetch(raw, "t", [2])
    assert parse_header(content(result)).base_offset == 0


def test_fetch_duplicate_partition_is_sent_once(raw, topic):
    """As in Kafka the last one counts; otherwise a small request could cause 100,000 reads."""
    produce(raw, "t", batch(b"a", b"b"), batch(b"c"))
    request = fetch_request("t", [0, 0])
    (asked,) = request.topics
    again = fetch_request("t", [2]).topics[0]
    asked.partitions *= 500
    request.topics.append(again)
    (answered,) = raw.request(FETCH, request, LAST_VERSION_BY_NAME).responses
    assert [p.partition_index for p in answered.partitions] == [0, 1]
    assert values(answered.partitions[0]) == [b"c"]


def test_fetch_beyond_end_is_out_of_range(raw, topic):
    produce(raw, "t", batch(b"a"))
    (at_end,) = fetch(raw, "t", [1])
    assert (at_end.error_code, content(at_end)) == (0, b"")
    for offset in (2, -1, 1 << 62):
        (beyond,) = fetch(raw, "t", [offset])
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (beyond.high_watermark, beyond.log_start_offset) == (1, 0)


def test_fetch_several_partitions(raw, topic):
    produce(raw, "t", batch(b"a"))
    produce(raw, "t", batch(b"b"), partition=2)
    results = fetch(raw, "t", [0, 0, 5, 0])
    assert [r.partition_index for r in results] == [0, 1, 2, 3]
    assert [r.error_code for r in results] == [0, 0, 1, 3]
    assert values(results[0]) == [b"a"]
    assert values(results[1]) == []


def test_fetch_unknown_topics(raw, topic):
    (result,) = fetch(raw, "nothing")
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result.high_watermark == -1
    (result,) = fetch(raw, b"\x01" * 16)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (result,) = fetch(raw, topic, [0])
    assert result.error_code == 0


def test_fetch_recreated_topic_has_new_id(raw, topic):
    produce(raw, "t", batch(b"old"))
    delete(raw, "t")
    again = create(raw, "t").topic_id
    assert again != topic
    (result,) = fetch(raw, topic)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (result,) = fetch(raw, again)
    assert values(result) == []


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, 75)])
def test_fetch_checks_leader_epoch(raw, topic, epoch, error):
    request = fetch_request("t")
    request.topics[0].partitions[0].current_leader_epoch = epoch
    (result,) = fetch_results(raw.request(FETCH, request, 11))
    assert result.error_code == error


@pytest.mark.parametrize("version", [4, 11, 14])
def test_fetch_by_follower_is_refused(raw, topic, version):
    """CVE-2018-1288: a client that poses as a replica would read records that are not durable."""
    request = fetch_request(topic if version > LAST_VERSION_BY_NAME else "t", replica_id=2)
    answer = raw.request(FETCH, request, version)
    if version >= 7:
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.responses == []


def test_fetch_by_follower_new_versions_is_refused(raw, topic):
    request = fetch_request(topic, replica_state=FetchReplicaState(replica_id=0, replica_epoch=1))
    answer = raw.request(FETCH, request)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.responses == []


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"), [(0, -1, 0), (0, 0, 0), (5, -1, 0), (0, 1, 70), (5, 1, 70)]
)
def test_fetch_sessions_are_not_kept(raw, topic, session_id, epoch, error):
    produce(raw, "t", batch(b"a"))
    request = fetch_request(topic, session_id=session_id, session_epoch=epoch)
    answer = raw.request(FETCH, request)
    assert (answer.error_code, answer.session_id) == (error, 0)
    if not error:
        assert values(*fetch_results(answer)) == [b"a"]


@pytest.fixture
def three(raw, topic):
    """Three batches of one size in partition 0, one in partition 1; return their size."""
    made = batch(b"x" * 100)
    for _ in range(3):
        produce(raw, "t", made)
    produce(raw, "t", made, partition=1)
    return len(made)


def test_fetch_partition_limit(raw, three):
    (result,) = fetch(raw, "t", partition_max_bytes=2 * three)
    assert sizes(result) == ([three] * 2, 0)
    (result,) = fetch(raw, "t", partition_max_bytes=2 * three + 10)
    assert sizes(result) == ([three] * 2, 10)


@pytest.mark.parametrize("limit", [0, 1, -5, 200])
def test_fetch_first_batch_ignores_limits(raw, three, limit):
    """KIP-74: otherwise a consumer with small limits would never get past the batch."""
    made = batch(b"x" * 500)
    produce(raw, "t", made, partition=2)
    for limits in ({"partition_max_bytes": limit}, {"max_bytes": limit}):
        (_, _, result) = fetch(raw, "t", [3, 1, 0], **limits)
        assert sizes(result) == ([len(made)], 0)


def test_fetch_only_first_partition_exceeds_limits(raw, three):
    first, second, _ = fetch(raw, "t", [0, 0, 0], partition_max_bytes=10)
    assert sizes(first) == ([three], 0)
    assert sizes(second) == ([], 0)


def test_fetch_response_limit(raw, three):
    first, second, _ = fetch(raw, "t", [0, 0, 0], max_bytes=3 * three + 20)
    assert sizes(first) == ([three] * 3, 0)
    assert sizes(second) == ([], 0)
    first, second, _ = fetch(raw, "t", [0, 0, 0], max_bytes=4 * three)
    assert sizes(second) == ([three], 0)


@pytest.mark.partage_broker({"fetch.max.bytes": "2000"})
def test_fetch_broker_limit(raw, topic):
    """``fetch.max.bytes``: a client without a limit must not fill the broker's memory."""
    for _ in range(10):
        produce(raw, "t", batch(b"x" * 400))
    (result,) = fetch(raw, "t")
    assert len(content(result)) == 2000


def test_fetch_without_partitions_waits(raw, topic):
    began = time.monotonic()
    (result,) = fetch(raw, "t", max_wait_ms=100, min_bytes=1)
    assert 0.09 < time.monotonic() - began < 5
    assert content(result) == b""


@pytest.mark.parametrize("options", [{"min_bytes": 0}, {"max_wait_ms": 0}, {"max_wait_ms": -1}])
def test_fetch_without_min_bytes_does_not_wait(raw, topic, options):
    options = {"max_wait_ms": LONG_MS, "min_bytes": 1} | options
    (result,) = fetch(raw, "t", **options)
    assert content(result) == b""


def test_waiting_fetch_ends_with_first_record(raw, other, topic):
    waiting(raw, offsets=[0, 0, 0])
    produce(other, "t", batch(b"a"), partition=1)
    assert values(fetch_results(raw.receive())[1]) == [b"a"]


def test_waiting_fetch_ends_at_min_bytes(raw, other, topic):
    size = len(batch(b"a"))
    waiting(raw, offsets=[0, 0, 0], min_bytes=3 * size)
    produce(other, "t", batch(b"a"), partition=0)
    produce(other, "t", batch(b"b"), partition=1)
    assert raw.is_silent()
    produce(other, "t", batch(b"c"), partition=2)
    assert [values(r) for r in fetch_results(raw.receive())] == [[b"a"], [b"b"], [b"c"]]


def test_waiting_fetch_counts_available_bytes(raw, other, topic):
    produce(other, "t", batch(b"a"))
    waiting(raw, min_bytes=len(batch(b"a")) + 1)
    produce(other, "t", batch(b"b"))
    assert values(*fetch_results(raw.receive())) == [b"a", b"b"]


def test_waiting_fetch_timeout_returns_available(raw, other, topic):
    waiting(raw, min_bytes=1 << 20, max_wait_ms=300)
    produce(other, "t", batch(b"a"))
    assert values(*fetch_results(raw.receive())) == [b"a"]


def test_fetch_full_response_does_not_wait(raw, topic):
    for _ in range(3):
        produce(raw, "t", batch(b"a"))
    (result,) = fetch(raw, "t", max_wait_ms=LONG_MS, min_bytes=1 << 30, max_bytes=100)
    assert len(content(result)) == 100


def test_fetch_with_error_does_not_wait(raw, topic):
    first, second = fetch(raw, "t", [0, 9], max_wait_ms=LONG_MS, min_bytes=1)
    assert (first.error_code, second.error_code) == (0, 1)
    (result,) = fetch(raw, "nothing", max_wait_ms=LONG_MS, min_bytes=1)
    assert result.error_code == 3


def test_waiting_fetch_ignores_other_partitions(raw, other, topic):
    create(other, "u")
    waiting(raw)
    produce(other, "u", batch(b"a"))
    produce(other, "t", batch(b"a"), partition=1)
    assert raw.is_silent()


def test_waiting_fetch_ends_when_topic_is_deleted(raw, other, topic):
    waiting(raw)
    delete(other, "t")
    (result,) = fetch_results(raw.receive())
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_waiting_fetch_by_id_ends_when_topic_is_deleted(raw, other, topic):
    raw.send(FETCH, fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=1))
    assert raw.is_silent()
    delete(other, "t")
    (result,) = fetch_results(raw.receive())
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_many_waiting_fetches_are_served(broker, raw, topic):
    clients = [RawClient(broker.bootstrap_servers) for _ in range(50)]
    for client in clients:
        client.send(
            FETCH, fetch_request("t", max_wait_ms=LONG_MS, min_bytes=1), LAST_VERSION_BY_NAME
        )
    assert clients[-1].is_silent()
    produce(raw, "t", batch(b"a"))
    for client in clients:
        assert values(*fetch_results(client.receive())) == [b"a"]
        client.close()


def test_waiting_fetch_is_dropped_on_disconnect(broker, raw, topic):
    """Otherwise fetches of clients that disconnect during a long wait would pile up."""
    watched = broker.run(watchers(broker))
    for _ in range(5):
        with RawClient(broker.bootstrap_servers) as leaving:
            leaving.send(
                FETCH, fetch_request("t", max_wait_ms=2**31 - 1, min_bytes=1), LAST_VERSION_BY_NAME
            )
            assert leaving.is_silent(0.01)
    eventually(lambda: broker.run(watchers(broker)) == watched)


async def watchers(broker) -> int:
    """Return the number of fetches that wait for partition 0."""
    partition = broker.broker.log_manager.partition("t", 0)
    return partition.listener_count


def test_pipelined_produce_and_fetch(raw, topic):
    """A fetch behind a Produce request is served after it, and finds its records."""
    raw.send(PRODUCE, produce_request("t", batch(b"a")))
    raw.send(FETCH, fetch_request("t"), LAST_VERSION_BY_NAME)
    raw.receive()
    assert values(*fetch_results(raw.receive())) == [b"a"]


def test_fetch_thousands_of_empty_partitions_is_fast(raw):
    create(raw, "wide", 3000)
    began = time.monotonic()
    results = fetch(raw, "wide", [0] * 3000)
    assert len(results) == 3000
    assert time.monotonic() - began < 2
