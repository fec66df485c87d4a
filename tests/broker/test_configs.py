"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from partage.broker.apis.describe_configs import ConfigDescriber
from partage.broker.configs.dynamic_configs import DynamicConfigs
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
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
from polled_conditions import eventually

from .config_requests import BROKER, GROUP, TOPIC, alter, config, describe, replace
from .raw_client import RawClient
from .requests import batch, create, offset_range, produce


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


@pytest.mark.partage_broker({"log.retention.ms": "77", "max.connections": "1000"})
def test_describe_broker_configs(broker, raw):
    entries = {e.name: e for e in describe(raw, "1", BROKER, include_synonyms=True).configs}
    assert list(entries) == sorted(entries)
    delay = entries["group.initial.rebalance.delay.ms"]
    assert (delay.value, delay.config_source, delay.read_only, delay.config_type) == (
        "0",
        4,
        True,
        3,
    )
    assert [(s.value, s.source) for s in delay.synonyms] == [("0", 4), ("3000", 5)]
    retention = entries["log.retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("77", 4, False)
    assert retention.config_type == 5
    assert (entries["broker.rack"].value, entries["broker.rack"].config_source) == (None, 5)
    assert entries["auto.create.topics.enable"].config_type == 1
    assert not entries["max.connections"].read_only
    assert entries["log.cleaner.backoff.ms"].value == "15000"
    for name in ("listeners", "advertised.listeners"):
        entry = entries[name]
        assert entry.value == f"PLAINTEXT://{broker.bootstrap_servers}"
        assert (entry.config_source, entry.read_only, entry.config_type) == (4, True, 7)


def test_describe_configs_empty_list_of_keys_means_all(raw):
    """As in Kafka."""
    assert len(describe(raw, keys=[]).configs) == len(describe(raw).configs)


def test_describe_configs_unknown_resource_is_refused(raw):
    assert describe(raw, "nothing").error_code == 3
    assert describe(raw, "2", BROKER).error_code == 42
    assert describe(raw, "x", BROKER).error_code == 42
    assert describe(raw, "", GROUP).error_code == 42
    assert describe(raw, "t", 8).error_code == 42
    assert describe(raw, "x" * 32_000).error_code == 3  # its error message fits into the response


def test_describe_configs_duplicate_resource_once(raw):
    """Otherwise a small request could produce a response of megabytes."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t")
    request = DescribeConfigsRequest(resources=[resource] * 3000, include_documentation=True)
    assert len(raw.request(DESCRIBE_CONFIGS, request).results) == 1


def test_describe_configs_long_list_does_not_block_event_loop():
    """Groups need not exist, so a request of a few KB can name hundreds."""
    groups = [
        DescribeConfigsResource(resource_type=GROUP, resource_name=f"g{n}") for n in range(300)
    ]
    responses, threads = [], []

    def encode(version: int, response: DescribeConfigsResponse) -> list[bytes]:
        threads.append(threading.current_thread())
        return DESCRIBE_CONFIGS.encode_response(version, response)

    inbound = SimpleNamespace(
        message=DescribeConfigsRequest(resources=groups),
        api=SimpleNamespace(encode_response=encode),
        version=4,
        respond_encoded=responses.append,
    )
    dynamic_configs = DynamicConfigs(BrokerSettings(), lambda settings: None)
    describer = ConfigDescriber(None, dynamic_configs, None, ("localhost", 9092))

    async def count_turns() -> int:
        describing = asyncio.create_task(describer.handle(inbound))
        turns = 0
        while not describing.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(count_turns()) > 10
    (body,) = responses[0]
    assert len(DESCRIBE_CONFIGS.decode_response(4, body, 0).results) == 300
    assert threads != [threading.current_thread()]


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
    assert alter(raw, (APPEND, "no.such", "1")) == ErrorCode.INVALID_CONFIG


@pytest.mark.partage_broker({"log.retention.check.interval.ms": "10"})
def test_subtract_last_cleanup_policy_keeps_all_records(raw):
    """KIP-1161: a topic without cleanup policy is neither compacted nor shortened."""
    assert alter(raw, (SUBTRACT, "cleanup.policy", "delete"), (SET, "retention.ms", "1")) == 0
    entry = config(raw, "cleanup.policy")
    assert (entry.value, entry.config_source) == ("", 1)
    produce(raw, "t", batch(b"old"))
    create(raw, "shortened", retention_ms="1")
    produce(raw, "shortened", batch(b"old"))
    eventually(lambda: offset_range(raw, "shortened") == (1, 1))
    assert offset_range(raw, "t") == (0, 1)
    assert alter(raw, (APPEND, "cleanup.policy", "delete")) == 0
    eventually(lambda: offset_range(raw, "t") == (1, 1))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ((SET, "no.such", "1"), 40),
        ((SET, "retention.ms", "x"), 40),
        ((SET, "retention.ms", None), 42),
        ((9, "retention.ms", "1"), 42),
        ((SET, "segment.ms", "1"), 42),  # the same config twice
        ((SET, "cleanup.policy", ",compact"), 40),
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
    assert alter(raw, (SET, "retention.ms", "5"), name="") == 42
    assert alter(raw, (SET, "retention.ms", "5"), name="a b") == 17
    for kind in (0, 1, 3, 8, 16, 64):
        assert alter(raw, (SET, "retention.ms", "5"), kind=kind) == 42


def test_alter_configs_duplicate_resource_is_refused(raw):
    change = AlterableConfig(name="retention.ms", config_operation=SET, value="5")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource] * 2, validate_only=False)
    results = raw.request(INCREMENTAL_ALTER_CONFIGS, request).responses
    assert [result.error_code for result in results] == [42, 42]
    assert config(raw, "retention.ms").value == "1000"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_replace_configs_deletes_other_configs(raw, version):
    assert replace(raw, segment_ms="5000", version=version) == 0
    assert config(raw, "segment.ms").value == "5000"
    assert config(raw, "retention.ms").config_source == 5
    assert replace(raw, version=version) == 0
    assert config(raw, "segment.ms").config_source == 5


def test_replace_configs_invalid_request_changes_nothing(raw):
    assert replace(raw, no_such="1") == 40
    assert replace(raw, segment_ms="x") == 40
    assert replace(raw, segment_ms=None) == 42
    assert replace(raw, "nothing", segment_ms="1") == 3
    assert replace(raw, segment_ms="1", validate_only=True) == 0
    assert config(raw, "retention.ms").value == "1000"
    assert config(raw, "segment.ms").config_source == 5
