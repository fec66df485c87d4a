"""Errors of offset requests: after some of them the coordinator is looked up again."""

import asyncio

import pytest

from client.scripted_broker import ScriptedBroker, api_versions
from partage.client import BrokerResponseError, Cluster, TopicPartition
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.errors import CommitFailedError
from partage.client.group.offsets import NO_MEMBER, OffsetAndMetadata, commit, fetch_committed
from partage.model.errors import ErrorCode
from partage.wire.apis import APIS
from partage.wire.apis.find_coordinator import FindCoordinatorResponse, FindCoordinatorResult
from partage.wire.apis.offset_commit import (
    OffsetCommitPartitionResult,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)
from partage.wire.apis.offset_fetch import (
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)

T0 = TopicPartition("t", 0)


class Coordinator:
    """A script of a broker that is the coordinator, and answers offset requests with an error."""

    def __init__(self, error, place):
        self.error = error
        self.place = place
        self.broker = None

    def __call__(self, asked):
        match asked.api.name:
            case "ApiVersions":
                return api_versions(APIS.values())
            case "FindCoordinator":
                found = FindCoordinatorResult(
                    key="g",
                    node_id=1,
                    host=self.broker.address.host,
                    port=self.broker.address.port,
                    error_code=0,
                )
                return FindCoordinatorResponse(coordinators=[found])
            case "OffsetFetch":
                return self._fetched()
            case "OffsetCommit":
                result = OffsetCommitPartitionResult(partition_index=0, error_code=self.error)
                topic = OffsetCommitTopicResult(name="t", partitions=[result])
                return OffsetCommitResponse(topics=[topic])
        return None

    def _fetched(self):
        of_partition = self.error if self.place == "partition" else 0
        of_group = self.error if self.place == "group" else 0
        result = OffsetFetchPartitionResult(
            partition_index=0, committed_offset=5, metadata="", error_code=of_partition
        )
        topics = [OffsetFetchTopicResult(name="t", partitions=[result])]
        group = OffsetFetchGroupResult(group_id="g", topics=topics, error_code=of_group)
        return OffsetFetchResponse(groups=[group])


def run(place, error, request):
    """Send a request twice; return the lookups of the coordinator, and the results."""

    async def main():
        script = Coordinator(error, place)
        async with ScriptedBroker(script) as broker, Cluster([broker.address]) as cluster:
            script.broker = broker
            coordinator = CoordinatorClient(cluster, "g")
            results = []
            for _ in range(2):
                results += await asyncio.gather(request(coordinator), return_exceptions=True)
            coordinator.disconnect()
            return broker.names().count("FindCoordinator"), results

    return asyncio.run(main())


def fetch_offsets(coordinator):
    return fetch_committed(coordinator, "g", [T0])


def commit_offset(coordinator):
    return commit(coordinator, "g", NO_MEMBER, {T0: OffsetAndMetadata(5)})


CASES = [
    (fetch_offsets, "group"),
    (fetch_offsets, "partition"),
    (commit_offset, "partition"),
]
ERRORS = [
    (ErrorCode.NOT_COORDINATOR, True),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, False),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
]


@pytest.mark.parametrize(("request_", "place"), CASES)
@pytest.mark.parametrize(("error", "has_moved"), ERRORS, ids=lambda each: str(each))
def test_coordinator_is_looked_up_again_if_it_moved(request_, place, error, has_moved):
    lookups, results = run(place, error, request_)
    assert lookups == (2 if has_moved else 1)
    for each in results:
        assert isinstance(each, BrokerResponseError | CommitFailedError)
        assert each.code == error


@pytest.mark.parametrize(("request_", "place"), CASES)
def test_coordinator_without_errors_is_kept(request_, place):
    lookups, results = run(place, 0, request_)
    assert lookups == 1
    assert results == [{T0: OffsetAndMetadata(5)} if request_ is fetch_offsets else None] * 2
