"""The methods of both consumers that need no waiting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Unpack

from partage.client.addresses import BootstrapServers, parse_bootstrap_servers
from partage.client.consumer.arguments import (
    PartitionLike,
    SubscriptionPattern,
    to_offset,
    to_separate_partitions,
    to_timestamp,
    to_topic_partition,
    to_topic_partitions,
)
from partage.client.consumer.config import ConsumerConfig
from partage.client.consumer.deserializers import Deserializers
from partage.client.consumer.engine import Engine
from partage.client.consumer.fetch_state_machine import RecordRange
from partage.client.consumer.group_subscription import GroupSubscription
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.options import parse_options
from partage.client.consumer.partition_state import TO_EARLIEST, TO_LATEST, ResetTarget
from partage.client.consumer.record_cursor import RecordCursor
from partage.client.consumer.records import Batch, Records
from partage.client.group.errors import MissingGroupIdError
from partage.client.loop_thread import warn_unclosed
from partage.model.arguments import check_instance, check_int, invalid_argument
from partage.model.topic_partition import TopicPartition


class BaseConsumer:
    """The base class of `partage.Consumer` and `partage.sync.Consumer`."""

    def __init__(
        self, bootstrap_servers: BootstrapServers, **options: Unpack[ConsumerConfig]
    ) -> None:
        servers = parse_bootstrap_servers(bootstrap_servers)
        ours, client = parse_options(options)
        self._engine = Engine(servers, ours, client)
        self._deserializers = Deserializers.of(ours)
        self._cursor: RecordCursor | None = None
        self._seen_version = -1  # The engine version that the record loop checked last.
        self._group: GroupSubscription | None = (
            None if ours.group_id is None else GroupSubscription(self._engine)
        )

    #: The name in the warning about an unclosed consumer; recipes set their own name.
    _name_in_warning = "Consumer"

    def __del__(self) -> None:
        engine: Engine | None = getattr(self, "_engine", None)  # None if the constructor failed
        if engine is not None and engine.abandon():
            warn_unclosed(self, self._name_in_warning)

    # Subscription.

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics and share their partitions with the other members of the group.

        It replaces an earlier subscription. The consumer joins the group during the next poll.

        Args:
            topics: Topic names, or a pattern that must match the whole name of a topic. The broker
                matches a `SubscriptionPattern`, which needs the consumer protocol.
            listener: Its callbacks run during `poll`, `close` and `unsubscribe`.

        Raises:
            InvalidArgumentError: An argument is invalid. With ``group_protocol="auto"``, polls
                raise it if the cluster cannot match a `SubscriptionPattern`.
            MissingGroupIdError: The consumer has no ``group_id``.
            AlreadyAssignedError: The consumer has partitions from `assign`.
        """
        self._require_group("subscribe()").subscribe(topics, self._check_listener(listener))

    def subscription(self) -> set[str]:
        """Return the subscribed topics; for a pattern, the topics that match."""
        return set() if self._group is None else self._group.subscription()

    def drain(self) -> None:
        """Begin to hand over all partitions to other members and to leave the group, without a gap.

        Continue to poll. Records are delivered as before until the other members are ready to take
        the partitions. Then ``on_partitions_revoked`` of the listener is called and the consumer
        leaves. After that, record loops end and polls return nothing; then call `close`. Under the
        eager protocol the consumer leaves at the next poll. This method returns at once and may be
        called in a signal handler.

        Raises:
            MissingGroupIdError: The consumer has no ``group_id``.
        """
        self._require_group("drain()").drain()

    @property
    def is_drained(self) -> bool:
        """True after `drain`, once all partitions are handed over."""
        return self._group is not None and self._group.is_drained

    def _require_group(self, what: str) -> GroupSubscription:
        if self._group is None:
            raise MissingGroupIdError(what)
        return self._group

    def _check_listener(self, listener: RebalanceListener | None) -> RebalanceListener | None:
        if listener is not None:
            check_instance("listener", listener, RebalanceListener)
        return listener

    # Assignment.

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Read exactly these partitions.

        Partitions that are assigned already keep their positions. New ones start at the committed
        offset of the consumer's group. Without one, or without a ``group_id``,
        ``auto_offset_reset`` applies. A topic need not exist yet. The group's coordinator is not
        involved.

        Raises:
            InvalidArgumentError: ``partitions`` is not a list of pairs of topic and number.
            AlreadySubscribedError: The consumer is subscribed.
        """
        wanted = to_topic_partitions(partitions)
        if self._group is not None:
            self._group.begin_manual_assignment()
        self._engine.remove_partitions([p for p in self._engine.assignment() if p not in wanted])
        self._engine.add_partitions(wanted)

    def unassign(self) -> None:
        """Remove all assigned partitions; raise `AlreadySubscribedError` as `assign` does."""
        if self._group is not None:
            self._group.begin_manual_assignment()
        self._engine.remove_partitions(self._engine.assignment())

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._engine.assignment())

    def pause(self, *partitions: PartitionLike) -> None:
        """Stop delivering records of these partitions; those already fetched are kept."""
        self._engine.pause(to_separate_partitions("pause", partitions), paused=True)

    def resume(self, *partitions: PartitionLike) -> None:
        """Resume these partitions."""
        self._engine.pause(to_separate_partitions("resume", partitions), paused=False)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._engine.paused())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the known positions: the offset after the last delivered record, by partition."""
        return self._engine.positions()

    # Positions.

    def seek(self, partition: PartitionLike, offset: int) -> None:
        """Continue at this offset; records fetched before are dropped.

        Args:
            partition: An assigned partition.
            offset: The offset of the next record, 0 or more.

        Raises:
            InvalidArgumentError: An argument is invalid.
            NotAssignedError: The partition is not assigned to this consumer.
        """
        wanted = to_topic_partition(partition)
        if to_offset("offset", offset, least=-(2**63)) < 0:
            raise invalid_argument(
                "offset", offset, "0 or more; or call seek_to_beginning() or seek_to_end()"
            )
        self._engine.seek(wanted, int(offset))

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Continue at the first offset, in all assigned partitions if none is named."""
        wanted = to_separate_partitions("seek_to_beginning", partitions)
        self._engine.reset(wanted or None, TO_EARLIEST)

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Continue at the end offset, in all assigned partitions if none is named."""
        wanted = to_separate_partitions("seek_to_end", partitions)
        self._engine.reset(wanted or None, TO_LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: PartitionLike) -> None:
        """Continue at the first record at or after a timestamp.

        Args:
            timestamp_ms: Milliseconds since the epoch. If all records are older, continue at the
                end.
            partitions: The partitions; all assigned partitions if none is named.
        """
        at = ResetTarget(to_timestamp("timestamp_ms", timestamp_ms))
        self._engine.reset(to_separate_partitions("seek_to_time", partitions) or None, at)

    def _limit(self, records_max: int | None) -> int:
        if records_max is None:
            return self._engine.options.max_poll_records
        return check_int("max_records", records_max)

    def _delivered(self, taken: list[RecordRange]) -> Records:
        """Return collected ranges as records, with deserialized keys and values."""
        if self._deserializers is None:
            return to_records(taken)
        return self._deserializers.apply_to_ranges(self._engine, taken)

    def _end_cursor(self) -> None:
        """Close the cursor of a record loop; its undelivered records are delivered again."""
        loan, self._cursor = self._cursor, None
        if loan is not None:
            loan.close()

    def _restore_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition in self._engine.assignment():
            if partition in positions:
                self._engine.seek(partition, positions[partition])

    def _next_cursor(self) -> RecordCursor | None:
        """Return a cursor for a record loop, or None if no records are available."""
        taken = self._engine.collect_one(self._limit(None))
        if taken is not None:
            self._cursor = RecordCursor(self._engine, taken, self._deserializers)
            self._engine.assignment_source.on_poll_return()
        return self._cursor


def to_records(taken: Iterable[RecordRange]) -> Records:
    """Return collected ranges as `Records`."""
    return Records([Batch(t.chunk.content, t.from_offset, t.to_offset) for t in taken])


def partitions_behind(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions whose positions are before their end offsets."""
    return [p for p, end in ends.items() if p not in positions or positions[p] < end]
