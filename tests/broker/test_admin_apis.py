"""The APIs that only Kafka's admin clients and tools use, as a broker without replicas answers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from partage.broker.apis import quorum, replicas, topic_partitions
from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import SingleBrokerView
from partage.broker.net import unsupported_requests
from partage.broker.net.unsupported_requests import UnsupportedRequestLogger
from partage.model.errors import ErrorCode
from partage.wire.apis import APIS
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
from partage.wire.apis.common import TOPIC_OPERATIONS, ConfigResourceType
from partage.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from partage.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from partage.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from partage.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    QuotaFilterComponent,
)
from partage.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from partage.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersTopic,
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
from partage.wire.apis.elect_leaders import (
    ELECT_LEADERS,
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersTopic,
)
from partage.wire.apis.incremental_alter_configs import DELETE, SET
from partage.wire.apis.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
)
from partage.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
)
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from partage.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from partage.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from partage.wire.apis.update_features import (
    UPDATE_FEATURES,
    FeatureUpdate,
    UpdateFeaturesRequest,
)

from .config_requests import GROUP, alter
from .requests import batch, create, produce


def versions(api):
    return pytest.mark.parametrize("version", range(api.version_min, api.version_max + 1))


class RecordedRequest:
    """A request outside a connection; keeps its response."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.response: Any = None

    def respond(self, response: Any) -> None:
        self.response = response


class TwoBrokersView(SingleBrokerView):
    """Broker 2 asks; broker 1 is the controller and has all partitions, or is down."""

    def __init__(self, *, is_first_up: bool) -> None:
        self.nodes = [
            BrokerNode(node_id=node_id, host=f"host-{node_id}", port=9000 + node_id, cluster_id="c")
            for node_id in (1, 2)
        ]
        super().__init__(self.nodes[1])
        self.is_first_up = is_first_up

    def brokers(self) -> Sequence[BrokerNode]:
        return [node for node in self.nodes if self.is_up(node.node_id)]

    def controller_id(self) -> int:
        return self.brokers()[0].node_id

    def broker_of(self, topic: Any, index: int) -> int:
        return 1

    def is_up(self, node_id: int) -> bool:
        return node_id == 2 or (node_id == 1 and self.is_first_up)

    async def are_up(self, node_ids: Collection[int]) -> bool:
        return all(map(self.is_up, node_ids))


# DescribeTopicPartitions


def describe(raw, *names, limit=2000, cursor=None):
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else TopicPartitionsCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return raw.request(DESCRIBE_TOPIC_PARTITIONS, request)


def page(response):
    """Return the topics with their partitions, and the cursor."""
    cursor = response.next_cursor
    return (
        {t.name: [p.partition_index for p in t.partitions] for t in response.topics},
        None if cursor is None else (cursor.topic_name, cursor.partition_index),
    )


def test_topic_partitions_have_their_broker_as_only_replica(raw):
    topic_id = create(raw, "t", 2).topic_id
    (topic,) = describe(raw, "t").topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "t", topic_id)
    assert (topic.is_internal, topic.topic_authorized_operations) == (False, TOPIC_OPERATIONS)
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        assert partition.offline_replicas == []


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "expected"),
    [
        ("tu", 9, None, ({"t": [0, 1], "u": [0, 1, 2]}, None)),
        ("ut", 1, None, ({"t": [0]}, ("t", 1))),
        ("ut", 1, ("t", 1), ({"t": [1]}, ("u", 0))),
        ("ut", 2, ("t", 1), ({"t": [1], "u": [0]}, ("u", 1))),
        ("ut", 2, None, ({"t": [0, 1]}, ("u", 0))),
        ("ut", 9, ("u", 1), ({"u": [1, 2]}, None)),
        ("t", 2, None, ({"t": [0, 1]}, None)),
        ("t", 9, ("t", 9), ({"t": []}, None)),
        ("tt", 0, None, ({"t": [0]}, ("t", 1))),
        ("t", -1, None, ({"t": [0]}, ("t", 1))),
        ("", 2, ("s", 5), ({"t": [0, 1]}, ("u", 0))),
        ("", 9, ("tt", 1), ({"u": [0, 1, 2]}, None)),
        ("", 9, ("zz", 0), ({}, None)),
    ],
)
def test_topic_partitions_are_paged_like_apache_kafka(raw, names, limit, cursor, expected):
    """The expected pages are those of Apache Kafka 4.4."""
    create(raw, "t", 2)
    create(raw, "u", 3)
    assert page(describe(raw, *names, limit=limit, cursor=cursor)) == expected


