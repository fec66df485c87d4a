"""Group membership options of a streaming query, under Kafka's names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, cast, get_args

import msgspec

from partage import assignors as offered_assignors
from partage.assignors import (
    Assignor,
    IncompatibleAssignorsError,
    protocols_by_name,
    rebalance_protocol,
)
from partage.client.consumer.config import GroupProtocol
from partage.client.consumer.options import BROKER_SETTINGS, ConsumerOptions
from partage.spark.bounds import SparkOptionError
from partage.spark.option_values import (
    parse_choice,
    parse_name,
    parse_positive,
    suggest_name,
)

_PREFIX: Final = "kafka."

GROUP_OPTION_NAMES: Final = (
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
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
_DEFAULTS: Final = ConsumerOptions()


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Membership settings of a query. A ``group_id`` of None means that the query has no group.

    ``rebalance_timeout_ms`` is Kafka's ``max.poll.interval.ms``: the time that the other members
    wait for this member in a rebalance. ``strategy`` holds assignor names instead of assignors
    because Spark pickles the options. The broker decides the session timeout, the heartbeat
    interval and the assignors of a member with the consumer protocol; it has a
    ``remote_assignor`` instead.
    """

    group_id: str | None = None
    instance_id: str | None = None
    protocol: GroupProtocol = "classic"
    remote_assignor: str | None = None
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
    defaults = GroupOptions()
    options = GroupOptions(
        group_id=_name("group.id", given),
        instance_id=_name("group.instance.id", given),
        protocol=_parse_protocol(given),
        remote_assignor=_name("group.remote.assignor", given),
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


def _parse_protocol(given: Mapping[str, str]) -> GroupProtocol:
    """Return the group protocol; raise SparkOptionError for an option that it does not have."""
    option = f"{_PREFIX}group.protocol"
    word = parse_choice(option, given.get("group.protocol", "classic"), get_args(GroupProtocol))
    protocol = cast(GroupProtocol, word)
    if protocol == "classic":
        if "group.remote.assignor" in given:
            raise SparkOptionError(
                f"{_PREFIX}group.remote.assignor needs {option}=consumer: with the classic "
                f"protocol, use {_PREFIX}partition.assignment.strategy"
            )
        return protocol
    when = " if it has the consumer protocol" if protocol == "auto" else ""
    for name, setting in BROKER_SETTINGS.items():
        dotted = name.replace("_", ".")
        if dotted in given:
            raise SparkOptionError(
                f"{_PREFIX}{dotted} has no effect with {option}={protocol}: the broker "
                f"decides{when} ({setting.replace('_', '.')}); remove the option"
            )
    return protocol


def _ms(name: str, given: Mapping[str, str], default: int) -> int:
    return parse_positive(_PREFIX + name, given[name]) if name in given else default


def _name(name: str, given: Mapping[str, str]) -> str | None:
    return parse_name(_PREFIX + name, given[name]) if name in given else None
