"""Settings of brokers and topics, as tests write them."""

from __future__ import annotations

from collections.abc import Mapping

from partage.model.arguments import InvalidArgumentError, check_instance

#: A setting's value. Kafka's protocol has text only: ``False`` is sent as ``false``.
SettingValue = str | bool | int | float

#: Settings by Kafka's names.
Settings = Mapping[str, SettingValue]


def to_texts(settings: Settings) -> dict[str, str]:
    """Return settings as Kafka's protocol has them.

    Raises:
        InvalidArgumentError: ``settings`` is not a dict, a name is not a string, or a value is not
            a string, boolean or number.
    """
    check_instance("settings", settings, Mapping)
    return {_checked_name(name): _to_text(name, value) for name, value in settings.items()}


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{name!r} is not the name of a setting; names are strings")
    return name


def _to_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidArgumentError(
        f"{name}={value!r}: the value must be a string, a boolean or a number"
    )
