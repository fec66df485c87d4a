"""The options of consumers, typed and documented one by one; see `partage.client.config`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from partage.assignors import Assignor
from partage.client.config import MembershipConfig, Option
from partage.wire.records.columns import HeaderTuples

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
GroupProtocol: TypeAlias = Literal["classic", "consumer", "auto"]
#: Assignors, or names of Kafka's assignors, in order of preference.
AssignmentStrategy: TypeAlias = str | Assignor | Iterable[str | Assignor]


class Deserializer(Protocol):
    """An object that deserializes keys or values, as kafka-python's class of this name."""

    def deserialize(self, topic: str, headers: HeaderTuples, data: Any, /) -> Any:
        """Return the key or the value for some bytes; None for a record without one."""
        ...


#: A function of the bytes, or an object with a method.
DeserializerLike: TypeAlias = Callable[[Any], Any] | Deserializer


class ReaderConfig(MembershipConfig, total=False):
    """The options of a member that reads records, without those of its group and its commits."""

    isolation_level: Annotated[
        IsolationLevel,
        Option(
            "`read_committed` omits records of aborted transactions, and ends before the first "
            "open transaction",
            kafka="isolation.level",
            kip=98,
        ),
    ]
    check_crcs: Annotated[
        bool, Option("True to verify the checksums of record batches", kafka="check.crcs")
    ]
    max_poll_records: Annotated[
        int,
        Option(
            "Maximum number of records of one poll; use more with Arrow",
            kafka="max.poll.records",
            kip=41,
            unit="records",
        ),
    ]
    max_partition_fetch_bytes: Annotated[
        int,
        Option(
            "Maximum data of one partition in one response; a larger batch is returned alone",
            kafka="max.partition.fetch.bytes",
            kip=74,
            unit="bytes",
        ),
    ]
    fetch_max_bytes: Annotated[
        int,
        Option("Maximum data in one response", kafka="fetch.max.bytes", kip=74, unit="bytes"),
    ]
    fetch_min_bytes: Annotated[
        int,
        Option(
            "Minimum data that a broker collects before it responds",
            kafka="fetch.min.bytes",
            unit="bytes",
        ),
    ]
    fetch_max_wait_ms: Annotated[
        int,
        Option(
            "Maximum time for which a broker waits for `fetch_min_bytes`",
            kafka="fetch.max.wait.ms",
            unit="ms",
        ),
    ]
    buffer_bytes_max: Annotated[
        int,
        Option("Most data that is fetched ahead, in all partitions together", unit="bytes"),
    ]
    unknown_topic_wait_ms: Annotated[
        int,
        Option("Time after which a poll reports that a topic does not exist", unit="ms"),
    ]
    client_rack: Annotated[
        str | None,
        Option(
            "Rack of this client. It reads from followers there if the brokers have a "
            "`replica.selector.class` (KIP-392), and rack-aware assignors match it",
            kafka="client.rack",
            kip=881,
        ),
    ]
    max_poll_interval_ms: Annotated[
        int,
        Option(
            "Longest time between two polls; then the member loses its partitions",
            kafka="max.poll.interval.ms",
            kip=62,
            unit="ms",
        ),
    ]
    metadata_rebalance_delay_ms: Annotated[
        int,
        Option(
            "Time for which topic changes are collected before the member rejoins because of them. "
            "With 0 it rejoins at once, like Kafka's consumers",
            unit="ms",
        ),
    ]


class ConsumerConfig(ReaderConfig, total=False):
    """The options of `partage.Consumer` and `partage.sync.Consumer`."""

    auto_offset_reset: Annotated[
        str,
        Option(
            "Start position without a valid offset: `latest`, `earliest`, `none`, or "
            "`by_duration:` with an ISO 8601 duration",
            kafka="auto.offset.reset",
            kip=1106,
        ),
    ]
    group_id: Annotated[
        str | None,
        Option("The consumer group; without one, use `assign`", kafka="group.id"),
    ]
    group_protocol: Annotated[
        GroupProtocol,
        Option(
            "`classic`; `consumer`, the protocol in which the broker assigns partitions; or "
            "`auto`: `consumer` if the cluster supports it, otherwise `classic`. The first "
            "subscription asks the cluster",
            kafka="group.protocol",
            kip=848,
        ),
    ]
    group_remote_assignor: Annotated[
        str | None,
        Option(
            "The assignor in the broker, such as `uniform` or `range`; by default the broker's "
            "first one. Only for the consumer protocol",
            kafka="group.remote.assignor",
            kip=848,
        ),
    ]
    enable_auto_commit: Annotated[
        bool,
        Option(
            "True to commit the positions periodically, before partitions are revoked, and on "
            "`close`",
            kafka="enable.auto.commit",
        ),
    ]
    auto_commit_interval_ms: Annotated[
        int,
        Option("Interval of periodic commits", kafka="auto.commit.interval.ms", unit="ms"),
    ]
    key_deserializer: Annotated[
        DeserializerLike | None,
        Option(
            "A function of the key's bytes, or an object with a method "
            "`deserialize(topic, headers, data)`. `record.key` is its result",
            kafka="key.deserializer",
        ),
    ]
    value_deserializer: Annotated[
        DeserializerLike | None,
        Option("As `key_deserializer`, for `record.value`", kafka="value.deserializer"),
    ]
    partition_assignment_strategy: Annotated[
        AssignmentStrategy,
        Option(
            "Assignors, or names of Kafka's assignors, in order of preference. Kafka's default "
            "prefers `range`",
            kafka="partition.assignment.strategy",
            kip=429,
        ),
    ]
