"""Broker settings by Kafka's names, as in ``--override NAME=VALUE``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from partage.log.catalogue.config_keys import CONFIG_KEYS, ConfigType, parse_value
from partage.model.arguments import INT32_MAX
from partage.model.settings import (
    KAFKA_NAMES,
    KAFKA_NAMES_SCALED,
    RANGES,
    BrokerSettings,
)

Settings = TypeVar("Settings", bound=msgspec.Struct)

#: Names of broker defaults for topic configs, such as ``log.retention.ms``, to topic config names.
_TOPIC_DEFAULTS: Final = {
    key.server_name: name for name, key in CONFIG_KEYS.items() if key.server_name
}
_INT32: Final = (0, INT32_MAX)
#: Settings that change while the broker runs, if IncrementalAlterConfigs changes them. In Kafka
#: they are dynamic, too.
DYNAMIC_SETTINGS: Final = frozenset(
    {
        *_TOPIC_DEFAULTS,
        "group.consumer.assignment.interval.ms",
        "log.cleaner.backoff.ms",
        "max.connections",
    }
)
#: Settings of which none may be greater than the next one.
_ASCENDING: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
)


class OverrideError(ValueError):
    """Raised if a setting is unknown, or its value is invalid."""


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Return NAME=VALUE texts as a dictionary. If a name is repeated, the last value wins.

    Raises:
        OverrideError: A text has no ``=`` or no name.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OverrideError(f"--override requires NAME=VALUE, not {text!r}")
        found[name.strip()] = value
    return found


def apply_overrides(settings: BrokerSettings, overrides: Mapping[str, str]) -> BrokerSettings:
    """Return the settings with some of them changed.

    Raises:
        OverrideError: a setting is unknown (the message suggests a similar name), or a value is
            invalid.
    """
    for name, text in overrides.items():
        settings = _with(settings, name, text)
    for names in _ASCENDING:
        _check_ascending(settings, names)
    _check_protocols(settings.groups.rebalance_protocols)
    if not settings.limits.send_buffer_bytes:
        raise OverrideError(
            "socket.send.buffer.bytes must be at least 1, or -1 to let the system choose the size"
        )
    consumer = settings.groups.consumer
    if consumer.heartbeat_interval_ms >= consumer.session_timeout_ms:
        raise OverrideError(
            "group.consumer.heartbeat.interval.ms must be less than "
            f"group.consumer.session.timeout.ms, which is {consumer.session_timeout_ms}"
        )
    return settings


def _check_ascending(settings: BrokerSettings, names: tuple[str, ...]) -> None:
    values = [int(_field(settings, *KAFKA_NAMES[name])) for name in names]
    for index in range(1, len(names)):
        if values[index - 1] > values[index]:
            raise OverrideError(
                f"{names[index - 1]} is {values[index - 1]}, but {names[index]} is only "
                f"{values[index]}"
            )


def _check_protocols(protocols: tuple[str, ...]) -> None:
    name, known = "group.coordinator.rebalance.protocols", BrokerSettings().groups
    for protocol in protocols:
        if protocol not in known.rebalance_protocols:
            allowed = ", ".join(known.rebalance_protocols)
            raise OverrideError(f"{name}: {protocol!r} is not supported; supported are {allowed}")
    if "classic" not in protocols:
        raise OverrideError(f"{name} must have classic: it cannot be disabled")


def setting_names() -> list[str]:
    """Return the names of all settings that can be overridden, sorted."""
    return sorted([*KAFKA_NAMES, *KAFKA_NAMES_SCALED, *_TOPIC_DEFAULTS])


def _with(settings: BrokerSettings, name: str, text: str) -> BrokerSettings:
    if name in KAFKA_NAMES:
        part, field = KAFKA_NAMES[name]
        return _replaced(settings, part, field, _value(settings, part, field, name, text))
    if name in KAFKA_NAMES_SCALED:
        part, field, factor = KAFKA_NAMES_SCALED[name]
        value = _value(settings, part, field, name, text)
        return _replaced(settings, part, field, value * factor)
    if name in _TOPIC_DEFAULTS:
        topic_name = _TOPIC_DEFAULTS[name]
        try:
            parse_value(CONFIG_KEYS[topic_name], text)
        except ValueError as error:
            raise OverrideError(f"{name}={text}: {error}") from None
        defaults = {**settings.topic_defaults, topic_name: text}
        return msgspec.structs.replace(settings, topic_defaults=defaults)
    import difflib  # only for a refused setting

    near = difflib.get_close_matches(name, setting_names(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise OverrideError(f"{name} is not a broker setting{hint}")


def _value(settings: BrokerSettings, part: str | None, field: str, name: str, text: str) -> Any:
    current = _field(settings, part, field)
    if isinstance(current, bool):
        if text.lower() not in ("true", "false"):
            raise OverrideError(f"{name}={text}: must be true or false")
        return text.lower() == "true"
    if isinstance(current, int):
        try:
            value = int(text)
        except ValueError:
            raise OverrideError(f"{name}={text}: must be an integer") from None
        least, most = RANGES.get(name, _INT32)
        if not least <= value <= most:
            raise OverrideError(f"{name}={text}: must be between {least} and {most}")
        return value
    if isinstance(current, StrEnum):
        try:
            return type(current)(text.lower())
        except ValueError:
            allowed = ", ".join(type(current))
            raise OverrideError(f"{name}={text}: must be one of {allowed}") from None
    if isinstance(current, tuple):
        items = tuple(item.strip() for item in text.split(",") if item.strip())
        if not items:
            raise OverrideError(f"{name}={text}: must have at least one name")
        return items
    return text


def _replaced(settings: Settings, part: str | None, field: str, value: Any) -> Settings:
    """Return the settings with one field changed; a dot in ``part`` separates a part of a part."""
    if part is None:
        return msgspec.structs.replace(settings, **{field: value})
    outer, _, rest = part.partition(".")
    inner = _replaced(getattr(settings, outer), rest or None, field, value)
    return msgspec.structs.replace(settings, **{outer: inner})


def setting_value(settings: BrokerSettings, name: str) -> str | None:
    """Return the value of a setting as text, as DescribeConfigs shows it; None if it has none."""
    if name in _TOPIC_DEFAULTS:
        topic_name = _TOPIC_DEFAULTS[name]
        return settings.topic_defaults.get(topic_name, CONFIG_KEYS[topic_name].default)
    if name in KAFKA_NAMES_SCALED:
        scaled_part, field, factor = KAFKA_NAMES_SCALED[name]
        return str(getattr(getattr(settings, scaled_part), field) // factor)
    value = _field(settings, *KAFKA_NAMES[name])
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


def setting_type(name: str) -> ConfigType:
    """Return the type of a setting, as DescribeConfigs shows it."""
    if name in _TOPIC_DEFAULTS:
        return CONFIG_KEYS[_TOPIC_DEFAULTS[name]].type
    if name in KAFKA_NAMES_SCALED:
        return ConfigType.INT
    value = _field(BrokerSettings(), *KAFKA_NAMES[name])
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, int):
        return ConfigType.INT if RANGES.get(name, _INT32)[1] <= INT32_MAX else ConfigType.LONG
    return ConfigType.LIST if isinstance(value, tuple) else ConfigType.STRING


def list_setting_default(name: str) -> str | None:
    """Return the default of a setting that is a list; None if there is no such setting."""
    key = CONFIG_KEYS.get(_TOPIC_DEFAULTS.get(name, ""))
    return key.default if key is not None and key.type is ConfigType.LIST else None


def is_static(settings: BrokerSettings, name: str) -> bool:
    """True if the settings differ from Kafka's default, or name the value of a topic config."""
    if name in _TOPIC_DEFAULTS:
        return _TOPIC_DEFAULTS[name] in settings.topic_defaults
    return setting_value(settings, name) != setting_value(BrokerSettings(), name)


def topic_defaults(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the topic defaults among broker configs, by the name of the topic config."""
    return {
        _TOPIC_DEFAULTS[name]: value for name, value in configs.items() if name in _TOPIC_DEFAULTS
    }


def _field(settings: BrokerSettings, part: str | None, field: str) -> Any:
    return attrgetter(field if part is None else f"{part}.{field}")(settings)
