"""Options of a read under the names of Spark's Kafka connector, checked before any request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.spark.bounds import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    OffsetBound,
    SparkOptionError,
    parse_offsets,
    parse_partitions,
    parse_timestamp,
    parse_timestamps,
)
from partage.spark.kafka_options import (
    PREFIX,
    UNKNOWN_OPTIONS,
    KafkaOptions,
    parse_ignores_unknown,
    parse_kafka_options,
)
from partage.spark.option_values import (
    parse_boolean,
    parse_choice,
    parse_duration_ms,
    parse_positive,
    suggest_name,
)
from partage.spark.stream.trigger_limits import TRIGGER_DELAY_MAX_MS, TriggerLimits


class SubscribeStrategy(msgspec.Struct, frozen=True, tag=True):
    """All partitions of the named topics."""

    topics: tuple[str, ...]


class SubscribePatternStrategy(msgspec.Struct, frozen=True, tag=True):
    """All partitions of each topic whose whole name matches a regular expression."""

    pattern: str


class AssignStrategy(msgspec.Struct, frozen=True, tag=True):
    """The named partitions."""

    partitions: tuple[TopicPartition, ...]


ConsumerStrategy: TypeAlias = SubscribeStrategy | SubscribePatternStrategy | AssignStrategy

ALL_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STREAMING_ONLY_OPTIONS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_OTHERS: Final = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "columns",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    UNKNOWN_OPTIONS,
)
#: Default of ``kafkaConsumer.pollTimeoutMs``, unless lookups may take longer.
_POLL_TIMEOUT_MS: Final = 120_000
#: All options without the prefix ``kafka.``.
KNOWN_OPTIONS: Final = (*_CHOICES, *_OTHERS, *STREAMING_ONLY_OPTIONS)


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed options of a read.

    If ``starting`` or ``ending`` is None, the kind of query decides: a batch read uses earliest and
    latest, a streaming query starts at latest.
    """

    kafka: KafkaOptions
    strategy: ConsumerStrategy
    starting: OffsetBound | None = None
    ending: OffsetBound | None = None
    #: Action for partitions without a record at or after the starting timestamp.
    unmatched_start: Literal["error", "latest"] = "error"
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    columns: tuple[str, ...] = ALL_COLUMNS[:-1]
    poll_timeout_ms: int = _POLL_TIMEOUT_MS
    offset_attempts_max: int = 3
    offset_retry_interval_ms: int = 1_000
    trigger_limits: TriggerLimits = TriggerLimits()
    #: Given options that have an effect in streaming queries only, and in batch reads only.
    streaming_only_names: tuple[str, ...] = ()
    batch_only_names: tuple[str, ...] = ()


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of ``spark.read`` or ``spark.readStream``; names are case-insensitive.

    Raises:
        SparkOptionError: if an option is invalid. The message names the option, the problem and
            a valid value.
    """
    options = {name.lower(): value for name, value in given.items()}
    kafka = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    own = _SourceOptions(
        {name: text for name, text in options.items() if not name.startswith(PREFIX)}
    )
    own.check_names()
    strategy = own.strategy()
    cluster = parse_kafka_options(kafka, ignores_unknown=parse_ignores_unknown(options))
    attempts = own.number("fetchOffset.numRetries") or 3
    parsed = ReadOptions(
        kafka=cluster,
        strategy=strategy,
        starting=own.bound("starting"),
        ending=own.bound("ending"),
        unmatched_start=own.unmatched_start(),
        fail_on_data_loss=own.boolean("failOnDataLoss", True),
        partitions_min=own.number("minPartitions"),
        records_per_partition_max=own.number("maxRecordsPerPartition"),
        columns=own.columns(),
        poll_timeout_ms=own.number("kafkaConsumer.pollTimeoutMs")
        or max(_POLL_TIMEOUT_MS, attempts * cluster.client.retries.timeout_ms),
        offset_attempts_max=attempts,
        offset_retry_interval_ms=own.number("fetchOffset.retryIntervalMs") or 1_000,
        trigger_limits=own.trigger_limits(),
        streaming_only_names=tuple(
            name for name in STREAMING_ONLY_OPTIONS if name.lower() in options
        ),
        batch_only_names=tuple(name for name in _BATCH_ONLY if name.lower() in options),
    )
    _check_partitions_named(parsed)
    return parsed


def check_batch_options(options: ReadOptions) -> None:
    """Check the rules for batch reads: the range must not end before it starts.

    Raises:
        SparkOptionError: if a rule is violated, as for `parse_options`.
    """
    starting, ending = options.starting, options.ending
    if isinstance(starting, Latest):
        raise SparkOptionError("startingOffsets=latest leaves a batch read nothing to read")
    if isinstance(ending, Earliest):
        raise SparkOptionError("endingOffsets=earliest leaves a batch read nothing to read")
    for name, bound, word in (
        ("startingOffsets", starting, LATEST_OFFSET),
        ("endingOffsets", ending, EARLIEST_OFFSET),
    ):
        for partition, offset in bound.offsets.items() if isinstance(bound, AtOffsets) else ():
            if offset == word:
                meaning = "latest" if word == LATEST_OFFSET else "earliest"
                raise SparkOptionError(
                    f"{name} has {word} ({meaning}) for {partition}, which leaves a batch read "
                    "nothing to read"
                )
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        _check_order(starting.offsets, ending.offsets, "Offsets")
    if isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        _check_order(starting.timestamps_ms, ending.timestamps_ms, "OffsetsByTimestamp")
    if (
        isinstance(starting, AtTimestamp)
        and isinstance(ending, AtTimestamp)
        and starting.timestamp_ms > ending.timestamp_ms
    ):
        raise SparkOptionError(
            f"startingTimestamp={starting.timestamp_ms} is after "
            f"endingTimestamp={ending.timestamp_ms}"
        )


def check_stream_options(options: ReadOptions) -> None:
    """Check the rules for streaming queries: no end, and membership options only with a group.

    Raises:
        SparkOptionError: if a rule is violated, as for `parse_options`.
    """
    if options.batch_only_names:
        raise SparkOptionError(
            f"{options.batch_only_names[0]} is for batch reads; a streaming query has no end. "
            "Trigger.AvailableNow reads the existing records and ends"
        )
    group = options.kafka.group
    if group.group_id is None and options.kafka.group_only_names:
        named = ", ".join(options.kafka.group_only_names)
        raise SparkOptionError(f"{named}: only a group member uses it; set kafka.group.id")
    if group.group_id is None and group.instance_id is not None:
        raise SparkOptionError("kafka.group.instance.id names a group member; set kafka.group.id")
    if isinstance(options.strategy, AssignStrategy) and group.instance_id is not None:
        raise SparkOptionError(
            "with assign the query does not join its group; remove "
            "kafka.group.instance.id, or use subscribe"
        )


def _check_order(
    starting: Mapping[TopicPartition, int], ending: Mapping[TopicPartition, int], what: str
) -> None:
    if starting.keys() != ending.keys():
        odd = ", ".join(map(str, sorted(starting.keys() ^ ending.keys())))
        raise SparkOptionError(
            f"starting{what} and ending{what} must name the same partitions: {odd}"
        )
    for partition, first in starting.items():
        last = ending[partition]
        if 0 <= last < first:
            raise SparkOptionError(
                f"starting{what} {first} is after ending{what} {last} for {partition}"
            )


def _check_partitions_named(options: ReadOptions) -> None:
    """With ``assign``, require offsets for exactly the assigned partitions."""
    if not isinstance(options.strategy, AssignStrategy):
        return
    for name, bound in (("starting", options.starting), ("ending", options.ending)):
        named = named_partitions(bound)
        if named is not None:
            check_same_partitions(name, named, set(options.strategy.partitions))


def named_partitions(bound: OffsetBound | None) -> set[TopicPartition] | None:
    """Return the partitions that a bound names, or None if it names none."""
    if isinstance(bound, AtOffsets):
        return set(bound.offsets)
    if isinstance(bound, AtTimestamps):
        return set(bound.timestamps_ms)
    return None


def check_same_partitions(
    end: str, named: set[TopicPartition], wanted: set[TopicPartition]
) -> None:
    """Check that a bound names exactly the partitions that are read.

    Args:
        end: "starting" or "ending", for the message.
        named: partitions that have an offset or a timestamp.
        wanted: partitions that are read.

    Raises:
        SparkOptionError: if the two sets differ.
    """
    missing, odd = sorted(wanted - named), sorted(named - wanted)
    if missing or odd:
        problems = [f"missing: {', '.join(map(str, missing))}"] if missing else []
        problems += [f"not read: {', '.join(map(str, odd))}"] if odd else []
        raise SparkOptionError(
            f"{end} offsets must name exactly the partitions that are read "
            f"(-2 is earliest, -1 latest); {'; '.join(problems)}"
        )


class _SourceOptions:
    """The options without the prefix ``kafka.``, by lower-case name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def check_names(self) -> None:
        known = {name.lower() for name in KNOWN_OPTIONS}
        for name in self._given:
            if name not in known:
                close = suggest_name(
                    name, [*KNOWN_OPTIONS, f"{PREFIX}bootstrap.servers", f"{PREFIX}group.id"]
                )
                raise SparkOptionError(f"there is no option {name!r}{close}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else parse_positive(name, text)

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        return default if text is None else parse_boolean(name, text)

    def strategy(self) -> ConsumerStrategy:
        named = [name for name in _CHOICES if self.text(name) is not None]
        if len(named) != 1:
            problem = "none is set" if not named else f"{' and '.join(named)} are set"
            raise SparkOptionError(f"set exactly one of {', '.join(_CHOICES)}; {problem}")
        name = named[0]
        text = (self.text(name) or "").strip()
        if name == "assign":
            return AssignStrategy(tuple(sorted(parse_partitions(name, text))))
        if name == "subscribePattern":
            return _pattern(text)
        topics = [topic.strip() for topic in text.split(",") if topic.strip()]
        if not topics:
            raise SparkOptionError("subscribe takes topic names, separated by commas")
        return SubscribeStrategy(tuple(dict.fromkeys(topics)))

    def bound(self, end: str) -> OffsetBound | None:
        """Return one bound, with the connector's precedence: one timestamp, timestamps, offsets."""
        name = f"{end}Timestamp"
        if (text := self.text(name)) is not None:
            return parse_timestamp(name, text)
        name = f"{end}OffsetsByTimestamp"
        if (text := self.text(name)) is not None:
            return parse_timestamps(name, text)
        name = f"{end}Offsets"
        return None if (text := self.text(name)) is None else parse_offsets(name, text)

    def unmatched_start(self) -> Literal["error", "latest"]:
        name = "startingOffsetsByTimestampStrategy"
        word = parse_choice(name, self.text(name) or "error", ("error", "latest"))
        return cast(Literal["error", "latest"], word)

    def trigger_limits(self) -> TriggerLimits:
        least, most = self.number("minOffsetsPerTrigger"), self.number("maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise SparkOptionError(
                f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}"
            )
        name = "maxTriggerDelay"
        text = self.text(name)
        delay_ms = TRIGGER_DELAY_MAX_MS if text is None else parse_duration_ms(name, text)
        return TriggerLimits(records_max=most, records_min=least, delay_max_ms=delay_ms)

    def columns(self) -> tuple[str, ...]:
        text = self.text("columns")
        wants_headers = self.text("includeHeaders")
        with_headers = wants_headers is not None and parse_boolean("includeHeaders", wants_headers)
        if text is None:
            return ALL_COLUMNS if with_headers else ALL_COLUMNS[:-1]
        by_lower = {name.lower(): name for name in ALL_COLUMNS}
        names = []
        for part in text.split(","):
            name = by_lower.get(part.strip().lower())
            if name is None:
                close = suggest_name(part.strip(), ALL_COLUMNS)
                raise SparkOptionError(f"columns: there is no column {part.strip()!r}{close}")
            names.append(name)
        if len(set(names)) < len(names):
            raise SparkOptionError(f"columns names a column twice: {text}")
        if wants_headers is not None and with_headers != ("headers" in names):
            raise SparkOptionError(f"includeHeaders={wants_headers} contradicts columns={text}")
        return tuple(names)


def _pattern(text: str) -> SubscribePatternStrategy:
    if not text:
        raise SparkOptionError("subscribePattern takes a regular expression for whole topic names")
    try:
        re.compile(text)
    except re.error as error:
        raise SparkOptionError(
            f"subscribePattern is not a regular expression (Python syntax): {error}"
        ) from None
    return SubscribePatternStrategy(text)