@pytest.mark.parametrize("cursor", [("t", -1), ("s", 0), ("tt", 1), ("u", 0)])
def test_topic_partitions_invalid_cursor_is_refused(raw, cursor):
    create(raw, "t")
    (topic,) = describe(raw, "t", cursor=cursor).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])


def test_topic_partitions_missing_and_invalid_names(raw):
    invalid, missing = describe(raw, "zz", "bad name").topics
    assert (missing.name, missing.error_code) == ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (invalid.name, invalid.error_code) == ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION)
    (offsets,) = describe(raw, "__consumer_offsets", limit=1).topics
    assert (offsets.error_code, offsets.is_internal) == (0, True)


def test_topic_partitions_page_is_limited(raw):
    """Kafka's max.request.partition.size.limit."""
    create(raw, "t", 2001)
    topics, cursor = page(describe(raw, "t", limit=2**31 - 1))
    assert (len(topics["t"]), cursor) == (2000, ("t", 2000))


# ElectLeaders


def elect(raw, partitions, election_type=PREFERRED, version=2):
    topics = None
    if partitions is not None:
        topics = [
            ElectLeadersTopic(topic=name, partitions=indexes)
            for name, indexes in partitions.items()
        ]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics)
    return raw.request(ELECT_LEADERS, request, version)


def election_errors(response):
    return {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }


@versions(ELECT_LEADERS)
@pytest.mark.parametrize("election_type", [PREFERRED, UNCLEAN])
def test_election_is_not_needed(raw, version, election_type):
    create(raw, "t", 2)
    answer = elect(raw, {"t": [0, 7], "zz": [0]}, election_type, version)
    assert answer.error_code == 0
    assert election_errors(answer) == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("zz", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_election_of_all_partitions_reports_none(raw):
    create(raw, "t", 2)
    answer = elect(raw, None)
    assert answer.error_code == 0
    assert "t" in {topic.topic for topic in answer.replica_election_results}
    assert election_errors(answer) == {}


def test_unknown_election_type_is_refused(raw):
    create(raw, "t")
    answer = elect(raw, {"t": [0]}, election_type=5)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert election_errors(answer) == {("t", 0): ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(
    ("election_type", "error"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_election_fails_if_broker_of_partition_is_down(broker, raw, election_type, error):
    create(raw, "t")
    request = RecordedRequest(
        ElectLeadersRequest(election_type=election_type, topic_partitions=None)
    )
    log_manager = broker.broker.log_manager
    replicas.elect_leaders(request, log_manager, TwoBrokersView(is_first_up=False))
    assert election_errors(request.response)["t", 0] == error


def test_partition_of_other_broker_is_described(broker, raw):
    create(raw, "t")
    log_manager = broker.broker.log_manager
    for is_first_up, leader, offline in ((True, 1, []), (False, -1, [1])):
        request = RecordedRequest(
            DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopic(name="t")])
        )
        cluster_view = TwoBrokersView(is_first_up=is_first_up)
        topic_partitions.describe_topic_partitions(request, log_manager, cluster_view)
        (partition,) = request.response.topics[0].partitions
        assert (partition.leader_id, partition.offline_replicas) == (leader, offline)
        assert partition.replica_nodes == [1]


# Reassignments


@versions(ALTER_PARTITION_REASSIGNMENTS)
def test_reassignment_to_same_broker_only_is_accepted(raw, version):
    create(raw, "t", 4)
    wanted = {0: [1], 1: [1, 9], 2: None, 3: [], 7: [1]}
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=brokers)
                    for index, brokers in partitions.items()
                ],
            )
            for name, partitions in (("t", wanted), ("zz", {0: [1]}))
        ]
    )
    answer = raw.request(ALTER_PARTITION_REASSIGNMENTS, request, version)
    assert answer.error_code == 0
    errors = [[p.error_code for p in topic.partitions] for topic in answer.responses]
    assert errors == [
        [
            0,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert "broker 9" in answer.responses[0].partitions[1].error_message


def test_reassignment_to_other_live_broker_is_refused(broker, raw):
    create(raw, "t")
    request = RecordedRequest(
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2])]
                )
            ]
        )
    )
    log_manager = broker.broker.log_manager
    replicas.alter_partition_reassignments(request, log_manager, TwoBrokersView(is_first_up=True))
    (partition,) = request.response.responses[0].partitions
    assert partition.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "stays on broker 1" in partition.error_message


