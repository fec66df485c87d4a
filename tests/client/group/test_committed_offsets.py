"""Committed offsets of groups, read by a client that is not a member."""

import asyncio
import re
import socket

from client.confluent_admin import create_topic
from client.scripted_broker import CLOSE, ScriptedBroker, api_versions
from partage.client import ClientError, ClientOptions, Cluster, RetryPolicy, TopicPartition
from partage.client.group.committed_offsets import committed_offsets
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.offsets import NO_MEMBER, OffsetAndMetadata, commit
from partage.wire.apis import APIS
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorResponse,
    FindCoordinatorResult,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_COORDINATOR = 16
GROUP_AUTHORIZATION_FAILED = 30


def test_committed_offsets_of_several_groups(partage_broker):
    servers = partage_broker.bootstrap_servers
    create_topic(servers, "t", 2)
    wanted = {f"g{n}": {A: OffsetAndMetadata(n, f"of {n}", 3)} for n in range(5)}
    wanted["g4"][B] = OffsetAndMetadata(7)

    async def main():
        async with Cluster(servers) as cluster:
            for group_id, offsets in wanted.items():
                coordinator = CoordinatorClient(cluster, group_id)
                await commit(coordinator, group_id, NO_MEMBER, offsets)
                coordinator.disconnect()
            return await committed_offsets(cluster, [*wanted, "nobody", "g0"])

    assert asyncio.run(main()) == {**wanted, "nobody": {}}


class Peers:
    """Two scripted brokers; the first one reports the second one as coordinator of all groups."""

    def __init__(self, *, find_max=6, fetch_max=9, answers=()):
        self.versions = {FIND_COORDINATOR.key: find_max, OFFSET_FETCH.key: fetch_max}
        #: The next failures instead of an OffsetFetch response: an error for a group, or another
        #: one.
        self.answers = list(answers)
        self.left_out = ()  # of groups in OffsetFetch
        self.unknown = []  # of groups in FindCoordinator, for the next requests
        self.at_nobody = ()  # whose reported coordinator does not exist

    def script(self, asked):
        return getattr(self, asked.api.name, lambda _: None)(asked)

    def ApiVersions(self, _):  # noqa: N802 - found by its API's name
        answer = api_versions(APIS.values())
        for known in answer.api_keys:
            known.max_version = min(known.max_version, self.versions.get(known.api_key, 99))
        return answer

    def FindCoordinator(self, asked):  # noqa: N802
        host, port = self.second.address
        if asked.version < 4:
            return FindCoordinatorResponse(node_id=2, host=host, port=port)
        unknown = self.unknown.pop(0) if self.unknown else ()
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResult(
                    key=key,
                    node_id=2,
                    host=host,
                    port=unused_port() if key in self.at_nobody else port,
                    error_code=0,
                )
                for key in asked.message.coordinator_keys
                if key not in unknown
            ]
        )

    def OffsetFetch(self, asked):  # noqa: N802
        answer = self.answers.pop(0) if self.answers else {}
        if answer is CLOSE:
            return CLOSE
        if asked.version < 8:
            code = answer.get(asked.message.group_id, 0)
            return OffsetFetchResponse(topics=[] if code else [_topic()], error_code=code)
        return OffsetFetchResponse(
            groups=[
                OffsetFetchGroupResult(
                    group_id=group.group_id,
                    topics=[] if group.group_id in answer else [_topic()],
                    error_code=answer.get(group.group_id, 0),
                )
                for group in asked.message.groups
                if group.group_id not in self.left_out
            ]
        )

    def read(self, group_ids, *, attempts=3):
        """Return the result or exception, and the groups that each OffsetFetch named."""

        async def main():
            policy = RetryPolicy(attempts_max=attempts, backoff_ms=1, backoff_max_ms=1)
            async with ScriptedBroker(self.script) as first, ScriptedBroker(self.script) as second:
                self.second = second
                async with Cluster([first.address], ClientOptions(retries=policy)) as cluster:
                    try:
                        found = await committed_offsets(cluster, group_ids)
                    except ClientError as error:
                        found = str(error)
                    assert "OffsetFetch" not in first.names()
                    return found, [
                        [g.group_id for g in a.message.groups] or a.message.group_id
                        for a in second.asked
                        if a.api.name == "OffsetFetch"
                    ]

        return asyncio.run(main())


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _topic(*errors):
    results = [
        OffsetFetchPartitionResult(partition_index=n, committed_offset=o, metadata="", error_code=e)
        for n, (o, e) in enumerate(zip((5, -1), errors or (0, 0), strict=True))
    ]
    return OffsetFetchTopicResult(name="t", partitions=results)


