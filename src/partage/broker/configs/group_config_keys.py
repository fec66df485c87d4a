"""Group config keys: names, types, limits and defaults of Kafka 4.

The configs of consumer groups are for the KIP-848 protocol; their limits are settings of the
broker. Apache Kafka has all of them except ``consumer.assignor.name``. Those of share groups and
streams groups are stored only, because this broker has no such groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from partage.coordinator.consumer_group.events import GroupConfig
from partage.log.catalogue.config_keys import (
    ConfigKey,
    ConfigType,
    anything,
    at_least,
    between,
    one_of,
    without_effect,
)
from partage.model.settings import ConsumerGroupSettings

_DURATION: Final = re.compile(
    r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.IGNORECASE
)
_B, _S, _I, _A = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LIST
_NO_SHARE_GROUPS: Final = "the broker has no share groups"
_NO_STREAMS_GROUPS: Final = "the broker has no streams groups"
_SIZE_DECIDES: Final = "assignors of users and of large groups always run in threads"


def _check_reset(value: str) -> str | None:
    if value in ("earliest", "latest") or _DURATION.fullmatch(value):
        return None
    return "must be earliest, latest or by_duration:PnDTnHnMn.nS"


def _consumer(name: str, default: str, doc: str, low: int, high: int) -> ConfigKey:
    """Return a config of consumer groups, whose broker default has the prefix ``group.``."""
    return ConfigKey(name, _I, default, f"group.{name}", doc, between(low, high))


def _share(
    name: str, type_: ConfigType, default: str, check: Any, server_name: str = ""
) -> ConfigKey:
    return without_effect(name, type_, default, server_name, _NO_SHARE_GROUPS, check)


def _streams(name: str, type_: ConfigType, default: str, check: Any, server_name: str) -> ConfigKey:
    return without_effect(name, type_, default, server_name, _NO_STREAMS_GROUPS, check)


def _share_number(name: str, default: str, low: int, high: int) -> ConfigKey:
    return _share(name, _I, default, between(low, high), f"group.{name}")


def _streams_number(name: str, default: str, low: int, high: int) -> ConfigKey:
    return _streams(name, _I, default, between(low, high), f"group.{name}")


def _offload(group_type: str, why: str) -> ConfigKey:
    """Return the config of Apache Kafka 4.4 that moves assignors to another thread."""
    name = f"{group_type}.assignor.offload.enable"
    key = without_effect(name, _B, "true", f"group.{name}", why)
    return msgspec.structs.replace(key, is_internal=True)


_KEYS: Final = [
    _offload("consumer", _SIZE_DECIDES),
    _offload("share", _NO_SHARE_GROUPS),
    _offload("streams", _NO_STREAMS_GROUPS),
    _share_number("share.session.timeout.ms", "45000", 45_000, 60_000),
    _share_number("share.heartbeat.interval.ms", "5000", 5_000, 15_000),
    _share_number("share.assignment.interval.ms", "1000", 0, 15_000),
    _share_number("share.record.lock.duration.ms", "30000", 15_000, 60_000),
    _share_number("share.delivery.count.limit", "5", 2, 10),
    _share_number("share.partition.max.record.locks", "2000", 100, 4_000),
    _share("share.auto.offset.reset", _S, "latest", _check_reset),
    _share("share.isolation.level", _S, "read_uncommitted",
           one_of("read_committed", "read_uncommitted")),
    _share("share.renew.acknowledge.enable", _B, "true", anything),
    _share("errors.deadletterqueue.copy.record.enable", _B, "false", anything),
    _share("errors.deadletterqueue.topic.name", _S, "", anything),
    _streams_number("streams.session.timeout.ms", "45000", 45_000, 60_000),
    _streams_number("streams.heartbeat.interval.ms", "5000", 5_000, 15_000),
    _streams_number("streams.assignment.interval.ms", "1000", 0, 15_000),
    _streams_number("streams.num.standby.replicas", "0", 0, 2),
    _streams("streams.initial.rebalance.delay.ms", _I, "3000", at_least(0),
             "group.streams.initial.rebalance.delay.ms"),
    _streams("streams.assignor.name", _S, "sticky", one_of("sticky"), "group.streams.assignors"),
    _streams("streams.rack.aware.assignment.tags", _A, "", anything,
             "group.streams.rack.aware.assignment.tags"),
]  # fmt: skip

_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
_ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
_ASSIGNOR: Final = "consumer.assignor.name"
#: The configs of consumer groups that are numbers, with the fields of `GroupConfig`.
_FIELDS: Final = {
    _SESSION_TIMEOUT: "session_timeout_ms",
    _HEARTBEAT_INTERVAL: "heartbeat_interval_ms",
    _ASSIGNMENT_INTERVAL: "assignment_interval_ms",
}
_DOCS: Final = {
    _SESSION_TIMEOUT: "A member that sends no heartbeat for this time is removed, in ms.",
    _HEARTBEAT_INTERVAL: "The interval at which members send heartbeats, in ms.",
    _ASSIGNMENT_INTERVAL: "The least time between two target assignments of the group, in ms.",
}


def _limits(settings: ConsumerGroupSettings) -> dict[str, tuple[int, int]]:
    return {
        _SESSION_TIMEOUT: (settings.session_timeout_min_ms, settings.session_timeout_max_ms),
        _HEARTBEAT_INTERVAL: (
            settings.heartbeat_interval_min_ms,
            settings.heartbeat_interval_max_ms,
        ),
        _ASSIGNMENT_INTERVAL: (
            settings.assignment_interval_min_ms,
            settings.assignment_interval_max_ms,
        ),
    }


def _one_of_assignors(names: Sequence[str]) -> Callable[[str], str | None]:
    fault = f"must be {' or '.join(names)}, or empty"
    return lambda value: None if not value or value in names else fault


def _assignor(names: Sequence[str]) -> ConfigKey:
    """Return the config with the assignor of a group.

    It is described only for groups with a value of it: Apache Kafka has no such config.
    """
    doc = (
        "The assignor of the group, one of group.consumer.assignors. Empty: the one that most "
        "members select with group.remote.assignor."
    )
    return ConfigKey(_ASSIGNOR, _S, "", "", doc, _one_of_assignors(names), is_internal=True)


def group_config_keys(
    settings: ConsumerGroupSettings, assignors: Sequence[str] | None = None
) -> dict[str, ConfigKey]:
    """Return the keys by name, with the limits of a broker's settings.

    Args:
        settings: The settings of the broker.
        assignors: The names of its assignors; those of the settings by default.
    """
    defaults = ConsumerGroupSettings()
    keys = [
        _consumer(name, str(getattr(defaults, _FIELDS[name])), _DOCS[name], *limits)
        for name, limits in _limits(settings).items()
    ]
    keys.append(_assignor(settings.assignors if assignors is None else assignors))
    return {key.name: key for key in sorted([*keys, *_KEYS], key=lambda key: key.name)}


GROUP_CONFIG_KEYS: Final = group_config_keys(ConsumerGroupSettings())


def consumer_group_defaults(settings: ConsumerGroupSettings) -> dict[str, str]:
    """Return the values of a broker's settings that differ from Kafka's, by the group config."""
    defaults = ConsumerGroupSettings()
    return {
        name: str(getattr(settings, field))
        for name, field in _FIELDS.items()
        if getattr(settings, field) != getattr(defaults, field)
    }


def altered_group_defaults(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults of groups in the altered configs of a broker, by the group config."""
    prefixed = {f"group.{name}": name for name in _FIELDS}
    return {prefixed[name]: value for name, value in configs.items() if name in prefixed}


def parse_group_config(
    configs: Mapping[str, str], settings: ConsumerGroupSettings
) -> GroupConfig | None:
    """Return the configs that groups with the consumer protocol use; None without any.

    A value that was altered before the broker got its present limits is moved into them, as Kafka
    does. An assignor that the broker no longer has is kept: the coordinator ignores it.
    """
    values: dict[str, Any] = {}
    for name, (low, high) in _limits(settings).items():
        if name in configs:
            values[_FIELDS[name]] = min(max(int(configs[name]), low), high)
    if assignor := configs.get(_ASSIGNOR, "").strip():
        values["assignor"] = assignor
    return GroupConfig(**values) if values else None


def check_together(configs: Mapping[str, str], settings: ConsumerGroupSettings) -> str | None:
    """Return the reason if valid configs do not fit together, as in Kafka; None if they do."""
    session = int(configs.get(_SESSION_TIMEOUT, settings.session_timeout_ms))
    heartbeat = int(configs.get(_HEARTBEAT_INTERVAL, settings.heartbeat_interval_ms))
    if session > heartbeat:
        return None
    return (
        f"{_SESSION_TIMEOUT} ({session}) must be greater than {_HEARTBEAT_INTERVAL} ({heartbeat})"
    )
