"""Options of consumers: Kafka's names in snake case, Kafka's defaults, and validation.

One default differs from Kafka: the only assignor is ``cooperative-sticky``. Kafka prefers
``range``, under which every rebalance stops all members.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import msgspec

from partage.assignors import (
    Assignor,
    CooperativeSticky,
    IncompatibleAssignorsError,
    Range,
    RoundRobin,
    Sticky,
    protocols_by_name,
    rebalance_protocol,
)
from partage.client.config import Option
from partage.client.consumer.config import ConsumerConfig, GroupProtocol, IsolationLevel
from partage.client.consumer.errors import InvalidOptionError, UnknownOptionError
from partage.client.consumer.partition_state import TO_EARLIEST, TO_LATEST, ResetTarget
from partage.client.metadata_recovery import MetadataRecoveryStrategy
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.security.options import (
    SECURITY_ALIASES,
    SecurityOptions,
    parse_security_options,
)
from partage.model.arguments import INT32_MAX, INT64_MAX, InvalidArgumentError, check_int


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a consumer in addition to those of all clients (`ClientOptions`).

    `ConsumerConfig` documents them; the defaults are here.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None
    client_rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    metadata_rebalance_delay_ms: int = 0
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    partition_assignment_strategy: Any = ("cooperative-sticky",)  # an AssignmentStrategy
    key_deserializer: Any = None  # a Deserializer
    value_deserializer: Any = None  # a Deserializer
    auto_offset_reset: str = "latest"
    isolation_level: IsolationLevel = "read_uncommitted"
    check_crcs: bool = True
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1024 * 1024
    buffer_bytes_max: int = 64 * 1024 * 1024
    unknown_topic_wait_ms: int = 5_000

    @property
    def assignors(self) -> list[Assignor]:
        """The assignors, in order of preference; raises InvalidOptionError."""
        return parse_assignors(self.partition_assignment_strategy)

    @property
    def reset(self) -> ResetTarget | None:
        """The start position without a committed offset; None raises an error."""
        return parse_reset(self.auto_offset_reset)


#: Options whose names differ from the fields that they set.
_RENAMED: Final = {
    "default_api_timeout_ms": "timeout_ms",
    "retry_backoff_ms": "backoff_ms",
    "retry_backoff_max_ms": "backoff_max_ms",
    "socket_connection_setup_timeout_ms": "connect_timeout_ms",
    **SECURITY_ALIASES,
}
_STRUCTS: Final = (ConsumerOptions, ClientOptions, RetryPolicy, SecurityOptions)
#: Minimum values other than 1.
_LEAST: Final = {
    "fetch_max_wait_ms": 0,
    "fetch_min_bytes": 0,
    "metadata_max_age_ms": 0,
    "metadata_recovery_rebootstrap_trigger_ms": 0,
    "metadata_rebalance_delay_ms": 0,
    "retry_backoff_ms": 0,
    "retry_backoff_max_ms": 0,
    "unknown_topic_wait_ms": 0,
}

#: Options whose numbers have 64 bits; in Kafka these are of the type LONG.
_LONG: Final = frozenset(
    {
        "buffer_bytes_max",
        "metadata_max_age_ms",
        "metadata_recovery_rebootstrap_trigger_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "socket_connection_setup_timeout_ms",
    }
)
#: Names that a broker rejects if they are empty.
_NOT_EMPTY: Final = frozenset({"group_id", "group_instance_id", "group_remote_assignor"})

#: Options that the broker decides with the consumer protocol, each with the broker's setting.
BROKER_SETTINGS: Final = {
    "session_timeout_ms": "group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "partition_assignment_strategy": "group.consumer.assignors; see group_remote_assignor",
    "metadata_rebalance_delay_ms": "group.consumer.assignment.interval.ms",
}


def parse_options(given: Mapping[str, Any]) -> tuple[ConsumerOptions, ClientOptions]:
    """Validate keyword arguments and return them as consumer and client options.

    Args:
        given: Options of `ConsumerConfig`; a mapping because they may be wrong.

    Raises:
        UnknownOptionError: An option does not exist; the message names the nearest one.
        InvalidOptionError: An option has an invalid value.
        InvalidSecurityOptionError: TLS and SASL options contradict each other.
    """
    ours: dict[str, Any] = {}
    clients: dict[str, Any] = {}
    security: dict[str, Any] = {}
    retries: dict[str, Any] = {}
    for name, value in given.items():
        if name not in ConsumerConfig.__annotations__:
            raise UnknownOptionError(name, _nearest(name))
        kind, field = _field(name)
        if kind is SecurityOptions:
            security[name] = value
        else:
            into = {ConsumerOptions: ours, ClientOptions: clients, RetryPolicy: retries}[kind]
            into[field] = _checked(kind, name, field, value)
    if security:
        clients["security"] = parse_security_options(security)
    if retries:
        clients["retries"] = RetryPolicy(**retries)
    options = ConsumerOptions(**ours)
    _check_group_protocol(options, given)
    parse_reset(options.auto_offset_reset)
    parse_assignors(options.partition_assignment_strategy)
    for name in ("key_deserializer", "value_deserializer"):
        _check_deserializer(name, getattr(options, name))
    if options.heartbeat_interval_ms >= options.session_timeout_ms:
        least = f"less than session_timeout_ms ({options.session_timeout_ms}), usually a third"
        raise InvalidOptionError("heartbeat_interval_ms", options.heartbeat_interval_ms, least)
    return options, ClientOptions(**clients)


def _check_group_protocol(options: ConsumerOptions, given: Mapping[str, Any]) -> None:
    """Raise InvalidOptionError for an option that the group protocol does not have."""
    if options.group_protocol == "classic" and options.group_remote_assignor is not None:
        expected = "None with group_protocol='classic': the group's leader assigns"
        raise InvalidOptionError("group_remote_assignor", options.group_remote_assignor, expected)
    protocol = options.group_protocol
    if protocol == "classic":
        return
    when = " if it has the consumer protocol" if protocol == "auto" else ""
    for name, setting in BROKER_SETTINGS.items():
        if name in given:
            expected = (
                f"no value with group_protocol={protocol!r}: the broker decides{when} ({setting})"
            )
            raise InvalidOptionError(name, given[name], expected)


def _check_deserializer(name: str, given: Any) -> None:
    call = getattr(given, "deserialize", given)
    if call is None:
        return
    if not callable(call) or (inspect.isclass(given) and call is not given):
        takes = "a function of bytes, or an object with a method deserialize(topic, headers, data)"
        raise InvalidOptionError(name, given, takes)
    if inspect.iscoroutinefunction(call):
        raise InvalidOptionError(name, given, "a function that is not a coroutine function")


def option_names() -> list[str]:
    """Return the names of all options, sorted."""
    return sorted(ConsumerConfig.__annotations__)


def option_defaults() -> dict[str, Any]:
    """Return the default of each option."""
    found = {}
    for name in ConsumerConfig.__annotations__:
        kind, field = _field(name)
        found[name] = getattr(kind(), field)
    return found


def option_type(name: str) -> Any:
    """Return the type of an option's value, such as ``int`` or ``str | None``."""
    kind, field = _field(name)
    return _types(kind)[field]


