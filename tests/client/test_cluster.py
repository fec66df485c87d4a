"""Lookup of brokers, topics and leaders."""

import asyncio

import pytest

from partage.client import (
    Address,
    BrokerResponseError,
    BrokersUnreachableError,
    ClientOptions,
    Cluster,
    ConnectError,
    NoLeaderError,
    RetryPolicy,
    TopicPartition,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.wire.apis.metadata import MetadataResponse, MetadataTopic

from .scripted_broker import CLOSE, SILENCE, ScriptedBroker

QUICK = RetryPolicy(attempts_max=3, backoff_ms=1, backoff_max_ms=1)
OPTIONS = ClientOptions(retries=QUICK)
T0 = TopicPartition("t", 0)


def run(main, script=lambda asked: None, options=OPTIONS):
    """Run ``main(cluster, broker)`` with a cluster of one scripted broker."""

    async def whole():
        async with (
            ScriptedBroker(script) as broker,
            Cluster(str(broker.address), options) as cluster,
        ):
            return await main(cluster, broker)

    return asyncio.run(whole())


def described(error):
    topic = MetadataTopic(error_code=error, name="t", partitions=[])
    return MetadataResponse(brokers=[], topics=[topic])


def test_callers_at_the_same_time_share_an_attempt_to_connect():
    async def main(cluster, broker):
        failed = [asyncio.ensure_future(cluster.connect_to(broker.address)) for _ in range(5)]
        for each in failed:
            with pytest.raises(ConnectError):
                await each
        attempts = broker.connections
        broker.script = lambda asked: None
        made = await asyncio.gather(*(cluster.connect_to(broker.address) for _ in range(5)))
        return attempts, broker.connections - attempts, len(set(made))

    options = ClientOptions(connect_timeout_ms=50)
    assert run(main, lambda asked: SILENCE, options) == (1, 1, 1)


def test_cancelled_caller_does_not_end_the_attempt_of_others():
    async def main(cluster, broker):
        first, second = (
            asyncio.ensure_future(cluster.connect_to(broker.address)) for _ in range(2)
        )
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).is_open
        return broker.connections

    assert run(main) == 1


def test_close_ends_an_attempt_to_connect():
    is_asked = asyncio.Event()

    def script(asked):
        is_asked.set()
        return SILENCE

    async def main(cluster, broker):
        connecting = asyncio.ensure_future(cluster.connect_to(broker.address))
        await is_asked.wait()
        cluster.close()
        with pytest.raises(ConnectError, match="this client is closed"):
            await connecting

    run(main, script)


def test_topic_metadata_is_cached():
    async def main(cluster, broker):
        broker.topics = {"t": 3, "u": 1}
        first = await cluster.topics(["t", "t"])
        await cluster.topics(["t", "u"])
        await cluster.leader(T0)
        asked = [[topic.name for topic in a.message.topics] for a in broker.asked[1:]]
        return first["t"].topic_partitions, asked, broker.connections

    partitions, asked, connections = run(main)
    assert partitions == [("t", 0), ("t", 1), ("t", 2)]
    assert asked == [["t"], ["u"]]
    assert connections == 1


def test_topics_creates_no_topic():
    async def main(cluster, broker):
        await cluster.topics(["t"])
        await cluster.all_topics()
        return [asked.message.allow_auto_topic_creation for asked in broker.asked[1:]]

    assert run(main) == [False, False]


def test_topics_fresh_bypasses_cache():
    async def main(cluster, broker):
        await cluster.topics(["t"])
        broker.topics = {"t": 2}
        stale = await cluster.topics(["t"])
        fresh = await cluster.topics(["t"], fresh=True)
        return len(stale["t"].partitions), len(fresh["t"].partitions)

    assert run(main) == (1, 2)


def test_cached_metadata_expires():
    async def main(cluster, broker):
        await cluster.topics(["t"])
        await cluster.topics(["t"])
        return broker.names()

    options = ClientOptions(metadata_max_age_ms=0)
    assert run(main, options=options) == ["Metadata"] * 2


def test_unknown_topic_error_suggests_similar_name():
    async def main(cluster, broker):
        broker.topics = {"flights": 1, "weather": 1}
        with pytest.raises(UnknownTopicError, match=r"'flihgts'; did you mean 'flights'\?"):
            await cluster.topics(["weather", "flihgts"])
        with pytest.raises(UnknownTopicError, match=r"no topic 'x'$"):
            await cluster.topics(["x"])

    run(main)


def test_unauthorized_topic_raises():
    async def main(cluster, broker):
        with pytest.raises(BrokerResponseError, match="topic 't': TOPIC_AUTHORIZATION_FAILED"):
            await cluster.topics(["t"])
        return broker.names()

    assert run(main, lambda asked: described(29) if asked.api.name == "Metadata" else None) == [
        "Metadata"
    ]


