"""Topic configs."""

from __future__ import annotations

import pytest

from partage.log.catalogue.config_keys import CONFIG_KEYS, ConfigType, parse_value
from partage.log.catalogue.topic_config import (
    ConfigLayer,
    ConfigSource,
    LogConfig,
    check_configs,
    describe_configs,
)
from partage.model.errors import ErrorCode


def test_every_default_is_valid() -> None:
    for key in CONFIG_KEYS.values():
        parse_value(key, key.default)
    assert check_configs({name: key.default for name, key in CONFIG_KEYS.items()}) is None
    assert list(CONFIG_KEYS) == sorted(CONFIG_KEYS)


def test_config_without_effect_is_documented() -> None:
    for key in CONFIG_KEYS.values():
        assert key.has_effect != key.doc.startswith("No effect")


def test_every_config_with_effect_is_in_log_config() -> None:
    obeyed = {name.replace("_", ".") for name in LogConfig.__struct_fields__}
    named = {key.name for key in CONFIG_KEYS.values() if key.has_effect}
    assert named - obeyed == {
        "cleanup.policy",
        "message.timestamp.type",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact, delete"),
        ("compression.type", "producer"),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("retention.bytes", "-1"),
        ("retention.ms", "-1"),
        ("segment.bytes", "14"),
        ("unclean.leader.election.enable", "TRUE"),
    ],
)
def test_valid_value_is_accepted(name: str, value: str) -> None:
    assert check_configs({name: value}) is None
    LogConfig.from_configs({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "keep"),
        ("cleanup.policy", ",compact"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("max.message.bytes", "2147483648"),
        ("max.message.bytes", "1e6"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("remote.storage.enable", "true"),
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "9" * 9999),
        ("segment.bytes", "13"),
        ("segment.bytes", "²"),
        ("segment.bytes", None),
        ("no.such.config", "1"),
    ],
)
def test_invalid_value_is_refused_with_reason(name: str, value: str | None) -> None:
    refusal = check_configs({name: value})
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_CONFIG
    assert name in refusal.message
    assert len(refusal.message) < 200


@pytest.mark.parametrize(
    ("name", "hint"), [("cleanup.polic", "; did you mean 'cleanup.policy'?"), ("colour", "")]
)
def test_unknown_name_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    refusal = check_configs({name: "compact"})
    assert refusal is not None
    assert refusal.message == f"unknown topic config '{name}'{hint}"


def test_conflicting_values_are_refused() -> None:
    refusal = check_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})
    assert refusal is not None
    assert "exceeds" in refusal.message


def test_topic_value_overrides_broker_value() -> None:
    config = LogConfig.from_configs(
        {"retention.ms": "1"}, {"retention.ms": "2", "retention.bytes": "3"}
    )
    assert (config.retention_ms, config.retention_bytes) == (1, 3)
    described = {
        entry.name: entry
        for entry in describe_configs(
            ConfigLayer(ConfigSource.DYNAMIC_TOPIC_CONFIG, {"retention.ms": "1"}),
            [
                ConfigLayer(
                    ConfigSource.STATIC_BROKER_CONFIG,
                    {"retention.ms": "2", "retention.bytes": "3"},
                )
            ],
        )
    }
    assert list(described) == list(CONFIG_KEYS)
    assert described["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert described["retention.ms"].value == "1"
    assert described["retention.bytes"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert described["segment.ms"].source is ConfigSource.DEFAULT_CONFIG
    assert described["segment.ms"].type is ConfigType.LONG
    assert described["segment.ms"].synonyms[0].name == "log.roll.ms"
    assert [(one.name, one.value) for one in described["retention.ms"].synonyms] == [
        ("retention.ms", "1"),
        ("log.retention.ms", "2"),
        ("log.retention.ms", "604800000"),
    ]


def test_compacted_topic_rolls_segments_before_max_lag() -> None:
    configs = {"max.compaction.lag.ms": "5000", "segment.ms": "9000"}
    assert LogConfig.from_configs(configs).roll_ms == 9000
    assert LogConfig.from_configs({**configs, "cleanup.policy": "compact"}).roll_ms == 5000


def test_log_config_is_parsed_once_for_topics_with_same_configs() -> None:
    """A changed broker config applies to 10,000 topics in one turn of the event loop."""
    first = LogConfig.from_configs({"retention.ms": "7"}, {"segment.ms": "8", "retention.ms": "9"})
    assert (first.retention_ms, first.segment_ms) == (7, 8)
    assert LogConfig.from_configs({"retention.ms": "7", "segment.ms": "8"}) is first
    assert LogConfig.from_configs({"retention.ms": "9", "segment.ms": "8"}) is not first
