"""ListOffsets: the ends of partitions, and offsets by time."""

import asyncio
import time

import pytest

from partage.client import (
    EARLIEST,
    LATEST,
    BrokerResponseError,
    ClientOptions,
    Cluster,
    RetryPolicy,
    TopicPartition,
    UnknownTopicError,
    list_offsets,
)
from partage.wire.apis.list_offsets import ListOffsetsResponse

from .confluent_admin import create_topic, delete_records, produce
from .scripted_broker import ScriptedBroker

NOW_MS = int(time.time() * 1000)


def offsets(servers, wanted):
    async def main():
        async with Cluster(servers) as cluster:
            return await list_offsets(cluster, wanted)

    return asyncio.run(main())


def test_list_offsets_by_end_and_time(partage_broker):
    servers = partage_broker.bootstrap_servers
    create_topic(servers, "t", 2)
    produce(
        servers,
        "t",
        [{"value": b"%d" % n, "timestamp": NOW_MS + n, "partition": 0} for n in range(5)],
    )
    produce(servers, "t", [{"value": b"x", "timestamp": NOW_MS, "partition": 1}])
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert offsets(servers, {a: EARLIEST, b: LATEST}) == {a: (0, -1), b: (1, -1)}
    assert offsets(servers, {a: NOW_MS + 3}) == {a: (3, NOW_MS + 3)}
    assert offsets(servers, {a: NOW_MS - 10**6, b: NOW_MS + 1}) == {a: (0, NOW_MS), b: None}
    delete_records(servers, "t", 2)
    assert offsets(servers, {a: EARLIEST, b: EARLIEST}) == {a: (2, -1), b: (0, -1)}


def test_list_offsets_of_unknown_topic_raises(partage_broker):
    with pytest.raises(UnknownTopicError):
        offsets(partage_broker.bootstrap_servers, {TopicPartition("t", 0): EARLIEST})


def run(script, wanted, *, attempts=4):
    """Return the result or the error, and the number of requests to a scripted broker."""

    async def main():
        policy = RetryPolicy(attempts_max=attempts, backoff_ms=1, backoff_max_ms=1)
        async with ScriptedBroker(script) as broker:
            broker.topics = {"t": 2}
            async with Cluster([broker.address], ClientOptions(retries=policy)) as cluster:
                try:
                    found = await list_offsets(cluster, wanted)
                except BrokerResponseError as error:
                    found = str(error)
                return found, broker.names().count("ListOffsets")

    return asyncio.run(main())


A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def failing(error, times, index):
    """Return a script whose first responses have this error for partition ``index``."""
    left = [error] * times

    def script(asked):
        if asked.api.name != "ListOffsets" or not left:
            return None
        answer = ScriptedBroker()._ListOffsets(asked)
        for result in answer.topics[0].partitions:
            if result.partition_index == index:
                result.error_code = left.pop()
        return answer

    return script


def test_only_failed_partitions_are_retried():
    asked = []

    def script(one):
        if one.api.name == "ListOffsets":
            asked.append([p.partition_index for p in one.message.topics[0].partitions])
        return fail(one)

    fail = failing(6, 2, 1)
    assert run(script, {A: EARLIEST, B: LATEST}) == ({A: (0, -1), B: (100, -1)}, 3)
    assert asked == [[0, 1], [1], [1]]


def test_persistent_retriable_error_is_raised():
    assert run(failing(6, 99, 0), {A: EARLIEST}) == (
        "the offsets of t-0: NOT_LEADER_OR_FOLLOWER",
        4,
    )


def test_fatal_error_is_raised_at_once():
    assert run(failing(29, 99, 0), {A: EARLIEST, B: EARLIEST}) == (
        "the offsets of t-0: TOPIC_AUTHORIZATION_FAILED",
        1,
    )


def test_unknown_error_code_is_shown_as_number():
    assert run(failing(999, 1, 0), {A: EARLIEST})[0] == "the offsets of t-0: error 999"


def test_partition_missing_in_response_is_retried():
    def script(asked):
        return ListOffsetsResponse(topics=[]) if asked.api.name == "ListOffsets" else None

    story = "the offsets of t-0: UNKNOWN_TOPIC_OR_PARTITION"
    assert run(script, {A: EARLIEST}) == (story, 4)
