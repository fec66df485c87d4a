"""Topic configs: validated values for a partition's log, and descriptions for DescribeConfigs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from partage.log.catalogue.config_keys import CONFIG_KEYS, ConfigKey, ConfigType, parse_value
from partage.log.results import Refusal
from partage.model.errors import ErrorCode

#: The default of ``max.compaction.lag.ms``, which means that there is no limit.
NO_LAG_MAX_MS: Final = 2**63 - 1
_NONE: Final[Mapping[str, str]] = {}
_SHOWN_MAX: Final = 100  # characters of a client's text that an error message repeats


class ConfigSource(IntEnum):
    """The source of a value, as DescribeConfigs numbers it."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class ConfigLayer(NamedTuple):
    """Values from one source, by the name of the config in `CONFIG_KEYS` or a similar table."""

    source: ConfigSource
    values: Mapping[str, str]


class ConfigSynonym(NamedTuple):
    """A value that a config has, or would have if stronger sources had none."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One config in a DescribeConfigs response; ``synonyms`` are in order, the value's first."""

    name: str
    type: ConfigType
    synonyms: Sequence[ConfigSynonym]
    doc: str
    is_read_only: bool = False

    @property
    def value(self) -> str | None:
        """The value in effect."""
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        """The source of the value in effect."""
        return self.synonyms[0].source


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configs that control a partition's log. For retention, -1 means "no limit"."""

    compacts: bool
    deletes: bool
    compression_type: str
    compression_gzip_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    uses_log_append_time: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_ms: int

    @classmethod
    def from_configs(
        cls, configs: Mapping[str, str] = _NONE, defaults: Mapping[str, str] = _NONE
    ) -> LogConfig:
        """Build it from a topic's configs, with the broker's and then Kafka's defaults.

        All values must have been validated before. Topics with the same configs share the result.
        """
        return _parse_log_config(frozenset({**defaults, **configs}.items()))

    @property
    def roll_ms(self) -> int:
        """Age at which a segment is rolled. Only closed segments can be compacted."""
        lag_ms = self.max_compaction_lag_ms if self.compacts else self.segment_ms
        return min(self.segment_ms, lag_ms)


_DERIVED: Final = {"compacts", "deletes", "uses_log_append_time"}
_PLAIN: Final = [name for name in LogConfig.__struct_fields__ if name not in _DERIVED]


@lru_cache(256)  # most topics have the same configs, and a broker may have 10,000 topics
def _parse_log_config(configs: frozenset[tuple[str, str]]) -> LogConfig:
    texts = dict(configs)
    values = {
        name: parse_value(key, texts.get(name, key.default)) for name, key in CONFIG_KEYS.items()
    }
    policy = values["cleanup.policy"]
    plain = {name: values[name.replace("_", ".")] for name in _PLAIN}
    return LogConfig(
        compacts="compact" in policy,
        deletes="delete" in policy,
        uses_log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        **plain,
    )


def check_configs(
    configs: Mapping[str, str | None],
    keys: Mapping[str, ConfigKey] = CONFIG_KEYS,
    kind: str = "topic",
) -> Refusal | None:
    """Return what is wrong with the own configs of a topic, or of another ``kind`` of resource.

    Returns:
        A refusal with INVALID_CONFIG; None if the configs are valid.
    """
    values: dict[str, Any] = {}
    for name, text in configs.items():
        key = keys.get(name)
        if key is None:
            shown = name[:_SHOWN_MAX]
            import difflib  # only for a refused config

            near = difflib.get_close_matches(shown, keys, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            return _invalid(f"unknown {kind} config '{shown}'{hint}")
        if text is None:
            return _invalid(f"{name}: the value must not be null")
        try:
            values[name] = parse_value(key, text)
        except ValueError as error:
            return _invalid(f"{name}={text[:_SHOWN_MAX]}: {error}")
    return _check_together(values)


def describe_configs(
    own: ConfigLayer,
    broker_layers: Sequence[ConfigLayer] = (),
    keys: Mapping[str, ConfigKey] = CONFIG_KEYS,
) -> list[ConfigEntry]:
    """Describe every config of a topic or group, with the source of its value.

    An internal config is described only if the topic or group has a value of it.

    Args:
        own: the configs of the topic or group itself.
        broker_layers: the defaults of the broker, strongest first.
        keys: all configs of this kind of resource.
    """
    return [
        ConfigEntry(
            name=key.name, type=key.type, synonyms=_synonyms(key, own, broker_layers), doc=key.doc
        )
        for key in keys.values()
        if not key.is_internal or key.name in own.values
    ]


def _synonyms(
    key: ConfigKey, own: ConfigLayer, broker_layers: Sequence[ConfigLayer]
) -> list[ConfigSynonym]:
    server_name = key.server_name or key.name
    found = [
        ConfigSynonym(name, layer.values[key.name], layer.source)
        for name, layer in ((key.name, own), *((server_name, layer) for layer in broker_layers))
        if key.name in layer.values
    ]
    return [*found, ConfigSynonym(server_name, key.default, ConfigSource.DEFAULT_CONFIG)]


def _check_together(values: Mapping[str, Any]) -> Refusal | None:
    low, high = (
        values.get(name, parse_value(CONFIG_KEYS[name], CONFIG_KEYS[name].default))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if low > high:
        return _invalid(f"min.compaction.lag.ms ({low}) exceeds max.compaction.lag.ms ({high})")
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_CONFIG, message)
