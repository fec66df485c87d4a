"""Group membership options of a streaming query, under Kafka's names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

import msgspec

from partage import assignors as offered_assignors
from partage.assignors import (
    Assignor,
    IncompatibleAssignorsError,
    protocols_by_name,
    rebalance_protocol,
)
from partage.client.consumer.options import ConsumerOptions
from partage.spark.bounds import SparkOptionError
from partage.spark.option_values import parse_choice, parse_positive, suggest_name

_PREFIX: Final = "kafka."

GROUP_OPTION_NAMES: Final = (
    "group.id",
    "group.instance.id",
    "group.protocol",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "client.rack",
)

#: Our assignors by protocol name; below, the simple names of Kafka's Java classes.
_BY_NAME: Final[dict[str, type[Assignor]]] = {
    kind.name: kind
    for kind in vars(offered_assignors).values()
    if isinstance(kind, type) and issubclass(kind, Assignor) and kind is not Assignor
}
_JAVA_CLASSES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_PROTOCOLS: Final = ("classic", "consumer")
_DEFAULTS: Final = ConsumerOptions()


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Membership settings of a query. A ``group_id`` of None means that the query has no group.

    ``rebalance_timeout_ms`` is Kafka's ``max.poll.interval.ms``: the time that the other members
    wait for this member in a rebalance. ``strategy`` holds assignor names instead of assignors
    because Spark pickles the options.
    """

    group_id: str | None = None
    instance_id: str | None = None
    session_timeout_ms: int = _DEFAULTS.session_timeout_ms
    heartbeat_interval_ms: int = _DEFAULTS.heartbeat_interval_ms
    rebalance_timeout_ms: int = _DEFAULTS.max_poll_interval_ms
    strategy: tuple[str, ...] = _DEFAULTS.partition_assignment_strategy
    rack: str | None = None

    @property
    def assignors(self) -> list[Assignor]:
        """New assignors, most preferred first.

        Raises:
            SparkOptionError: if an assignor cannot be created.
        """
        return [make_assignor(name) for name in self.strategy]


def parse_group_options(given: Mapping[str, str]) -> GroupOptions:
    """Parse the membership settings.

    Args:
        given: Kafka settings by name, without the prefix ``kafka.``. Other settings are ignored.

    Raises:
        SparkOptionError: if a value is invalid, or two values contradict each other.
    """
    _check_protocol(given)
    defaults = GroupOptions()
    options = GroupOptions(
        group_id=_name("group.id", given),
        instance_id=_name("group.instance.id", given),
        session_timeout_ms=_ms("session.timeout.ms", given, defaults.session_timeout_ms),
        heartbeat_interval_ms=_ms("heartbeat.interval.ms", given, defaults.heartbeat_interval_ms),
        rebalance_timeout_ms=_ms("max.poll.interval.ms", given, defaults.rebalance_timeout_ms),
        strategy=_parse_strategy(given.get("partition.assignment.strategy")),
        rack=_name("client.rack", given),
    )
    if options.heartbeat_interval_ms >= options.session_timeout_ms:
        raise SparkOptionError(
            f"{_PREFIX}heartbeat.interval.ms={options.heartbeat_interval_ms} must be less than "
            f"{_PREFIX}session.timeout.ms={options.session_timeout_ms}; use a third of it"
        )
    return options


def make_assignor(name: str) -> Assignor:
    """Create an assignor by protocol name, by the name of Kafka's class, or as ``module:Class``.

    Raises:
        SparkOptionError: if no such assignor exists, or it cannot be created without arguments.
    """
    option = f"{_PREFIX}partition.assignment.strategy"
    if ":" in name:
        kind = _import_assignor(option, name)
    else:
        by_name = _JAVA_CLASSES.get(name.rpartition(".")[2], name)
        if by_name not in _BY_NAME:
            known = [*_BY_NAME, *_JAVA_CLASSES]
            raise SparkOptionError(
                f"{option}: there is no assignor {name!r}{suggest_name(name, known)}; "
                f"available: {', '.join(sorted(_BY_NAME))}, or your class as module:Class"
            )
        kind = _BY_NAME[by_name]
    try:
        return kind()
    except TypeError as error:
        raise SparkOptionError(
            f"{option}: {name} cannot be created without arguments: {error}"
        ) from None


def _import_assignor(option: str, name: str) -> type[Assignor]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SparkOptionError(
            f"{option}: {name} cannot be imported on the driver: {error}"
        ) from None
    if not (isinstance(found, type) and issubclass(found, Assignor)):
        raise SparkOptionError(f"{option}: {name} is not a subclass of partage.assignors.Assignor")
    return found


def _parse_strategy(text: str | None) -> tuple[str, ...]:
    if text is None:
        return GroupOptions().strategy
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        assignors = [make_assignor(name) for name in names]
        protocols_by_name(assignors)
        rebalance_protocol(assignors)
    except IncompatibleAssignorsError as error:
        raise SparkOptionError(f"{_PREFIX}partition.assignment.strategy={text}: {error}") from None
    return names


def _check_protocol(given: Mapping[str, str]) -> None:
    """Accept only the classic protocol, Kafka's default."""
    name = "group.protocol"
    if name in given and parse_choice(_PREFIX + name, given[name], _PROTOCOLS) != "classic":
        raise SparkOptionError(
            f"{_PREFIX}{name}={given[name]} is not supported: only the classic protocol is "
            "available; remove the option, or set it to classic"
        )


def _ms(name: str, given: Mapping[str, str], default: int) -> int:
    return parse_positive(_PREFIX + name, given[name]) if name in given else default


def _name(name: str, given: Mapping[str, str]) -> str | None:
    if name not in given:
        return None
    text = given[name].strip()
    if not text:
        raise SparkOptionError(f"{_PREFIX}{name} is empty")
    return text
