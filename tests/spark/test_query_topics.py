"""The topics of a query while the brokers disagree about a topic, with a scripted broker."""

import asyncio

import pytest

from client.scripted_broker import ScriptedBroker
from partage.client import Cluster, TopicPartition
from partage.client.offsets import LATEST
from partage.model.errors import ErrorCode
from partage.spark.offset_resolver import BrokersDisagreeError
from partage.spark.options import parse_options
from partage.spark.stream.offset import StreamOffset
from partage.spark.stream.query_topics import QueryTopics
from partage.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResult,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from partage.wire.apis.metadata import METADATA

PARTITION = TopicPartition("t", 0)
#: More requests than a query with back-off sends before its timeout.
REQUESTS_MAX = 60


class DisagreeingBrokers:
    """The answers of two brokers in turn: one knows the topic, the other does not.

    They agree again after `REQUESTS_MAX` requests, so that a query that does not wait succeeds.
    """

    def __init__(self, broker):
        self._broker = broker
        self.requests = 0

    def answer(self, request):
        if request.api.key == LIST_OFFSETS.key:
            return self._unknown_partition() if self.requests < REQUESTS_MAX else None
        if request.api.key != METADATA.key or request.message.topics is None:
            return None
        self.requests += 1
        is_known = self.requests % 2 == 0 or self.requests >= REQUESTS_MAX
        self._broker.topics = {"t": 1} if is_known else {}
        return None

    def _unknown_partition(self):
        result = ListOffsetsPartitionResult(
            partition_index=0, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, offset=-1
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResult(name="t", partitions=[result])])


def ask_disagreeing_brokers(question):
    """Ask for a topic about which the brokers disagree until the query gives up.

    Args:
        question: a function of the query's topics.
    """

    async def main():
        async with ScriptedBroker() as broker:
            servers = str(broker.address)
            options = parse_options(
                {
                    "kafka.bootstrap.servers": servers,
                    "subscribe": "t",
                    "fetchOffset.numRetries": "1",
                    "fetchOffset.retryIntervalMs": "10",
                    "kafka.default.api.timeout.ms": "200",
                }
            )
            async with Cluster(servers, options.kafka.client) as cluster:
                topics = QueryTopics(cluster, options)
                await topics.load(StreamOffset())
                await topics.check_start(StreamOffset())
                brokers = DisagreeingBrokers(broker)
                broker.script = brokers.answer
                cluster.invalidate_topic("t")
                with pytest.raises(
                    BrokersDisagreeError, match=r"brokers disagree about topic 't': .* one cluster"
                ):
                    await question(topics)
                assert brokers.requests < REQUESTS_MAX

    asyncio.run(main())


@pytest.mark.parametrize(
    "question",
    [
        lambda topics: topics.refresh(),
        lambda topics: topics.list_partitions(),
        lambda topics: topics.list_offsets([PARTITION], LATEST),
        lambda topics: topics.first_positions([PARTITION]),
    ],
    ids=["refresh", "list_partitions", "list_offsets", "first_positions"],
)
def test_disagreeing_brokers_fail_after_timeout_with_backoff(question):
    ask_disagreeing_brokers(question)
