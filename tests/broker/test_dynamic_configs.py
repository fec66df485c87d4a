"""Altered configs of brokers and groups: their levels, their effect and their limits."""

from __future__ import annotations

import time

import pytest

from partage.broker.configs import config_store
from partage.broker.configs.dynamic_configs import DynamicConfigs
from partage.broker.configs.group_config_keys import GROUP_CONFIG_KEYS
from partage.broker.overrides import DYNAMIC_SETTINGS, setting_names
from partage.coordinator.consumer_group.events import GroupConfig
from partage.log.io import replace_file
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.store.zk_schema import ConfigsDoc
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
from partage.wire.records.encoder import SimpleRecord, encode_batch
from polled_conditions import eventually

from .config_requests import BROKER, GROUP, alter, alter_result, config, describe, replace
from .raw_client import RawClient
from .requests import NOW_MS, batch, create, fetch, produce, values


def alter_broker(raw, *changes, name="1", **options):
    return alter(raw, *changes, name=name, kind=BROKER, **options)


def alter_group(raw, *changes, name="g", **options):
    return alter(raw, *changes, name=name, kind=GROUP, **options)


def broker_config(raw, key, **options):
    return config(raw, key, name="1", kind=BROKER, **options)


@pytest.mark.partage_broker({"log.retention.ms": "4000"})
def test_broker_config_levels_override_each_other(raw):
    create(raw, "t")
    key = "log.retention.ms"
    expected = [("4000", 4), ("604800000", 5)]
    for level, (name, value) in ((3, ("", "3000")), (2, ("1", "2000"))):
        assert alter_broker(raw, (SET, key, value), name=name) == 0
        expected.insert(0, (value, level))
        entry = broker_config(raw, key, include_synonyms=True)
        assert (entry.value, entry.config_source) == (value, level)
        assert [(s.value, s.source) for s in entry.synonyms] == expected
        topic = config(raw, "retention.ms", include_synonyms=True)
        assert (topic.value, topic.config_source) == (value, level)
        assert [(s.name, s.value, s.source) for s in topic.synonyms] == [
            (key, *each) for each in expected
        ]
    for name, value in (("1", "3000"), ("", "4000")):
        assert alter_broker(raw, (DELETE, key, None), name=name) == 0
        assert config(raw, "retention.ms").value == value


def test_broker_defaults_are_described_without_name(raw):
    assert describe(raw, "", BROKER).configs == []
    alter_broker(raw, (SET, "log.retention.ms", "3000"), name="")
    alter_broker(raw, (SET, "log.segment.bytes", "2000"))
    (entry,) = describe(raw, "", BROKER).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "3000", 3)


def test_broker_config_changes_open_and_new_topics(raw):
    create(raw, "old")
    assert alter_broker(raw, (SET, "message.max.bytes", "100")) == 0
    create(raw, "new")
    create(raw, "own", max_message_bytes="1000")
    large = batch(b"x" * 200)
    for topic in ("old", "new"):
        assert produce(raw, topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(raw, "own", large).error_code == 0
    assert alter_broker(raw, (DELETE, "message.max.bytes", None)) == 0
    for topic in ("old", "new"):
        assert produce(raw, topic, large).error_code == 0


def test_cleaner_backoff_change_takes_effect_now(raw):
    """The cleaner would pause for 15 s."""
    create(raw, "t", cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0")
    for n in range(4):
        records = [SimpleRecord(b"key", b"%d" % n, timestamp_ms=NOW_MS + 10 * n)]
        produce(raw, "t", encode_batch(records))
    assert alter_broker(raw, (SET, "log.cleaner.backoff.ms", "10"), name="") == 0
    eventually(lambda: values(*fetch(raw, "t")) == [b"2", b"3"])


def test_max_connections_change_keeps_open_connections(broker, raw):
    with RawClient(broker.bootstrap_servers) as other:
        assert alter_broker(raw, (SET, "max.connections", "1")) == 0
        with RawClient(broker.bootstrap_servers) as third:
            assert third.is_closed()
        assert describe(other, "1", BROKER).error_code == 0
    assert alter_broker(raw, (DELETE, "max.connections", None)) == 0
    with RawClient(broker.bootstrap_servers) as third:
        assert describe(third, "1", BROKER).error_code == 0


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ((SET, "no.such", "1"), 42),
        ((SET, "message.max.bytes", "x"), 42),
        ((SET, "message.max.bytes", "-5"), 42),
        ((SET, "max.connections", "x"), 42),
        ((SET, "max.connections", "0"), 42),
        ((SET, "message.max.bytes", None), 42),
        ((APPEND, "log.retention.ms", "1"), 40),
        ((APPEND, "no.such", "1"), 40),
        ((SET, "advertised.listeners", "PLAINTEXT://127.0.0.1:9"), 42),
        ((SET, "listeners", "PLAINTEXT://127.0.0.1:9"), 42),
    ],
)
def test_invalid_broker_config_is_refused(raw, name, change, error):
    assert alter_broker(raw, (SET, "log.segment.bytes", "2000"), change, name=name) == error
    assert broker_config(raw, "log.segment.bytes").config_source == 5


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("log.retention.m", "unknown broker config 'log.retention.m'; did you mean 'log.retention"),
        ("foo", "unknown broker config 'foo'"),
        ("broker.rack", "cannot update these configs dynamically: broker.rack; set them when"),
        ("listeners", "cannot update these configs dynamically: listeners; set them when"),
    ],
)
def test_refused_broker_config_has_reason(raw, name, reason):
    result = alter_result(raw, (SET, name, "5"), name="1", kind=BROKER)
    assert result.error_code == 42
    assert result.error_message.startswith(reason)