def test_topic_being_created_is_retried():
    answers = [described(5), described(5), None]

    def script(asked):
        return answers.pop(0) if asked.api.name == "Metadata" else None

    async def main(cluster, broker):
        return list(await cluster.topics(["t"]))

    assert run(main, script) == ["t"]


def test_unknown_partition_raises():
    async def main(cluster, broker):
        broker.topics = {"t": 2}
        with pytest.raises(UnknownPartitionError, match="'t' has 2, numbered from 0 to 1"):
            await cluster.leader(TopicPartition("t", 2))

    run(main)


def test_new_partition_refreshes_metadata():
    async def main(cluster, broker):
        await cluster.topics(["t"])
        broker.topics = {"t": 3}
        await cluster.leader(TopicPartition("t", 2))
        with pytest.raises(UnknownPartitionError, match="'t' has 3, numbered from 0 to 2"):
            await cluster.leader(TopicPartition("t", 3))
        return sum(asked.api.name == "Metadata" for asked in broker.asked)

    assert run(main) == 3


def test_partition_without_leader_raises():
    async def main(cluster, broker):
        broker.leader_id = -1
        with pytest.raises(NoLeaderError, match="t-0 has no leader"):
            await cluster.leader(T0)
        broker.leader_id = 1
        # This call refreshes the metadata by itself
        connection, leadership = await cluster.leader(T0)
        return connection.address == broker.address, leadership

    assert run(main) == (True, (1, 4))


def test_unreachable_leader_names_advertised_address(caplog):
    async def main(cluster, broker):
        async with ScriptedBroker() as gone:
            gone.node_id = 7
        broker.peers, broker.leader_id = [gone], 7
        story = "broker 7 advertises this address"
        with pytest.raises(ConnectError, match=f"^{gone.address}: Connection refused; {story}"):
            await cluster.leader(T0)
        with pytest.raises(ConnectError):
            await cluster.leader(T0)

    run(main)
    assert len(caplog.records) == 1  # Only one message, although it is retried


def test_moved_leader_is_followed():
    async def main(cluster, broker):
        async with ScriptedBroker() as other:
            other.node_id = 2
            broker.peers = [other]
            before, _ = await cluster.leader(T0)
            broker.leader_id = 2
            cluster.invalidate_topic("t")
            after, _ = await cluster.leader(T0)
            addresses = broker.address, other.address
            cluster.close()
            return (before.address, after.address) == addresses

    assert run(main)


class TestUnreachable:
    def test_unreachable_error_lists_all_addresses(self):
        async def main():
            async with ScriptedBroker() as one, ScriptedBroker(lambda asked: CLOSE) as other:
                gone = one.address
                await one.__aexit__()
                async with Cluster([gone, other.address]) as cluster:
                    with pytest.raises(BrokersUnreachableError) as raised:
                        await cluster.all_topics()
                return str(raised.value), gone, other.address

        story, gone, other = asyncio.run(main())
        assert f"{gone}: Connection refused; {other}: it is not a Kafka broker" in story
        assert "bootstrap.servers takes HOST:PORT" in story

    def test_second_address_is_used_if_first_fails(self):
        async def main(cluster, broker):
            servers = [Address("127.0.0.1", 1), broker.address]
            async with Cluster(servers, OPTIONS) as other:
                return list(await other.all_topics())

        assert run(main) == ["t"]

    def test_broker_that_answered_before_is_retried(self):
        """A broker that restarts comes back on its port after a while."""

        async def main(cluster, broker):
            await cluster.topics(["t"])
            closings = [CLOSE, CLOSE, None]
            broker.script = lambda asked: closings.pop(0) if closings else None
            cluster.invalidate_topic("t")
            return list(await cluster.topics(["t"]))

        assert run(main) == ["t"]

    def test_initial_connect_is_retried_if_configured(self):
        async def main():
            async with ScriptedBroker() as broker:
                closings = [CLOSE, CLOSE, None]
                broker.script = lambda asked: closings.pop(0) if closings else None
                options = ClientOptions(retries=QUICK, may_retry_initial_connect=True)
                async with Cluster([broker.address], options) as cluster:
                    return list(await cluster.all_topics())

        assert asyncio.run(main()) == ["t"]

    def test_initial_connect_retries_end(self):
        async def main():
            async with ScriptedBroker(lambda asked: CLOSE) as broker:
                options = ClientOptions(retries=QUICK, may_retry_initial_connect=True)
                async with Cluster([broker.address], options) as cluster:
                    with pytest.raises(BrokersUnreachableError):
                        await cluster.all_topics()
                return len(broker.asked)

        assert asyncio.run(main()) == 3

    def test_closed_client_does_not_connect(self):
        async def main(cluster, broker):
            cluster.close()
            with pytest.raises(BrokersUnreachableError, match="this client is closed"):
                await cluster.all_topics()

        run(main)