def test_no_reassignment_is_in_progress(raw):
    answer = raw.request(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest())
    assert (answer.error_code, answer.topics) == (0, [])


# Log directories


def log_dir(raw, topics, version=5):
    requested = None
    if topics is not None:
        requested = [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    request = DescribeLogDirsRequest(topics=requested)
    (result,) = raw.request(DESCRIBE_LOG_DIRS, request, version).results
    assert result.error_code == 0
    return result


def sizes(result):
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@versions(DESCRIBE_LOG_DIRS)
def test_log_dir_has_size_of_each_partition(raw, version):
    create(raw, "t", 2)
    content = batch(b"x" * 100)
    for _ in range(3):
        produce(raw, "t", content)
    result = log_dir(raw, {"t": [0, 1, 7], "zz": [0]}, version)
    assert sizes(result) == {("t", 0): 3 * len(content), ("t", 1): 0}
    partitions = result.topics[0].partitions
    assert not any(p.offset_lag or p.is_future_key for p in partitions)
    everything = sizes(log_dir(raw, None, version))
    assert everything["t", 0] == 3 * len(content)
    assert ("__consumer_offsets", 0) in everything
    assert sizes(log_dir(raw, {}, version)) == {}


def test_log_dir_of_memory_has_no_volume(raw):
    result = log_dir(raw, {})
    assert (result.log_dir, result.total_bytes, result.usable_bytes) == ("memory", -1, -1)


@versions(ALTER_REPLICA_LOG_DIRS)
def test_replica_stays_in_its_log_dir(raw, version):
    create(raw, "t")

    def errors(path):
        topics = [
            AlterReplicaLogDirTopic(name=name, partitions=indexes)
            for name, indexes in (("t", [0, 7]), ("zz", [0]))
        ]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        answer = raw.request(ALTER_REPLICA_LOG_DIRS, request, version)
        return [p.error_code for topic in answer.results for p in topic.partitions]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(log_dir(raw, {}).log_dir) == [0, unknown, unknown]
    assert errors("/elsewhere") == [ErrorCode.LOG_DIR_NOT_FOUND] * 3


# DescribeQuorum and UpdateFeatures


def quorum_request(*partitions):
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=name, partitions=[DescribeQuorumPartition(partition_index=index)]
            )
            for name, index in partitions
        ]
    )


@versions(DESCRIBE_QUORUM)
def test_broker_is_its_own_quorum(broker, raw, version):
    answer = raw.request(DESCRIBE_QUORUM, quorum_request(("__cluster_metadata", 0)), version)
    assert answer.error_code == 0
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.observers) == (0, 1, [])
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    if version >= 2:
        (node,) = answer.nodes
        (listener,) = node.listeners
        assert node.node_id == 1
        assert f"{listener.host}:{listener.port}" == broker.bootstrap_servers


@pytest.mark.parametrize(
    "partitions",
    [
        [("t", 0)],
        [("__cluster_metadata", 1)],
        [("__cluster_metadata", 0), ("t", 0)],
    ],
)
def test_quorum_of_other_partitions_is_unknown(raw, partitions):
    answer = raw.request(DESCRIBE_QUORUM, quorum_request(*partitions))
    errors = [p.error_code for topic in answer.topics for p in topic.partitions]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(partitions)
    assert answer.nodes == []