def test_static_broker_configs_are_refused(raw):
    for name in set(setting_names()) - DYNAMIC_SETTINGS:
        assert alter_broker(raw, (SET, name, "1"), validate_only=True) == 42
        assert broker_config(raw, name).read_only
    for name in DYNAMIC_SETTINGS:
        entry = broker_config(raw, name)
        assert not entry.read_only
        assert alter_broker(raw, (SET, name, entry.value), validate_only=True) == 0


def test_other_broker_is_refused(raw):
    for name in ("2", "-1", "x", "01"):
        assert alter_broker(raw, (SET, "log.retention.ms", "5"), name=name) == 42


def test_broker_list_config_is_appended_to_its_default(raw):
    create(raw, "t")
    assert alter_broker(raw, (APPEND, "log.cleanup.policy", "compact")) == 0
    assert config(raw, "cleanup.policy").value == "delete,compact"
    assert alter_broker(raw, (SUBTRACT, "log.cleanup.policy", "delete")) == 0
    assert config(raw, "cleanup.policy").value == "compact"


def test_long_list_configs_are_edited_in_linear_time(raw):
    """Comparing each part with each other part would block the broker for several seconds."""
    key = "streams.rack.aware.assignment.tags"
    for start in range(0, 40_000, 5_000):
        parts = ",".join(f"{n:x}" for n in range(start, start + 5_000))
        assert alter_group(raw, (APPEND, key, parts)) == 0
    began = time.monotonic()
    for operation in (SUBTRACT, APPEND):
        assert alter_group(raw, (operation, key, ",".join(["z"] * 16_000))) == 0
    assert time.monotonic() - began < 3


def test_replaced_broker_configs_delete_others(raw):
    assert alter_broker(raw, (SET, "log.retention.ms", "5")) == 0
    assert replace(raw, "1", BROKER, log_segment_bytes="2000") == 0
    assert broker_config(raw, "log.retention.ms").config_source == 5
    assert broker_config(raw, "log.segment.bytes").value == "2000"
    assert replace(raw, "1", BROKER, num_partitions="5") == 42


def test_validate_only_changes_no_broker_config(raw):
    assert alter_broker(raw, (SET, "log.retention.ms", "5"), validate_only=True) == 0
    assert broker_config(raw, "log.retention.ms").config_source == 5


#: The defaults of Kafka; those of the fixture are shorter.
DEFAULTS = pytest.mark.partage_broker(
    {
        "group.consumer.assignment.interval.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 5_000,
        "group.consumer.min.heartbeat.interval.ms": 5_000,
        "group.consumer.min.session.timeout.ms": 45_000,
        "group.consumer.session.timeout.ms": 45_000,
    }
)


