"""The blocking consumer."""

# Generated from consumer.py by tools/generate_sync.py; do not edit.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from partage.client.consumer.arguments import (
    OffsetsLike,
    PartitionLike,
    TimesLike,
    to_timestamps,
    to_topic_partition,
    to_topic_partitions,
)
from partage.client.consumer.base_consumer import partitions_behind, to_records
from partage.client.consumer.deadline import Deadline
from partage.client.consumer.errors import ReadTimeoutError
from partage.client.consumer.group_subscription import GroupSubscription
from partage.client.consumer.listener import CallbackTimer, keep_first_error
from partage.client.consumer.records import (
    COLUMNS,
    Record,
    Records,
    arrow_table,
    check_columns,
    import_arrow,
)
from partage.client.consumer.sync_support import (
    SyncConsumerBase,
    call_listener,
    result_by,
    result_of,
    run_blocking,
    wait_for_change,
)
from partage.client.group.offsets import OffsetAndMetadata
from partage.client.offsets import OffsetAndTimestamp
from partage.member.outcome import CallListener
from partage.model.arguments import check_optional_timeout_ms, check_text, check_timeout_ms
from partage.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(SyncConsumerBase):
    """A consumer of topic partitions, for code without asyncio.

    It is a context manager and an iterator of records::

        with Consumer("localhost:9092", auto_offset_reset="earliest") as consumer:
            consumer.assign([("flights", 0)])
            for record in consumer:
                print(record.value)

    Connections and fetches run in a background thread, which lasts until `close`. Methods without
    I/O take effect at once. Every failure is a `ClientError`; the consumer stays usable after one.
    Calls that look offsets or topics up end after ``default_api_timeout_ms``: with the last error,
    or with `ApiTimeoutError` if a request is not answered.
    One thread at a time may use a consumer, but any thread may call `close`.

    Args:
        bootstrap_servers: Addresses of brokers: ``host:port``, several as a list or separated by
            commas.
        options: Kafka's consumer settings in snake case, with Kafka's defaults; see
            `partage.ConsumerConfig`.

    Raises:
        InvalidAddressError, UnknownOptionError, InvalidOptionError, InvalidSecurityOptionError:
            An argument is invalid.
    """

    def poll(self, timeout_ms: int = 1000, max_records: int | None = None) -> Records:
        """Return fetched records; wait for some up to a timeout.

        Args:
            timeout_ms: Longest wait in milliseconds if no records are available; an integer.
            max_records: Most records to return; ``max_poll_records`` if None.

        Returns:
            The records, empty if none arrived in time or the consumer is drained.

        Raises:
            InvalidArgumentError: An argument is not an integer of 0 or more.
            DeserializationError: A deserializer failed on the first record.
            ClientError: An error that concerns an assigned partition, the group or the cluster.
        """
        deadline, limit = Deadline(check_timeout_ms(timeout_ms)), self._limit(max_records)
        self._end_cursor()
        while True:
            version = self._engine.version
            self._run_due_callbacks(deadline)
            if self.is_drained:
                return to_records(())
            taken = self._engine.collect(limit)
            if taken or deadline.is_expired:
                self._engine.assignment_source.on_poll_return()
                return self._delivered(taken)
            wait_for_change(self._engine.next_change(version), deadline)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        if self._cursor is not None and self._engine.version == self._seen_version:
            record = self._cursor.next()  # Nothing has changed since the last record.
            if record is not None:
                return record
            self._cursor = None
        while True:
            version = self._seen_version = self._engine.version
            self._run_due_callbacks(Deadline(None))
            if self._cursor is not None:
                record = self._cursor.next()
                if record is not None:
                    self._engine.assignment_source.on_next_record()
                    return record
                self._cursor = None
            if self.is_drained:
                raise StopIteration
            if self._next_cursor() is None:
                wait_for_change(self._engine.next_change(version), Deadline(None))

    def to_arrow(
        self, *, columns: Sequence[str] = COLUMNS, timeout_ms: int | None = None
    ) -> pa.Table:
        """Read from the positions to the current end offsets, and return all records as one table.

        Args:
            columns: The names of the columns to return.
            timeout_ms: Longest time for the whole read, with the lookups of offsets; None for no
                limit, also in an outage.

        Returns:
            A table with the wanted columns and a row for each record.

        Raises:
            InvalidArgumentError: A column does not exist, or ``timeout_ms`` is not an integer.
            ModuleNotFoundError: PyArrow is not installed (``pip install 'partage[arrow]'``).
            PositionTimeoutError, ApiTimeoutError: A position or an end offset was not found within
                ``default_api_timeout_ms``.
            ReadTimeoutError: The end offsets were not reached in time. After any error, the
                positions are what they were before the call.
        """
        names, deadline = check_columns(columns), Deadline(check_optional_timeout_ms(timeout_ms))
        import_arrow()
        self._end_cursor()
        owned = self._engine.assignment()
        try:
            before = {each: self._position(each, deadline) for each in owned}
            ends = result_by(self._engine.submit(self._engine.end_offsets(owned)), deadline)
        except TimeoutError as error:
            if not deadline.is_expired:
                raise
            raise ReadTimeoutError(timeout_ms or 0, owned) from error
        found = []
        try:
            while left := partitions_behind(self._engine.positions(), ends):
                if deadline.is_expired:
                    raise ReadTimeoutError(timeout_ms or 0, left)
                version = self._engine.version
                self._run_due_callbacks(deadline)
                taken = to_records(self._engine.collect(None))
                found += [batch.to_arrow(names) for batch in taken.batches]
                if not taken:
                    wait_for_change(self._engine.next_change(version), deadline)
        except BaseException:
            self._restore_positions(before)
            raise
        return arrow_table(found, names)

    def position(self, partition: PartitionLike) -> int:
        """Return the offset after the last delivered record; wait for it if it must be looked up.

        Raises:
            NotAssignedError: The partition is not assigned to this consumer.
            PositionTimeoutError: It was not found within ``default_api_timeout_ms``.
            ClientError: The offset lookup failed.
        """
        return self._position(to_topic_partition(partition), Deadline(None))

    def _position(self, partition: TopicPartition, deadline: Deadline) -> int:
        limit = Deadline(self._engine.default_api_timeout_ms).earlier(deadline)
        while True:
            version = self._engine.version
            position = self._engine.position(partition, limit)
            if position is not None:
                return position
            wait_for_change(self._engine.next_change(version), limit)

    def beginning_offsets(self, partitions: Iterable[PartitionLike]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, assigned or not."""
        return result_of(
            self._engine.submit(self._engine.beginning_offsets(to_topic_partitions(partitions)))
        )

    def end_offsets(self, partitions: Iterable[PartitionLike]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, assigned or not.

        With ``isolation_level="read_committed"`` it is the last stable offset.
        """
        return result_of(
            self._engine.submit(self._engine.end_offsets(to_topic_partitions(partitions)))
        )

    def offsets_for_times(
        self, times_ms: TimesLike
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record offset at or after a timestamp, for each partition.

        Args:
            times_ms: Timestamps in ms since the epoch, by partition.

        Returns:
            The offset found and its timestamp; None if all records are older.
        """
        wanted = to_timestamps(times_ms)
        return result_of(self._engine.submit(self._engine.offsets_for_times(wanted)))

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; raise `UnknownTopicError` if it does not exist."""
        check_text("topic", topic, "flights")
        return result_of(self._engine.submit(self._engine.partitions_of(topic)))

    def lag(self) -> dict[TopicPartition, int]:
        """Return the number of offsets between position and end of each assigned partition."""
        owned = self._engine.assignment()
        ends = self.end_offsets(owned)
        return {p: max(0, ends[p] - self.position(p)) for p in owned if p in ends}

    # Consumer group.

    def unsubscribe(self, timeout_ms: int = 30_000) -> None:
        """Leave the group, after a last auto commit and the due listener callbacks."""
        deadline = Deadline(check_timeout_ms(timeout_ms))
        self._end_cursor()
        self._leave(deadline, closes=False)

    def commit(self, offsets: OffsetsLike | None = None) -> None:
        """Commit offsets in the group.

        It returns when the coordinator has stored these offsets, or those of a later commit of this
        consumer.

        Args:
            offsets: Offsets of the next records to read, by partition; the current positions if
                None.

        Raises:
            CommitFailedError: At least one offset was not committed; the message names the
                partitions.
            MissingGroupIdError, NotSubscribedError: The consumer has no group or no partitions.
        """
        result_of(self._require_group("commit()").commit(offsets))

    def committed(
        self, partitions: Iterable[PartitionLike]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition; None if there is none."""
        wanted = to_topic_partitions(partitions)
        found = result_of(self._require_group("committed()").committed(wanted))
        return {partition: found.get(partition) for partition in wanted}

    def close(self, timeout_ms: int = 30_000) -> None:
        """Close the consumer and drop its undelivered records; a second call does nothing.

        A member of a group makes a last auto commit, if enabled, and leaves. A static member does
        not send LeaveGroup, so that it gets the same partitions when it returns (KIP-345).
        """
        deadline = Deadline(check_timeout_ms(timeout_ms))
        self._end_cursor()
        try:
            self._leave(deadline, closes=True)
        finally:
            run_blocking(self._engine.close, timeout_ms)

    def _leave(self, deadline: Deadline, *, closes: bool) -> None:
        place = self._group
        if place is None or not place.is_subscribed:
            return
        run_blocking(place.commit_before_leave, deadline.remaining_s)
        owner, first = place.leave(closes=closes), None
        while owner is not None and not owner.has_left and not deadline.is_expired:
            version = self._engine.version
            try:
                self._run_due_callbacks(deadline)
            except Exception as error:  # An error of the listener is raised after the leave.
                first = keep_first_error(first, error)
            if not owner.has_left:
                wait_for_change(self._engine.next_change(version), deadline)
        if first is not None:
            raise first

    def _run_due_callbacks(self, deadline: Deadline) -> None:
        """Run the due listener callbacks and auto commits before records are delivered.

        Args:
            deadline: The end of waits for the commit before a revocation; see `_next_callback`.
        """
        place = self._group
        if place is None:
            return
        place.commit_if_due()
        first: Exception | None = None
        while (call := self._next_callback(place, deadline)) is not None:
            try:
                self._call(place, call)
            # The assignment stays valid after a listener error (KIP-429).
            except Exception as error:
                first = keep_first_error(first, error)
            finally:
                place.assignment.callback_done(call)
            # Wait for the event loop: afterwards `assignment` lacks the given up partitions.
            result_of(self._engine.earlier_events())
        if first is not None:
            raise first

    def _next_callback(self, place: GroupSubscription, deadline: Deadline) -> CallListener | None:
        """Return the callback to run now, or None.

        The commit before a revocation delays the poll for a limited time. If it takes longer, the
        partitions to revoke deliver no records, and the others continue. Without any wait, the
        revocation would be late: it would follow the processing of the records of this poll.
        """
        while True:
            version = self._engine.version
            call = place.due_callback
            if call is None or place.may_run(call):
                return call
            limit = deadline.earlier(place.commit_deadline)
            if limit.is_expired or self._engine.is_close_called:
                return None
            place.assignment.on_commit_wait()
            wait_for_change(self._engine.next_change(version), limit)

    def _call(self, place: GroupSubscription, call: CallListener) -> None:
        if place.listener is not None:
            with CallbackTimer(call.callback):
                call_listener(place.listener, call.callback, place.partitions_of(call))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
