"""ApiVersions, DescribeCluster, FindCoordinator and InitProducerId."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from partage.model.errors import ErrorCode
from partage.store.transaction_log import TOPIC as TRANSACTIONS_TOPIC
from partage.wire.apis import APIS
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from partage.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    SHARE,
    TRANSACTION,
    FindCoordinatorRequest,
)
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest

from .raw_client import RawClient
from .requests import metadata

#: Keeps librdkafka's log off stderr.
QUIET: dict[str, Any] = {"logger": logging.getLogger("librdkafka")}
SOFTWARE = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
#: All operations on a cluster, as bits of Kafka's `AclOperation` (KIP-430).
CLUSTER_OPERATIONS = 8096


@pytest.mark.parametrize("version", range(API_VERSIONS.version_max + 1))
def test_api_versions_match_handlers(raw, version):
    answer = raw.request(API_VERSIONS, SOFTWARE, version)
    assert answer.error_code == 0
    assert {a.api_key for a in answer.api_keys} == set(APIS)
    for spoken in answer.api_keys:
        api = APIS[spoken.api_key]
        assert (spoken.min_version, spoken.max_version) == (api.version_min, api.version_max)


def test_api_versions_omit_telemetry(raw):
    """CVE-2026-111073: an API that does not exist cannot unpack a decompression bomb."""
    answer = raw.request(API_VERSIONS, SOFTWARE)
    assert not {71, 72} & {a.api_key for a in answer.api_keys}


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_unknown_version_gets_v0(raw, version):
    """KIP-511: a body in version 0, whatever follows the first eight bytes of the request."""
    request = struct.pack(">hhi", 18, version, 77) + b"\xff\xff\x80\x80"
    raw.send_bytes(struct.pack(">i", len(request)) + request)
    frame = raw.receive_frame()
    assert struct.unpack_from(">ih", frame) == (77, 35)
    answer = API_VERSIONS.decode_response(0, frame, 4)
    (own,) = [a for a in answer.api_keys if a.api_key == 18]
    assert (own.min_version, own.max_version) == (0, 4)
    assert raw.request(API_VERSIONS, SOFTWARE, 3).error_code == 0


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software"),
    [
        *(("", ""), ("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a-", "1"), (".", "1")),
        *(("a/b", "1"), ("a_b", "1"), ("ä", "1"), ("a", "1 0"), ("a", "1.0+g1"), ("a\n", "1")),
    ],
)
def test_api_versions_invalid_software_is_refused(raw, version, name, software):
    """KIP-511: INVALID_REQUEST without APIs; the connection stays open."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    answer = raw.request(API_VERSIONS, request, version)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    assert raw.request(API_VERSIONS, SOFTWARE, version).error_code == 0


@pytest.mark.parametrize("name", ["a", "1", "apache-kafka-java", "a.b-c", "A" * 300])
def test_api_versions_valid_software_is_accepted(raw, name):
    request = ApiVersionsRequest(client_software_name=name, client_software_version="4.1.0-rc.1")
    assert raw.request(API_VERSIONS, request).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("is_included", "operations"), [(True, CLUSTER_OPERATIONS), (False, -(2**31))]
)
def test_describe_cluster_authorized_operations(raw, version, is_included, operations):
    request = DescribeClusterRequest(include_cluster_authorized_operations=is_included)
    answer = raw.request(DESCRIBE_CLUSTER, request, version)
    assert answer.cluster_authorized_operations == operations


@pytest.mark.parametrize("version", [1, 2])
def test_describe_cluster_other_endpoint_type_is_refused(raw, version):
    """KIP-919: this broker has no controller endpoint."""
    for endpoint_type, error in ((2, 114), (3, 115)):
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=True, endpoint_type=endpoint_type
        )
        answer = raw.request(DESCRIBE_CLUSTER, request, version)
        assert (answer.error_code, answer.brokers) == (error, [])
        assert answer.error_message


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_cluster_single_broker(broker, raw, version):
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    answer = raw.request(DESCRIBE_CLUSTER, request, version)
    (node,) = answer.brokers
    assert (answer.controller_id, node.broker_id) == (1, 1)
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    assert answer.cluster_id == metadata(raw).cluster_id


@pytest.mark.parametrize("version", range(FIND_COORDINATOR.version_max + 1))
def test_find_coordinator_returns_this_broker(broker, raw, version):
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=["g", "h", ""])
        found = raw.request(FIND_COORDINATOR, request, version).coordinators
        assert [c.key for c in found] == ["g", "h", ""]
    else:
        found = [raw.request(FIND_COORDINATOR, FindCoordinatorRequest(key="g"), version)]
    for one in found:
        assert (one.error_code, one.node_id) == (0, 1)
        assert f"{one.host}:{one.port}" == broker.bootstrap_servers


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_find_coordinator_of_transactions_returns_this_broker(broker, raw, version):
    for transactional_id in ("x", "y", ""):
        found = find_coordinator(raw, TRANSACTION, version, transactional_id)
        assert (found.error_code, found.node_id) == (0, 1)
        assert f"{found.host}:{found.port}" == broker.bootstrap_servers
    (topic,) = metadata(raw, TRANSACTIONS_TOPIC).topics
    assert (topic.error_code, topic.is_internal) == (0, True)


def find_coordinator(raw, kind, version, key):
    if version >= 4:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        (found,) = raw.request(FIND_COORDINATOR, request, version).coordinators
        return found
    request = FindCoordinatorRequest(key=key, key_type=kind)
    return raw.request(FIND_COORDINATOR, request, version)


@pytest.mark.parametrize("kind", [SHARE, 9, -1])
@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_find_coordinator_other_types_are_refused(raw, kind, version):
    found = find_coordinator(raw, kind, version, "x")
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert "share groups" in found.error_message


def test_find_coordinator_without_keys(raw):
    assert raw.request(FIND_COORDINATOR, FindCoordinatorRequest()).coordinators == []


def producer_id(raw, version=None, **options):
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, **options)
    answer = raw.request(INIT_PRODUCER_ID, request, version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


@pytest.mark.parametrize("version", range(INIT_PRODUCER_ID.version_max + 1))
def test_init_producer_id_returns_unique_ids(broker, raw, version):
    with RawClient(broker.bootstrap_servers) as other:
        ids = [producer_id(one, version) for one in (raw, other) for _ in range(10)]
    assert len(set(ids)) == 20
    assert min(ids) >= 0


def test_init_producer_id_replaces_given_id(raw):
    """Without transactions, a producer that initializes again is a new one."""
    first = producer_id(raw)
    assert producer_id(raw, producer_id=first, producer_epoch=3) != first


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5, "transactional_id": None}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_init_producer_id_invalid_request_is_refused(raw, options, error):
    find_coordinator(raw, TRANSACTION, 4, "tx")
    fields = {"transactional_id": "tx", "transaction_timeout_ms": 1000} | options
    answer = raw.request(INIT_PRODUCER_ID, InitProducerIdRequest(**fields))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


@pytest.mark.parametrize("version", range(3))
def test_init_producer_id_before_find_coordinator_is_refused(raw, version):
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    answer = raw.request(INIT_PRODUCER_ID, request, version)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("version", "minimum"), [(3, 1), (4, 0)])
def test_api_versions_states_levels_of_features(raw, version, minimum):
    answer = raw.request(API_VERSIONS, SOFTWARE, version)
    assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == [
        ("group.version", minimum, 1),
        ("transaction.version", minimum, 2),
    ]
    assert [
        (f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features
    ] == [("group.version", 1, 1), ("transaction.version", 2, 2)]
    assert answer.finalized_features_epoch >= 0


# Real clients: none of them may wait forever.