@DEFAULTS
def test_group_configs_are_stored_for_groups_without_members(raw):
    entries = {e.name: e for e in describe(raw, "g", GROUP, include_synonyms=True).configs}
    assert len(entries) == 21
    session = entries["consumer.session.timeout.ms"]
    assert (session.value, session.config_source, session.read_only) == ("45000", 5, False)
    assert [(s.name, s.value) for s in session.synonyms] == [
        ("group.consumer.session.timeout.ms", "45000")
    ]
    assert alter_group(raw, (SET, "consumer.session.timeout.ms", "50000")) == 0
    entry = config(raw, "consumer.session.timeout.ms", name="g", kind=GROUP, include_synonyms=True)
    assert (entry.value, entry.config_source) == ("50000", 8)
    assert [s.source for s in entry.synonyms] == [8, 5]
    assert config(raw, "consumer.session.timeout.ms", name="h", kind=GROUP).value == "45000"
    assert replace(raw, "g", GROUP, consumer_heartbeat_interval_ms="6000") == 0
    assert config(raw, "consumer.session.timeout.ms", name="g", kind=GROUP).value == "45000"


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_assignor_offload_is_described_only_where_it_was_altered(raw, kind):
    key = f"{kind}.assignor.offload.enable"
    assert alter_group(raw, (SET, key, "maybe")) == 40
    assert key not in {e.name for e in describe(raw, "g", GROUP).configs}
    assert alter_group(raw, (SET, key, "false")) == 0
    entry = config(raw, key, name="g", kind=GROUP, include_synonyms=True)
    assert (entry.value, [s.source for s in entry.synonyms]) == ("false", [8, 5])
    assert key not in {e.name for e in describe(raw, "h", GROUP).configs}


@DEFAULTS
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ((SET, "no.such", "1"), 40),
        ((SET, "consumer.session.timeout.ms", "x"), 40),
        ((SET, "consumer.session.timeout.ms", "44999"), 40),
        ((SET, "consumer.session.timeout.ms", "60001"), 40),
        ((SET, "consumer.heartbeat.interval.ms", "4999"), 40),
        ((SET, "consumer.heartbeat.interval.ms", "15001"), 40),
        ((SET, "share.auto.offset.reset", "by_duration:1"), 40),
        ((SET, "share.auto.offset.reset", "by_duration:-PT1H"), 40),
        ((SET, "share.auto.offset.reset", "by_duration:PT"), 40),
        ((SET, "consumer.session.timeout.ms", None), 42),
        ((APPEND, "consumer.session.timeout.ms", "50000"), 40),
    ],
)
def test_invalid_group_config_is_refused(raw, change, error):
    assert alter_group(raw, change) == error
    assert {e.config_source for e in describe(raw, "g", GROUP).configs} == {5}


QUICK_GROUPS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.mark.partage_broker(QUICK_GROUPS)
def test_group_configs_have_limits_and_defaults_of_broker(raw):
    key = "consumer.session.timeout.ms"
    entry = config(raw, key, name="g", kind=GROUP, include_synonyms=True)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        (f"group.{key}", "3000", 4),
        (f"group.{key}", "45000", 5),
    ]
    assert alter_group(raw, (SET, key, "999")) == 40
    assert alter_group(raw, (SET, key, "1000")) == 0
    assert config(raw, key, name="g", kind=GROUP).value == "1000"


@pytest.mark.partage_broker(QUICK_GROUPS)
def test_group_session_must_be_longer_than_heartbeat_interval(raw):
    """The other one of the two is the broker's default."""
    interval = "consumer.heartbeat.interval.ms"
    assert alter_group(raw, (SET, interval, "3000")) == 40
    session = (SET, "consumer.session.timeout.ms", "3001")
    assert alter_group(raw, (SET, interval, "3000"), session) == 0


def test_consumer_group_configs_are_reported_when_they_change():
    changes = []
    configs = DynamicConfigs(BrokerSettings(), changes.append, lambda: changes.append("groups"))

    def read(**resources):
        configs.on_read(ConfigsDoc(resources={f"group:{g}": its for g, its in resources.items()}))
        return configs.group_configs()

    own = {"consumer.heartbeat.interval.ms": "6000"}
    assert read(g=own, h={"share.isolation.level": "read_committed"}) == {
        "g": GroupConfig(heartbeat_interval_ms=6_000)
    }
    assert changes == ["groups"]
    assert read(g=own) == {"g": GroupConfig(heartbeat_interval_ms=6_000)}
    assert changes == ["groups"]
    everything = own | {
        "consumer.session.timeout.ms": "1",  # from a broker with other limits
        "consumer.assignment.interval.ms": "0",
    }
    assert read(g=everything) == {
        "g": GroupConfig(
            session_timeout_ms=45_000, heartbeat_interval_ms=6_000, assignment_interval_ms=0
        )
    }
    assert read() == {}
    assert changes == ["groups"] * 3