@cache
def _field(name: str) -> tuple[type[msgspec.Struct], str]:
    """Return the structure and the field that an option sets."""
    field = _RENAMED.get(name, name)
    kind = next(kind for kind in _STRUCTS if field in kind.__struct_fields__)
    return kind, field


def _nearest(name: str) -> str | None:
    plain = re.sub(r"[.\-]", "_", name).lower()
    return next(iter(difflib.get_close_matches(plain, option_names(), n=1)), None)


def _checked(kind: type[msgspec.Struct], name: str, field: str, value: Any) -> Any:
    """Return a valid value of an option.

    Raises:
        InvalidOptionError: It has a wrong type, is out of range, or is an empty name.
    """
    wanted = _types(kind)[field]
    if wanted is int:
        return _checked_int(name, value)
    if wanted is Any:  # A function checks the value.
        return value
    try:
        value = msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        raise InvalidOptionError(name, value, _expected(name, wanted)) from None
    if value == "" and name in _NOT_EMPTY:
        raise InvalidOptionError(name, value, "a string that is not empty")
    return value


def _checked_int(name: str, value: Any) -> int:
    most = INT64_MAX if name in _LONG else INT32_MAX
    try:
        return check_int(name, value, least=_LEAST.get(name, 1), most=most, unit=_unit(name))
    except InvalidArgumentError as error:
        raise InvalidOptionError(name, value, str(error).partition(": expected ")[2]) from None


