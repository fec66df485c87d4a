"""Topic config keys: names, types and defaults of Kafka 4, and their effect in Partage.

Defaults are those of Kafka 4.0 with KIP-1030, but `segment.bytes` may be as small as before that
KIP, for tests of retention. A config without effect is accepted, so that scripts for Kafka work.
Its documentation says that it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final

import msgspec

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 30
#: Codecs that ``compression.type`` may name.
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")


class ConfigType(IntEnum):
    """A config's type, as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigKey(msgspec.Struct, frozen=True):
    """One config.

    Attributes:
        validate: Returns what is wrong with a parsed value, or None.
        is_internal: True if it is described only where it was altered, as in Kafka.
    """

    name: str
    type: ConfigType
    default: str
    server_name: str  # the broker config that sets the default in Kafka
    doc: str
    validate: Callable[[Any], str | None]
    has_effect: bool = True
    is_internal: bool = False


def parse_value(key: ConfigKey, text: str) -> Any:
    """Parse a config value.

    Raises:
        ValueError: The value is invalid; the message says why.
    """
    value = _PARSERS[key.type](text.strip())
    if fault := key.validate(value):
        raise ValueError(fault)
    return value


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse_integer(text: str) -> int:
        digits = text.removeprefix("-").removeprefix("+")
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError("must be a whole number")
        if len(digits) > _DIGITS_MAX or not low <= int(text) <= high:
            raise ValueError(f"must be between {low} and {high}")
        return int(text)

    return parse_integer


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