FOUND = {A: OffsetAndMetadata(5)}


def test_coordinator_gets_one_request_for_its_groups():
    assert Peers().read(["a", "b"]) == ({"a": FOUND, "b": FOUND}, [["a", "b"]])


def test_request_has_at_most_100_groups():
    groups = [f"g{n}" for n in range(250)]
    found, asked = Peers().read(groups)
    assert found == dict.fromkeys(groups, FOUND)
    assert [len(some) for some in asked] == [100, 100, 50]


def test_old_broker_gets_one_request_per_group():
    """KIP-699 and KIP-709 came in different versions of Kafka."""
    for find_max, fetch_max in ((3, 7), (6, 7)):
        peers = Peers(find_max=find_max, fetch_max=fetch_max)
        assert peers.read(["a", "b"]) == ({"a": FOUND, "b": FOUND}, ["a", "b"])


def test_not_coordinator_looks_up_again_and_retries():
    peers = Peers(answers=[{"b": NOT_COORDINATOR}])
    assert peers.read(["a", "b"]) == ({"a": FOUND, "b": FOUND}, [["a", "b"], ["b"]])


def test_closed_connection_reconnects():
    peers = Peers(answers=[{"a": NOT_COORDINATOR}, CLOSE])
    assert peers.read(["a"]) == ({"a": FOUND}, [["a"], ["a"], ["a"]])


def test_permanent_error_is_raised_at_once():
    peers = Peers(answers=[{"a": NOT_COORDINATOR, "b": GROUP_AUTHORIZATION_FAILED}])
    said = "reading the offsets of group 'b': GROUP_AUTHORIZATION_FAILED"
    assert peers.read(["a", "b"]) == (said, [["a", "b"]])


def test_group_missing_in_responses_is_retried_then_raised():
    peers = Peers()
    peers.left_out = ("b",)
    said = "reading the offsets of group 'b': COORDINATOR_NOT_AVAILABLE"
    assert peers.read(["a", "b"]) == (said, [["a", "b"], ["b"], ["b"]])


def test_unknown_coordinator_is_retried():
    peers = Peers()
    peers.unknown = [("b",)]
    assert peers.read(["a", "b"]) == ({"a": FOUND, "b": FOUND}, [["a"], ["b"]])


def test_unreachable_coordinator_error_names_group():
    """Groups that were answered are not requested again."""
    peers = Peers()
    peers.at_nobody = ("b", "c")
    found, asked = peers.read(["a", "b"])
    assert re.fullmatch(r"127.0.0.1:\d+: .*; it is the coordinator of group 'b'", found), found
    assert asked == [["a"]]


def test_partition_error_fails_its_group():
    peers = Peers()
    told = [OffsetFetchGroupResult(group_id="a", topics=[_topic(0, 29)])]
    peers.OffsetFetch = lambda asked: OffsetFetchResponse(groups=told)
    said = "reading the offsets of group 'a': TOPIC_AUTHORIZATION_FAILED"
    assert peers.read(["a"]) == (said, [["a"]])


def test_offset_fetch_v1_broker_is_unsupported():
    said, asked = Peers(fetch_max=1).read(["a"])
    assert said.endswith("supports OffsetFetch v1; this client supports v2 and newer")
    assert asked == []
