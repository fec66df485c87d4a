"""The APIs of Kafka's admin tools, with Apache Kafka and with Partage as one node.

The tools are those of Apache Kafka. The other tests send the same requests to both brokers, and
expect the same responses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.raw_client import RawClient
from interop.members import fresh_name, produce
from interop.peers.server import BrokerProcess
from interop.peers.tools import ToolFailedError, tool
from partage.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from partage.wire.apis.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from partage.wire.apis.common import ConfigResourceType
from partage.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    QuotaFilterComponent,
)
from partage.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from partage.wire.apis.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    TopicPartitionsCursor,
)
from partage.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    ScramUserName,
)
from partage.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, ElectLeadersTopic
from partage.wire.apis.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
)
from partage.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
)
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from polled_conditions import eventually

pytestmark = pytest.mark.interop

NODE = 1
TOPIC_OPERATIONS = 3576


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap, timeout_s=30) as connected:
        yield connected


@pytest.fixture
def topic(raw: RawClient, topic: str) -> str:
    """Name of a new topic that the broker knows; Apache Kafka creates it on its controller."""
    request = ListConfigResourcesRequest(resource_types=[ConfigResourceType.TOPIC])

    def is_known() -> bool:
        listed = raw.request(LIST_CONFIG_RESOURCES, request).config_resources
        return topic in {each.resource_name for each in listed}

    eventually(is_known)
    return topic


def test_topic_log_dirs_and_leaders_are_described(broker: BrokerProcess, topic: str) -> None:
    at = broker.bootstrap
    produce("confluent", at, topic, 50)
    described = tool("topics", at, "--describe", "--topic", topic)
    assert (
        len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1\s+Elr: \s+LastKnownElr: ", described))
        == 12
    )

    lines = tool("log-dirs", at, "--describe", "--topic-list", topic).splitlines()
    (node,) = json.loads(lines[-1])["brokers"]
    (log_dir,) = node["logDirs"]
    assert (node["broker"], log_dir["error"]) == (NODE, None)
    assert log_dir["logDir"].startswith(str(broker.directory))
    sizes = {each["partition"]: each["size"] for each in log_dir["partitions"]}
    assert set(sizes) == {f"{topic}-{number}" for number in range(12)}
    assert sum(sizes.values()) > 50

    elect = ("leader-election", at, "--election-type")
    assert f"Valid replica already elected for partitions {topic}-3" in tool(
        *elect, "preferred", "--topic", topic, "--partition", "3"
    )
    assert tool(*elect, "unclean", "--all-topic-partitions").strip() == ""


def test_metadata_quorum_is_one_node(broker: BrokerProcess) -> None:
    at = broker.bootstrap
    status = tool("metadata-quorum", at, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\n", status)
    assert re.search(r"MaxFollowerLag:\s+0\n", status)
    assert re.search(r'CurrentVoters:\s+\[\{"id": 1, ', status)
    assert re.search(r"CurrentObservers:\s+\[\]", status)
    replication = tool("metadata-quorum", at, "describe", "--replication").splitlines()
    assert re.match(r"1\s+\S+\s+\d+\s+0\s+\d+\s+\d+\s+Leader", replication[1])


def test_partitions_are_reassigned_to_same_broker(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    at = broker.bootstrap
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": 0, "replicas": [NODE]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    reassign = ("reassign-partitions", at, "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignment" in tool(*reassign, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed" in tool(*reassign, "--verify")
    assert "No partition reassignments found" in tool("reassign-partitions", at, "--list")


def test_acls_and_metrics_are_empty(broker: BrokerProcess, topic: str) -> None:
    at = broker.bootstrap
    described = tool("transactions", at, "describe-producers", "--topic", topic, "--partition", "0")
    assert len(described.splitlines()) == 1
    assert tool("client-metrics", at, "--list").strip() == ""
    with pytest.raises(ToolFailedError, match="SecurityDisabledException: No Authorizer"):
        tool("acls", at, "--list")
    with pytest.raises(ToolFailedError, match="Could not upgrade nonsense to 1"):
        tool("features", at, "upgrade", "--feature", "nonsense=1")


def test_configs_are_altered_and_listed(broker: BrokerProcess, topic: str) -> None:
    at = broker.bootstrap
    group = fresh_name("group")

    def described(*entity: str) -> str:
        return tool("configs", at, "--describe", "--entity-type", *entity)

    for kind, name, config in (
        ("topics", topic, "retention.ms=12345"),
        ("groups", group, "consumer.session.timeout.ms=46000"),
    ):
        entity = ("--entity-type", kind, "--entity-name", name)
        tool("configs", at, "--alter", *entity, "--add-config", config)
        # Without a name the tool asks for the groups with configs (ListConfigResources).
        assert re.search(rf"Dynamic configs for \w+ {name} are:\s+{config}", described(kind))
    assert described("users").strip() == ""
    assert described("client-metrics").strip() == ""


# The same requests to both brokers.


def plain(message: Any) -> Any:
    """Return a message as a dict, without topic ids and empty messages of errors."""
    if isinstance(message, list):
        return [plain(each) for each in message]
    if hasattr(message, "__struct_fields__"):
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        fields.pop("topic_id", None)
        fields.pop("throttle_time_ms", None)
        fields.pop("error_message", None)
        return {name: plain(value) for name, value in fields.items()}
    return message


def test_topic_partitions_are_paged(raw: RawClient, topic: str) -> None:
    missing = f"{topic}-missing"

    def described(limit: int, cursor: TopicPartitionsCursor | None = None) -> Any:
        names = [DescribeTopicPartitionsTopic(name=name) for name in (missing, topic)]
        return raw.request(
            DESCRIBE_TOPIC_PARTITIONS,
            DescribeTopicPartitionsRequest(
                topics=names, response_partition_limit=limit, cursor=cursor
            ),
        )

    first = described(5)
    assert plain(first.topics[0].partitions[0]) == {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": NODE,
        "leader_epoch": 0,
        "replica_nodes": [NODE],
        "isr_nodes": [NODE],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
        "offline_replicas": [],
    }
    assert first.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert plain(first.next_cursor) == {"topic_name": topic, "partition_index": 5}
    second = described(7, first.next_cursor)
    assert [p.partition_index for p in second.topics[0].partitions] == list(range(5, 12))
    assert plain(second.next_cursor) == {"topic_name": missing, "partition_index": 0}
    third = described(5, second.next_cursor)
    assert plain(third.topics) == [
        {
            "error_code": 3,
            "name": missing,
            "is_internal": False,
            "partitions": [],
            "topic_authorized_operations": TOPIC_OPERATIONS,
        }
    ]
    assert third.next_cursor is None
    for name, index in ((topic, -1), ("elsewhere", 0)):
        cursor = TopicPartitionsCursor(topic_name=name, partition_index=index)
        assert {each.error_code for each in described(5, cursor).topics} == {42}


def test_leaders_need_no_election(raw: RawClient, topic: str) -> None:
    missing = f"{topic}-missing"
    requested = [
        ElectLeadersTopic(topic=topic, partitions=[0, 99]),
        ElectLeadersTopic(topic=missing, partitions=[0]),
    ]
    for election_type, errors in ((0, (84, 3, 3)), (1, (84, 3, 3)), (5, (42, 42, 42))):
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=requested)
        elected = raw.request(ELECT_LEADERS, request)
        assert elected.error_code == (42 if election_type == 5 else 0)
        assert [plain(each) for each in elected.replica_election_results] == [
            {
                "topic": topic,
                "partition_result": [
                    {"partition_id": 0, "error_code": errors[0]},
                    {"partition_id": 99, "error_code": errors[1]},
                ],
            },
            {
                "topic": missing,
                "partition_result": [{"partition_id": 0, "error_code": errors[2]}],
            },
        ]


def test_reassignments_are_checked(raw: RawClient, topic: str) -> None:
    wanted = {0: [NODE], 1: [NODE, 99], 2: None, 3: [], 4: [99], 99: [NODE]}
    answer = raw.request(
        ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=index, replicas=brokers)
                        for index, brokers in wanted.items()
                    ],
                )
            ]
        ),
    )
    errors = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
    assert errors == {0: 0, 1: 39, 2: 85, 3: 39, 4: 39, 99: 3}
    ongoing = raw.request(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest())
    assert plain(ongoing) == {"error_code": 0, "topics": []}


def test_replicas_do_not_move_to_unknown_log_dir(raw: RawClient, topic: str) -> None:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    directories = [AlterReplicaLogDir(path="/elsewhere", topics=topics)]
    answer = raw.request(ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequest(dirs=directories))
    assert plain(answer.results) == [
        {"topic_name": topic, "partitions": [{"partition_index": 0, "error_code": 57}]}
    ]


def test_config_resources_are_listed(raw: RawClient, topic: str) -> None:
    def listed(*types: int) -> Any:
        request = ListConfigResourcesRequest(resource_types=list(types))
        return raw.request(LIST_CONFIG_RESOURCES, request)

    names = {(each.resource_type, each.resource_name) for each in listed().config_resources}
    assert {(2, topic), (4, str(NODE))} <= names
    assert plain(listed(4).config_resources) == [{"resource_name": str(NODE), "resource_type": 4}]
    assert plain(listed(16)) == {"error_code": 0, "config_resources": []}
    assert plain(listed(2, 64)) == {"error_code": 35, "config_resources": []}


def test_quorum_of_other_topic_is_unknown(raw: RawClient) -> None:
    partitions = [DescribeQuorumPartition(partition_index=0)]
    topics = [DescribeQuorumTopic(topic_name=fresh_name("t"), partitions=partitions)]
    answer = raw.request(DESCRIBE_QUORUM, DescribeQuorumRequest(topics=topics))
    assert (answer.error_code, answer.nodes) == (0, [])
    assert answer.topics[0].partitions[0].error_code == 3


def test_scram_users_quotas_and_transactions(raw: RawClient) -> None:
    users = [ScramUserName(name=name) for name in ("twice", "twice", "missing")]
    described = raw.request(
        DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=users)
    )
    assert {each.user: each.error_code for each in described.results} == {
        "twice": 92,
        "missing": 91,
    }

    def quotas(*components: tuple[str, int, str | None]) -> Any:
        filters = [
            QuotaFilterComponent(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ]
        request = DescribeClientQuotasRequest(components=filters, strict=False)
        return plain(raw.request(DESCRIBE_CLIENT_QUOTAS, request))

    assert quotas(("user", 2, None)) == {"error_code": 0, "entries": []}
    assert quotas(("nonsense", 2, None)) == {"error_code": 35, "entries": None}
    for invalid in (
        [("", 2, None)],
        [("user", 9, None)],
        [("user", 0, None)],
        [("user", 1, "a")],
        [("user", 0, "a"), ("user", 0, "b")],
        [("ip", 2, None), ("user", 2, None)],
    ):
        assert quotas(*invalid) == {"error_code": 42, "entries": None}

    filters = ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"], producer_id_filters=[])
    assert plain(raw.request(LIST_TRANSACTIONS, filters)) == {
        "error_code": 0,
        "unknown_state_filters": ["Nonsense"],
        "transaction_states": [],
    }
