"""DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from partage.model.errors import ErrorCode
from partage.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from partage.wire.apis.incremental_alter_configs import (
    APPEND,
    DELETE,
    INCREMENTAL_ALTER_CONFIGS,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .raw_client import RawClient
from .requests import batch, create, produce

TOPIC, BROKER = 2, 4


def describe(raw, name="t", kind=TOPIC, keys=None, version=4, **options):
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **options)
    (result,) = raw.request(DESCRIBE_CONFIGS, request, version).results
    return result


def config(raw, key, **options):
    (entry,) = describe(raw, keys=[key], **options).configs
    return entry


def alter(raw, *changes, name="t", kind=TOPIC, version=1, validate_only=False):
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = raw.request(INCREMENTAL_ALTER_CONFIGS, request, version).responses
    assert (result.error_message is None) == (not result.error_code)
    return result.error_code


@pytest.fixture(autouse=True)
def topic(raw):
    create(raw, "t", retention_ms="1000")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_describe_topic_configs_every_version(raw, version):
    entries = {e.name: e for e in describe(raw, version=version).configs}
    assert entries["retention.ms"].value == "1000"
    assert entries["retention.ms"].config_source == 1
    assert entries["cleanup.policy"].config_source == 5
    assert entries["retention.ms"].config_type == (5 if version >= 3 else 0)
    assert entries["retention.ms"].synonyms == []
    assert not any(e.documentation for e in entries.values())


def test_describe_configs_source_and_type(raw):
    entry = config(raw, "retention.ms", include_synonyms=True, include_documentation=True)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert entry.documentation


@pytest.mark.partage_broker({"log.retention.ms": "77"})
def test_describe_configs_broker_default_source(raw):
    alter(raw, (DELETE, "retention.ms", None))
    entry = config(raw, "retention.ms", include_synonyms=True)
    assert (entry.value, entry.config_source) == ("77", 4)


def test_describe_broker_configs(raw):
    for name in ("1", ""):
        entries = {e.name: e for e in describe(raw, name, BROKER).configs}
        assert entries["group.initial.rebalance.delay.ms"].value == "0"
        assert all(e.read_only for e in entries.values())


def test_describe_configs_unknown_resource_is_refused(raw):
    assert describe(raw, "nothing").error_code == 3
    assert describe(raw, "2", BROKER).error_code == 42
    assert describe(raw, "t", 8).error_code == 42
    assert describe(raw, "x" * 32_000).error_code == 3  # its error message fits into the response


def test_describe_configs_duplicate_resource_once(raw):
    """Otherwise a small request could produce a response of megabytes."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t")
    request = DescribeConfigsRequest(resources=[resource] * 3000, include_documentation=True)
    assert len(raw.request(DESCRIBE_CONFIGS, request).results) == 1


@pytest.mark.parametrize("version", [0, 1])
def test_alter_configs_applies_immediately(raw, version):
    assert alter(raw, (SET, "max.message.bytes", "100"), version=version) == 0
    assert config(raw, "max.message.bytes").value == "100"
    assert produce(raw, "t", batch(b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(raw, (DELETE, "max.message.bytes", None), version=version) == 0
    assert config(raw, "max.message.bytes").config_source == 5
    assert produce(raw, "t", batch(b"x" * 200)).error_code == 0
    assert config(raw, "retention.ms").value == "1000"


def test_alter_configs_concurrent_changes_all_apply(broker, raw):
    keys = [
        "retention.ms",
        "segment.ms",
        "retention.bytes",
        "segment.bytes",
        "file.delete.delay.ms",
    ]
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in keys]
        for client, key in zip(clients, keys, strict=True):
            change = AlterableConfig(name=key, config_operation=SET, value="12345")
            resource = AlterConfigsResource(
                resource_type=TOPIC, resource_name="t", configs=[change]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            client.send(INCREMENTAL_ALTER_CONFIGS, request)
        assert [client.receive().responses[0].error_code for client in clients] == [0] * len(keys)
    assert {config(raw, key).value for key in keys} == {"12345"}


def test_alter_configs_append_and_subtract(raw):
    assert alter(raw, (APPEND, "cleanup.policy", "compact")) == 0
    assert config(raw, "cleanup.policy").value == "delete,compact"
    assert alter(raw, (SUBTRACT, "cleanup.policy", "delete")) == 0
    assert config(raw, "cleanup.policy").value == "compact"
    assert alter(raw, (APPEND, "retention.ms", "1")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ((SET, "no.such", "1"), 40),
        ((SET, "retention.ms", "x"), 40),
        ((SET, "retention.ms", None), 40),
        ((9, "retention.ms", "1"), 40),
    ],
)
def test_alter_configs_invalid_change_is_refused(raw, change, error):
    assert alter(raw, (SET, "segment.ms", "5000"), change) == error
    assert config(raw, "segment.ms").config_source == 5
    assert config(raw, "retention.ms").value == "1000"


def test_alter_configs_validate_only_changes_nothing(raw):
    assert alter(raw, (SET, "retention.ms", "5"), validate_only=True) == 0
    assert alter(raw, (SET, "retention.ms", "x"), validate_only=True) == 40
    assert config(raw, "retention.ms").value == "1000"


def test_alter_configs_unsupported_resource_is_refused(raw):
    assert alter(raw, (SET, "retention.ms", "5"), name="nothing") == 3
    assert alter(raw, (SET, "num.partitions", "5"), name="1", kind=BROKER) == 42