def test_assignor_of_a_group_is_one_of_the_broker(raw):
    key = "consumer.assignor.name"
    for value in ("range", " uniform ", ""):
        assert alter_group(raw, (SET, key, value)) == 0
    entry = config(raw, key, name="g", kind=GROUP, include_synonyms=True)
    assert (entry.value, [(s.name, s.source) for s in entry.synonyms]) == ("", [(key, 8), (key, 5)])
    refused = alter_result(raw, (SET, key, "rnage"), name="g", kind=GROUP)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_CONFIG,
        f"{key}=rnage: must be uniform or range, or empty",
    )
    # Apache Kafka has no such config: it does not show up in groups without a value
    assert key not in {e.name for e in describe(raw, "h", GROUP).configs}


def test_assignor_of_a_group_that_the_broker_lost_is_kept():
    configs = DynamicConfigs(BrokerSettings(), lambda settings: None, assignors=("uniform",))
    key = "consumer.assignor.name"
    configs.on_read(ConfigsDoc(resources={"group:g": {key: " range "}, "group:h": {key: ""}}))
    assert configs.group_configs() == {"g": GroupConfig(assignor="range")}


@pytest.mark.parametrize("reset", ["earliest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"])
def test_share_group_reset_is_accepted(raw, reset):
    assert alter_group(raw, (SET, "share.auto.offset.reset", reset)) == 0


def test_group_without_name_is_refused(raw):
    assert alter_group(raw, (SET, "consumer.session.timeout.ms", "50000"), name="") == 42
    assert replace(raw, "", GROUP) == 42


def test_too_many_configs_are_refused(raw):
    """They are held in memory, and a file with all of them is rewritten at each change."""
    large = (SET, "errors.deadletterqueue.topic.name", "x" * 32_000)
    for n in range(130):
        assert alter_group(raw, large, name=f"g{n}") == 0
    assert alter_group(raw, large) == ErrorCode.POLICY_VIOLATION
    assert alter_group(raw, (DELETE, "errors.deadletterqueue.topic.name", None), name="g0") == 0
    assert alter_group(raw, large) == 0


def test_group_config_defaults_are_valid(raw):
    for name, key in GROUP_CONFIG_KEYS.items():
        assert alter_group(raw, (SET, name, key.default), validate_only=True) == 0


@DEFAULTS
def test_groups_of_one_request_are_written_at_once(broker, raw, caplog, monkeypatch):
    """A request may name thousands of groups."""
    writes = []

    def write(*arguments):
        writes.append(arguments)
        replace_file(*arguments)

    monkeypatch.setattr(config_store, "replace_file", write)
    names = [f"g{n}" for n in range(1000)]
    key = "consumer.session.timeout.ms"
    values = dict.fromkeys(names, "50000") | {"g7": "x", "": "50000"}
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=GROUP,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=SET, value=value)],
            )
            for name, value in values.items()
        ],
        validate_only=False,
    )
    results = raw.request(INCREMENTAL_ALTER_CONFIGS, request).responses
    failed = {each.resource_name: each.error_code for each in results if each.error_code}
    assert failed == {"g7": ErrorCode.INVALID_CONFIG, "": ErrorCode.INVALID_REQUEST}
    assert len(writes) == 1
    assert config(raw, key, name="g999", kind=GROUP).value == "50000"
    assert config(raw, key, name="g7", kind=GROUP).value == "45000"
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("altered configs")]
    assert len(lines) == 11
    assert lines[-1] == "altered configs of more groups: count=989"


def test_failed_write_refuses_all_groups_of_the_request(raw, monkeypatch):
    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(config_store, "replace_file", fail)
    change = (SET, "consumer.session.timeout.ms", "50000")
    assert alter_group(raw, change) == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert alter_group(raw, change) == 0