def test_quorum_of_cluster_is_controller_with_observers():
    request = RecordedRequest(quorum_request(("__cluster_metadata", 0)))
    quorum.describe_quorum(request, TwoBrokersView(is_first_up=True), 1234)
    (partition,) = request.response.topics[0].partitions
    assert partition.leader_id == 1
    assert [voter.replica_id for voter in partition.current_voters] == [1]
    assert [(o.replica_id, o.last_caught_up_timestamp) for o in partition.observers] == [(2, 1234)]
    assert [node.node_id for node in request.response.nodes] == [1, 2]


@versions(UPDATE_FEATURES)
def test_feature_update_is_refused(raw, version):
    update = FeatureUpdate(feature="metadata.version", max_version_level=1)
    answer = raw.request(UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update]), version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "metadata.version" in answer.error_message
    nothing = raw.request(UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[]), version)
    assert (nothing.error_code, nothing.error_message) == (0, None)


# ListConfigResources


def resources(raw, *types, version=1):
    request = ListConfigResourcesRequest(resource_types=list(types))
    answer = raw.request(LIST_CONFIG_RESOURCES, request, version)
    return answer.error_code, {(r.resource_type, r.resource_name) for r in answer.config_resources}


def test_topics_and_brokers_are_listed_as_resources(raw):
    create(raw, "t")
    topics = {(ConfigResourceType.TOPIC, name) for name in ("t", "__consumer_offsets")}
    brokers = {(ConfigResourceType.BROKER, "1")}
    assert resources(raw) == (0, topics | brokers)
    assert resources(raw, ConfigResourceType.TOPIC) == (0, topics)
    assert resources(raw, ConfigResourceType.BROKER) == (0, brokers)
    assert resources(raw, ConfigResourceType.CLIENT_METRICS) == (0, set())
    assert resources(raw, ConfigResourceType.TOPIC, 64) == (ErrorCode.UNSUPPORTED_VERSION, set())
    assert resources(raw, version=0) == (0, set())


def test_groups_with_altered_configs_are_listed_as_resources(raw):
    assert alter(raw, (SET, "consumer.session.timeout.ms", "50000"), name="g", kind=GROUP) == 0
    assert resources(raw, GROUP) == (0, {(GROUP, "g")})
    assert alter(raw, (DELETE, "consumer.session.timeout.ms", None), name="g", kind=GROUP) == 0
    assert resources(raw, GROUP) == (0, set())


# Security