_PARSERS: Final[dict[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer(-(2**31), _INT_MAX),
    ConfigType.LONG: _integer(-(2**63), _LONG_MAX),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
}


def anything(value: object) -> None:
    """Accept any value."""
    return


def at_least(low: int) -> Callable[[int], str | None]:
    """Return a check that a value is not below ``low``."""
    return lambda value: None if value >= low else f"must be at least {low}"


def _fraction(value: float) -> str | None:
    return None if 0 <= value <= 1 else "must be between 0 and 1"


def one_of(*names: str) -> Callable[[str], str | None]:
    """Return a check that a value is one of ``names``."""
    return lambda value: None if value in names else f"must be one of {', '.join(names)}"


def _some_of(*names: str) -> Callable[[tuple[str, ...]], str | None]:
    """Return a check of a list, which may be empty (KIP-1161)."""

    def allows(values: tuple[str, ...]) -> str | None:
        known = all(value in names for value in values)
        return None if known else f"must be empty, or some of {', '.join(names)}"

    return allows


def _only(value: object, why: str) -> Callable[[object], str | None]:
    return lambda given: None if given == value else why


def between(low: int, high: int) -> Callable[[int], str | None]:
    """Return a check that a value is from ``low`` to ``high``."""
    return lambda value: None if low <= value <= high else f"must be between {low} and {high}"


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "must be -1, or between 1 and 9"


def without_effect(
    name: str,
    type_: ConfigType,
    default: str,
    server_name: str,
    why: str,
    allows: Callable[[Any], str | None] = anything,
) -> ConfigKey:
    """Return a config that is accepted and stored only; ``why`` is the reason."""
    return ConfigKey(name, type_, default, server_name, f"No effect: {why}.", allows, False)


_B, _S, _I, _L, _D, _A = ConfigType
_ONE_REPLICA = "a partition has one replica"
_NO_TIERS = "there is no tiered storage"

_KEYS: Final = [
    ConfigKey(
        "cleanup.policy", _A, "delete", "log.cleanup.policy",
        "Cleanup of old segments: 'delete' removes them by age and size, 'compact' keeps the last "
        "record of each key. Separate both with a comma to use both. Empty: segments are kept.",
        _some_of("compact", "delete"),
    ),
    ConfigKey(
        "compression.gzip.level", _I, "-1", "compression.gzip.level",
        "Level of gzip if the broker compresses a batch; -1 for the default.",
        _gzip_level,
    ),
    without_effect("compression.lz4.level", _I, "9", "compression.lz4.level",
                   "the broker compresses with lz4's fast compressor, Kafka's default",
                   between(1, 17)),
    ConfigKey(
        "compression.type", _S, "producer", "compression.type",
        "Codec of stored batches. 'producer': batches keep the producer's codec. 'uncompressed': "
        "the broker decompresses them.",
        one_of("producer", "uncompressed", *CODECS),
    ),
    ConfigKey(
        "compression.zstd.level", _I, "3", "compression.zstd.level",
        "Level of zstd if the broker compresses a batch.",
        between(-131072, 22),
    ),
    ConfigKey(
        "delete.retention.ms", _L, "86400000", "log.cleaner.delete.retention.ms",
        "Time for which a tombstone (a record without a value) is kept after the compaction that "
        "first saw it.",
        at_least(0),
    ),
    ConfigKey(
        "file.delete.delay.ms", _L, "60000", "log.segment.delete.delay.ms",
        "Delay before the files of a removed segment are deleted, so that reads can finish.",
        at_least(0),
    ),
    without_effect("flush.messages", _L, str(_LONG_MAX), "log.flush.interval.messages",
                    "a write is synced before it is acknowledged", at_least(1)),
    without_effect("flush.ms", _L, str(_LONG_MAX), "log.flush.interval.ms",
                    "a write is synced before it is acknowledged", at_least(0)),
    without_effect("follower.replication.throttled.replicas", _A, "", "", _ONE_REPLICA),
    ConfigKey(
        "index.interval.bytes", _I, "4096", "log.index.interval.bytes",
        "Number of bytes between two index entries.",
        at_least(0),
    ),
    without_effect("leader.replication.throttled.replicas", _A, "", "", _ONE_REPLICA),
    without_effect("local.retention.bytes", _L, "-2", "log.local.retention.bytes",
                    _NO_TIERS, at_least(-2)),
    without_effect("local.retention.ms", _L, "-2", "log.local.retention.ms",
                    _NO_TIERS, at_least(-2)),
    ConfigKey(
        "max.compaction.lag.ms", _L, str(_LONG_MAX), "log.cleaner.max.compaction.lag.ms",
        "Longest time that a record can wait for compaction, whatever the dirty ratio is.",
        at_least(1),
    ),
    ConfigKey(
        "max.message.bytes", _I, "1048588", "message.max.bytes",
        "Largest record batch that the broker accepts, as received (after compression).",
        at_least(0),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", _L, "3600000", "log.message.timestamp.after.max.ms",
        "Largest difference by which a record's timestamp may be later than the broker's clock.",
        at_least(0),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", _L, str(_LONG_MAX),
        "log.message.timestamp.before.max.ms",
        "Largest difference by which a record's timestamp may be earlier than the broker's clock.",
        at_least(0),
    ),
    ConfigKey(
        "message.timestamp.type", _S, "CreateTime", "log.message.timestamp.type",
        "Timestamp of records: set by the producer (CreateTime) or the broker (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio", _D, "0.5", "log.cleaner.min.cleanable.ratio",
        "Smallest share of uncompacted bytes in a log at which a compaction starts.",
        _fraction,
    ),
    ConfigKey(
        "min.compaction.lag.ms", _L, "0", "log.cleaner.min.compaction.lag.ms",
        "Shortest time for which a record is not compacted.",
        at_least(0),
    ),
    without_effect("min.insync.replicas", _I, "1", "min.insync.replicas",
                    _ONE_REPLICA, at_least(1)),
    without_effect("preallocate", _B, "false", "log.preallocate",
                    "files grow with each write"),
    without_effect("remote.log.copy.disable", _B, "false", "", _NO_TIERS),
    without_effect("remote.log.delete.on.disable", _B, "false", "", _NO_TIERS),
    without_effect("remote.storage.enable", _B, "false", "", _NO_TIERS,
                    _only(False, "only 'false' is supported: there is no tiered storage")),
    ConfigKey(
        "retention.bytes", _L, "-1", "log.retention.bytes",
        "Size above which a partition's oldest segments are removed; -1 for no limit.",
        anything,
    ),
    ConfigKey(
        "retention.ms", _L, "604800000", "log.retention.ms",
        "Age above which segments are removed; -1 for no limit.",
        at_least(-1),
    ),
    ConfigKey(
        "segment.bytes", _I, "1073741824", "log.segment.bytes",
        "Size at which a segment is closed and the next one is created.",
        at_least(14),
    ),
    ConfigKey(
        "segment.index.bytes", _I, "10485760", "log.index.size.max.bytes",
        "Size of an index at which its segment is closed.",
        at_least(4),
    ),
    without_effect("segment.jitter.ms", _L, "0", "log.roll.jitter.ms",
                    "segments are closed without jitter", at_least(0)),
    ConfigKey(
        "segment.ms", _L, "604800000", "log.roll.ms",
        "Age at which a segment is closed even if it is not full.",
        at_least(1),
    ),
    without_effect("unclean.leader.election.enable", _B, "false",
                    "unclean.leader.election.enable", _ONE_REPLICA),
]  # fmt: skip

CONFIG_KEYS: Final = {key.name: key for key in sorted(_KEYS, key=attrgetter("name"))}
