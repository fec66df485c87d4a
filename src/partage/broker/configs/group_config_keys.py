"""Group config keys: names, types, limits and defaults of Kafka 4.

The configs of consumer groups are for the KIP-848 protocol. Those of share groups and streams
groups are stored only, because this broker has no such groups.
"""

from __future__ import annotations

import re
from typing import Any, Final

from partage.log.catalogue.config_keys import (
    ConfigKey,
    ConfigType,
    anything,
    at_least,
    between,
    one_of,
    without_effect,
)

_DURATION: Final = re.compile(
    r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.IGNORECASE
)
_B, _S, _I, _A = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LIST
_NO_CONSUMER_PROTOCOL: Final = "the broker does not serve the KIP-848 protocol yet"
_NO_SHARE_GROUPS: Final = "the broker has no share groups"
_NO_STREAMS_GROUPS: Final = "the broker has no streams groups"


def _check_reset(value: str) -> str | None:
    if value in ("earliest", "latest") or _DURATION.fullmatch(value):
        return None
    return "must be earliest, latest or by_duration:PnDTnHnMn.nS"


def _consumer(name: str, default: str, low: int, high: int) -> ConfigKey:
    """Return a config of consumer groups, whose broker default has the prefix ``group.``."""
    check = between(low, high)
    return without_effect(name, _I, default, f"group.{name}", _NO_CONSUMER_PROTOCOL, check)


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


_KEYS: Final = [
    _consumer("consumer.session.timeout.ms", "45000", 45_000, 60_000),
    _consumer("consumer.heartbeat.interval.ms", "5000", 5_000, 15_000),
    _consumer("consumer.assignment.interval.ms", "1000", 0, 15_000),
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

GROUP_CONFIG_KEYS: Final = {key.name: key for key in sorted(_KEYS, key=lambda key: key.name)}