def _expected(name: str, wanted: Any) -> str:
    """Return a description of the values that an option accepts."""
    if name == "auto_offset_reset":
        return _RESET_VALUES
    if wanted is MetadataRecoveryStrategy:
        return "'none' or 'rebootstrap'"
    if wanted is IsolationLevel:
        return "'read_uncommitted' or 'read_committed'"
    if wanted is GroupProtocol:
        return "'classic', 'consumer' or 'auto'"
    return "True or False" if wanted is bool else "a string"


@cache
def _unit(name: str) -> str:
    """Return the unit of an option's number, from its documentation."""
    hints = get_type_hints(ConsumerConfig, include_extras=True)
    return next(extra.unit for extra in get_args(hints[name]) if isinstance(extra, Option))


@cache
def _types(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the field types. Cached, because this takes as long as a connection to a broker."""
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


# partition.assignment.strategy: names of Kafka's assignors, or Assignor instances.

_ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    kind.name: kind for kind in (Range, RoundRobin, Sticky, CooperativeSticky)
}


def parse_assignors(given: Any) -> list[Assignor]:
    """Return assignors, given as instances or by Kafka's names.

    Raises:
        InvalidOptionError: An assignor is unknown, or the assignors cannot be combined.
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    listed = list(given) if is_list else [given]
    assignors: list[Assignor] = []
    for one in listed:
        if isinstance(one, Assignor):
            assignors.append(one)
        elif isinstance(one, str) and one in _ASSIGNORS:
            assignors.append(_ASSIGNORS[one]())
        else:
            takes = f"an assignor, or one of Kafka's names: {', '.join(_ASSIGNORS)}"
            if inspect.isclass(one):
                takes = f"an instance, not the class: {one.__name__}(...)"
            raise InvalidOptionError("partition_assignment_strategy", one, takes)
    try:
        protocols_by_name(assignors)
        rebalance_protocol(assignors)
    except IncompatibleAssignorsError as error:
        raise InvalidOptionError(
            "partition_assignment_strategy", given, f"a valid combination: {error}"
        ) from None
    return assignors


# auto.offset.reset, with the durations of KIP-1106.

_RESETS: Final = {"earliest": TO_EARLIEST, "latest": TO_LATEST, "none": None}
_RESET_VALUES: Final = (
    "'earliest', 'latest', 'none' or 'by_duration:' with an ISO 8601 duration such as PT1H"
)
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"\+?P(?:(\d+)D)?(T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d{1,9})?)S)?)?", re.IGNORECASE
)


def parse_reset(written: str) -> ResetTarget | None:
    """Parse ``auto_offset_reset``; return None for "none".

    Raises:
        InvalidOptionError: The value is invalid.
    """
    if written in _RESETS:
        return _RESETS[written]
    if written.startswith(_BY_DURATION):
        return ResetTarget(back_ms=_duration_ms(written))
    raise InvalidOptionError("auto_offset_reset", written, _RESET_VALUES)


def _duration_ms(written: str) -> int:
    found = _DURATION.fullmatch(written.removeprefix(_BY_DURATION))
    if found is not None:
        days, time, hours, minutes, seconds = found.groups()
        if (days or time) and (time is None or len(time) > 1):
            whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60
            return whole * 1000 + round(float((seconds or "0").replace(",", ".")) * 1000)
    takes = "'by_duration:' with an ISO 8601 duration such as PT1H, P7D or P1DT12H30M"
    raise InvalidOptionError("auto_offset_reset", written, takes)