@versions(SASL_HANDSHAKE)
def test_sasl_handshake_is_refused_as_on_kafkas_plaintext_port(raw, version):
    request = SaslHandshakeRequest(mechanism="PLAIN")
    refusal = raw.request(SASL_HANDSHAKE, request, version)
    assert (refusal.error_code, refusal.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@versions(SASL_AUTHENTICATE)
def test_sasl_token_is_refused_as_on_kafkas_plaintext_port(raw, version):
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    refusal = raw.request(SASL_AUTHENTICATE, request, version)
    assert refusal.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "PLAINTEXT" in refusal.error_message


@versions(DESCRIBE_ACLS)
def test_acls_need_an_authorizer(raw, version):
    any_acl = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    new = AclCreation(
        resource_type=2,
        resource_name="t",
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    described = raw.request(DESCRIBE_ACLS, DescribeAclsRequest(**any_acl), version)
    created = raw.request(CREATE_ACLS, CreateAclsRequest(creations=[new, new]), version)
    filters = [DeleteAclsFilter(**any_acl)]
    deleted = raw.request(DELETE_ACLS, DeleteAclsRequest(filters=filters), version)
    results = [described, *created.results, *deleted.filter_results]
    assert [result.error_code for result in results] == [ErrorCode.SECURITY_DISABLED] * 4


def test_no_user_has_scram_credentials(raw):
    def describe_users(*names):
        users = [ScramUserName(name=name) for name in names]
        request = DescribeUserScramCredentialsRequest(users=users)
        answer = raw.request(DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        assert answer.error_code == 0
        return {result.user: result.error_code for result in answer.results}

    assert describe_users() == {}
    assert describe_users("a", "b", "b") == {
        "a": ErrorCode.RESOURCE_NOT_FOUND,
        "b": ErrorCode.DUPLICATE_RESOURCE,
    }


@versions(DESCRIBE_CLIENT_QUOTAS)
def test_no_client_has_quotas(raw, version):
    component = QuotaFilterComponent(entity_type="user", match_type=2, match=None)
    request = DescribeClientQuotasRequest(components=[component], strict=False)
    answer = raw.request(DESCRIBE_CLIENT_QUOTAS, request, version)
    assert (answer.error_code, answer.entries) == (0, [])


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("nonsense", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_quota_filter_is_refused(raw, components, error):
    filters = [
        QuotaFilterComponent(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    request = DescribeClientQuotasRequest(components=filters, strict=False)
    answer = raw.request(DESCRIBE_CLIENT_QUOTAS, request)
    assert (answer.error_code, answer.entries) == (error, None)


@versions(LIST_TRANSACTIONS)
def test_no_transaction_is_listed(raw, version):
    request = ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"], producer_id_filters=[])
    answer = raw.request(LIST_TRANSACTIONS, request, version)
    assert (answer.error_code, answer.transaction_states) == (0, [])
    assert answer.unknown_state_filters == ["Nonsense"]


def test_idempotent_producers_are_described(raw):
    create(raw, "t", 2)
    for sequence in (0, 2):
        produce(
            raw, "t", batch(b"x", b"y", producer_id=7, producer_epoch=1, base_sequence=sequence)
        )
    topics = [
        DescribeProducersTopic(name=name, partition_indexes=indexes)
        for name, indexes in (("t", [0, 1, 0, 7]), ("zz", [0]))
    ]
    answer = raw.request(DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=topics))
    t, zz = ({p.partition_index: p for p in topic.partitions} for topic in answer.topics)
    (producer,) = t[0].active_producers
    assert producer == ActiveProducer(
        producer_id=7,
        producer_epoch=1,
        last_sequence=3,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=-1,
    )
    assert (t[1].error_code, t[1].active_producers) == (0, [])
    assert t[7].error_code == zz[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Unsupported requests


def frame(key, version=0, client_id=b"tool"):
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4)
    return header + len(client_id).to_bytes(2, "big") + client_id


@pytest.fixture
def reported(caplog):
    """The logged lines of a logger for requests that this broker does not support."""
    caplog.set_level(logging.INFO, unsupported_requests.__name__)
    logger = UnsupportedRequestLogger(APIS)

    def report(*arguments):
        caplog.clear()
        logger.report(*arguments)
        return [record.getMessage() for record in caplog.records]

    return report


def test_unsupported_request_is_logged_once_per_client(reported):
    (line,) = reported("/10.0.0.1", frame(51))
    assert "/10.0.0.1, client id 'tool': AlterUserScramCredentials (API key 51)" in line
    assert reported("/10.0.0.1", frame(51)) == []
    assert reported("/10.0.0.2", frame(51)) != []
    assert reported("/10.0.0.1", frame(51, client_id=b"other")) != []
    (line,) = reported("/10.0.0.1", frame(3, 99))
    assert "Metadata version 99 is not supported, versions 0 to 13 are" in line
    (line,) = reported("/10.0.0.1", frame(999)[:8])
    assert "client id '': unknown API (API key 999) version 0 is not supported" in line


def test_unsupported_requests_in_memory_are_limited(reported, monkeypatch):
    monkeypatch.setattr(unsupported_requests, "_REMEMBERED_MAX", 2)
    for host in "abc":
        assert reported(host, frame(51)) != []
    assert reported("c", frame(51)) == []
    assert reported("a", frame(51)) != []
