"""Broker settings by Kafka's names, as in ``--override NAME=VALUE``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from partage.log.catalogue.config_keys import CONFIG_KEYS, parse_value
from partage.model.settings import (
    INT32_MAX,
    KAFKA_NAMES,
    KAFKA_NAMES_SCALED,
    RANGES,
    BrokerSettings,
)

#: Names of broker defaults for topic configs, such as ``log.retention.ms``, to topic config names.
_TOPIC_DEFAULTS = {key.server_name: name for name, key in CONFIG_KEYS.items() if key.server_name}


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
    shortest, longest = (
        settings.groups.session_timeout_min_ms,
        settings.groups.session_timeout_max_ms,
    )
    if shortest > longest:
        raise OverrideError(
            f"group.min.session.timeout.ms is {shortest}, but group.max.session.timeout.ms is only "
            f"{longest}"
        )
    return settings


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
    near = difflib.get_close_matches(name, setting_names(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise OverrideError(f"{name} is not a broker setting{hint}")


def _value(settings: BrokerSettings, part: str | None, field: str, name: str, text: str) -> Any:
    current = getattr(settings if part is None else getattr(settings, part), field)
    if isinstance(current, bool):
        if text.lower() not in ("true", "false"):
            raise OverrideError(f"{name}={text}: must be true or false")
        return text.lower() == "true"
    if isinstance(current, int):
        try:
            value = int(text)
        except ValueError:
            raise OverrideError(f"{name}={text}: must be an integer") from None
        least, most = RANGES.get(name, (0, INT32_MAX))
        if not least <= value <= most:
            raise OverrideError(f"{name}={text}: must be between {least} and {most}")
        return value
    return text


def _replaced(settings: BrokerSettings, part: str | None, field: str, value: Any) -> BrokerSettings:
    if part is None:
        return msgspec.structs.replace(settings, **{field: value})
    inner = msgspec.structs.replace(getattr(settings, part), **{field: value})
    return msgspec.structs.replace(settings, **{part: inner})


def current_values(settings: BrokerSettings) -> list[tuple[str, str]]:
    """Return all broker settings by Kafka's names, as DescribeConfigs shows them."""
    values = [(name, _text(settings, part, field)) for name, (part, field) in KAFKA_NAMES.items()]
    values += [
        (name, str(getattr(getattr(settings, part), field) // factor))
        for name, (part, field, factor) in KAFKA_NAMES_SCALED.items()
    ]
    for name, topic_name in _TOPIC_DEFAULTS.items():
        default = CONFIG_KEYS[topic_name].default
        values.append((name, settings.topic_defaults.get(topic_name, default)))
    return sorted(values)


def _text(settings: BrokerSettings, part: str | None, field: str) -> str:
    value = getattr(settings if part is None else getattr(settings, part), field)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
