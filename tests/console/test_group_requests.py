"""Requests that change groups, to coordinators that fail or move."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from client.scripted_broker import (
    CLOSE,
    Answer,
    ScriptedBroker,
    ScriptedRequest,
    api_versions,
)
from partage.client.cluster import Cluster
from partage.client.errors import (
    BrokerResponseError,
    ConnectError,
    ConnectionLostError,
    UnsupportedApiError,
)
from partage.client.options import ClientOptions, RetryPolicy
from partage.console.groups.coordinator_requests import commit_offsets_once
from partage.console.groups.group_deletion import GroupDeletion, delete_groups
from partage.model.topic_partition import TopicPartition
from partage.wire.apis import APIS
from partage.wire.apis.delete_groups import (
    DELETE_GROUPS,
    DeleteGroupsResponse,
    DeleteGroupsResult,
)
from partage.wire.apis.find_coordinator import FindCoordinatorResponse, FindCoordinatorResult
from partage.wire.apis.offset_commit import (
    OffsetCommitPartitionResult,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)

LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER, NOT_EMPTY = 14, 16, 25, 68
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = ClientOptions(retries=RetryPolicy(attempts_max=3, backoff_ms=1, backoff_max_ms=1))


class Coordinator:
    """A broker that coordinates all groups; its port may be closed.

    Each deletion takes the next of ``answers``: error codes by group, or another answer.
    """

    def __init__(self, *answers: Mapping[str, int] | Answer, port: int | None = None) -> None:
        self.answers = list(answers)
        self.port = port
        self.has_deletion = True

    def __call__(self, asked: ScriptedRequest) -> Answer:
        if asked.api.name == "ApiVersions" and not self.has_deletion:
            return api_versions(each for each in APIS.values() if each is not DELETE_GROUPS)
        if asked.api.name == "FindCoordinator":
            return FindCoordinatorResponse(
                coordinators=[
                    FindCoordinatorResult(
                        key=key,
                        node_id=1,
                        host="127.0.0.1",
                        port=self.port or self.own_port,
                        error_code=0,
                    )
                    for key in asked.message.coordinator_keys
                ]
            )
        if asked.api.name == "DeleteGroups":
            codes = self.answers.pop(0)
            if not isinstance(codes, dict):
                return codes
            return DeleteGroupsResponse(
                results=[
                    DeleteGroupsResult(group_id=name, error_code=codes[name])
                    for name in asked.message.groups_names
                    if name in codes
                ]
            )
        return self.answers.pop(0) if asked.api.name == "OffsetCommit" else None


def deleted(
    names: list[str], coordinator: Coordinator
) -> tuple[dict[str, GroupDeletion], list[str]]:
    """Delete groups. Return the results, and the names of the requests."""

    async def main() -> tuple[dict[str, GroupDeletion], list[str]]:
        async with ScriptedBroker(coordinator) as broker:
            coordinator.own_port = broker.address.port
            async with Cluster([broker.address], OPTIONS) as client:
                return await delete_groups(client, names), broker.names()

    return asyncio.run(main())


def test_delete_groups_reports_error_of_each_group() -> None:
    results, requests = deleted(["a", "b"], Coordinator({"a": 0, "b": NOT_EMPTY}))
    assert results == {"a": GroupDeletion(0), "b": GroupDeletion(NOT_EMPTY)}
    assert requests == ["FindCoordinator", "DeleteGroups"]


def test_delete_groups_of_moved_coordinator_is_retried() -> None:
    first = {"a": 0, "b": NOT_COORDINATOR, "c": LOADING}
    results, requests = deleted(["a", "b", "c"], Coordinator(first, {"b": 0, "c": NOT_EMPTY}))
    assert results == {"a": GroupDeletion(0), "b": GroupDeletion(0), "c": GroupDeletion(NOT_EMPTY)}
    assert requests == ["FindCoordinator", "DeleteGroups"] * 2


def test_delete_groups_of_loading_coordinator_fails_at_last() -> None:
    loading = {"a": LOADING}
    results, _ = deleted(["a"], Coordinator(loading, loading, loading))
    assert results == {"a": GroupDeletion(LOADING)}


def test_delete_groups_without_response_is_not_repeated() -> None:
    """The coordinator may have deleted the group: a repetition would report it as missing."""
    results, requests = deleted(["a"], Coordinator(CLOSE))
    assert isinstance(results["a"].failure, ConnectionLostError)
    assert results["a"].may_be_deleted
    assert requests == ["FindCoordinator", "DeleteGroups"]


def test_delete_groups_of_unreachable_coordinator_sends_nothing() -> None:
    results, _ = deleted(["a"], Coordinator(port=1))
    assert isinstance(results["a"].failure, ConnectError)
    assert not results["a"].may_be_deleted


def test_delete_groups_of_broker_without_this_api_sends_nothing() -> None:
    coordinator = Coordinator()
    coordinator.has_deletion = False
    results, requests = deleted(["a"], coordinator)
    assert isinstance(results["a"].failure, UnsupportedApiError)
    assert not results["a"].may_be_deleted
    assert requests == ["FindCoordinator"]


def test_delete_groups_left_out_of_response_is_unknown_error() -> None:
    results, _ = deleted(["a", "b"], Coordinator({"a": 0}))
    assert results == {"a": GroupDeletion(0), "b": GroupDeletion(-1)}


def committed(*codes: int) -> dict[TopicPartition, int]:
    """Commit offsets of the partitions 0 and 1. Return the error codes."""
    coordinator = Coordinator(
        OffsetCommitResponse(
            topics=[
                OffsetCommitTopicResult(
                    name="t",
                    partitions=[
                        OffsetCommitPartitionResult(partition_index=number, error_code=code)
                        for number, code in enumerate(codes)
                    ],
                )
            ]
        )
    )

    async def main() -> dict[TopicPartition, int]:
        async with ScriptedBroker(coordinator) as broker:
            coordinator.own_port = broker.address.port
            async with Cluster([broker.address], OPTIONS) as client:
                return await commit_offsets_once(client, "g", {T0: 3, T1: 5})

    return asyncio.run(main())


def test_commit_offsets_reports_error_of_each_partition() -> None:
    assert committed(0, UNKNOWN_MEMBER) == {T0: 0, T1: UNKNOWN_MEMBER}


def test_commit_offsets_to_former_coordinator_is_retriable() -> None:
    with pytest.raises(BrokerResponseError, match="group 'g': NOT_COORDINATOR") as raised:
        committed(0, NOT_COORDINATOR)
    assert raised.value.is_retriable


def test_commit_offsets_left_out_of_response_is_unknown_error() -> None:
    assert committed(0) == {T0: 0, T1: -1}
