"""The consumer for code that is not asynchronous."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self

from partage.client.consumer.errors import ReadTimedOut
from partage.client.consumer.face import Deadline, Face, Partition, batches, behind, named
from partage.client.consumer.listener import RebalanceListener, Stopwatch
from partage.client.consumer.place import Place, Written
from partage.client.consumer.records import COLUMNS, Record, Records, table
from partage.client.group.offsets import OffsetAndMetadata
from partage.client.metadata import TopicPartition
from partage.client.offsets import OffsetAndTimestamp
from partage.member.outcome import CallListener

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(Face):
    """Reads partitions of topics; `partage.Consumer` without asyncio.

    A context manager, and an iterator of records::

        with Consumer("localhost:9092", auto_offset_reset="earliest") as consumer:
            consumer.assign([("flights", 0)])
            for record in consumer:
                print(record.value)

    To be used by one thread at a time; `close` may come from any.

    Raises:
        InvalidAddressError, UnknownOption, BadOption, InvalidSecurityOptionError: on construction.
    """

    def poll(self, timeout_ms: float = 1000, max_records: int | None = None) -> Records:
        """What has been fetched: at once if there is anything, else within the time.

        At most ``max_records`` records (``max_poll_records`` if None); none if nothing came.
        """
        self._end_loan()
        deadline = Deadline(timeout_ms)
        while True:
            version = self._engine.version
            self._tend()
            if self.is_drained:
                return batches(())
            taken = self._engine.take(self._limit(max_records))
            if taken or deadline.is_over:
                self._engine.owner.returned()
                return batches(taken)
            _either(self._engine.change(version), deadline)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        if self._loan is not None and self._engine.version == self._seen:
            record = self._loan.next()  # nothing has happened since the last one
            if record is not None:
                return record
            self._loan = None
        while True:
            version = self._seen = self._engine.version
            self._tend()
            if self._loan is not None:
                record = self._loan.next()
                if record is not None:
                    self._engine.owner.touched()
                    return record
                self._loan = None
            if self.is_drained:
                raise StopIteration
            if self._lend() is None:
                _either(self._engine.change(version), Deadline(None))

    def to_arrow(
        self, *, columns: Sequence[str] = COLUMNS, timeout_ms: float | None = None
    ) -> pa.Table:
        """Everything from the positions to the ends as they are now, as one table.

        Raises:
            ReadTimedOut: the ends were not reached in time. As after every error, the positions
                are as they were before.
        """
        self._end_loan()
        deadline = Deadline(timeout_ms)
        owned = self._engine.assignment()
        before = {partition: self.position(partition) for partition in owned}
        ends = self.end_offsets(owned)
        found = []
        try:
            while left := behind(self._engine.positions(), ends):
                if deadline.is_over:
                    raise ReadTimedOut(timeout_ms or 0, left)
                version = self._engine.version
                self._tend()
                taken = batches(self._engine.take(None))
                found += [batch.to_arrow(columns) for batch in taken.batches]
                if not taken:
                    _either(self._engine.change(version), deadline)
        except BaseException:
            self._go_back(before)
            raise
        return table(found, columns)

    def arrow_reader(
        self, *, columns: Sequence[str] = COLUMNS, timeout_ms: float | None = None
    ) -> pa.RecordBatchReader:
        """The same as a stream of record batches, read as they are asked for.

        Positions move with it. Raises, when it is read, `ReadTimedOut` if nothing came for
        ``timeout_ms`` and the ends are not reached.
        """
        import pyarrow as pa

        from partage.client.arrow import kafka_schema

        self._end_loan()
        schema = kafka_schema(columns)
        return pa.RecordBatchReader.from_batches(schema, self._to_ends(columns, timeout_ms))

    def _to_ends(
        self, columns: Sequence[str], timeout_ms: float | None
    ) -> Iterator[pa.RecordBatch]:
        ends = self.end_offsets(self._engine.assignment())
        deadline = Deadline(timeout_ms)
        while left := behind(self._engine.positions(), ends):
            version = self._engine.version
            self._tend()
            if taken := self._engine.take(None, parts_max=1):
                yield batches(taken).batches[0].to_arrow(columns)
                deadline = Deadline(timeout_ms)
            elif deadline.is_over:
                raise ReadTimedOut(timeout_ms or 0, left)
            else:
                _either(self._engine.change(version), deadline)

    def position(self, partition: Partition) -> int:
        """The offset after the last record that was handed out; looked up if need be."""
        wanted = TopicPartition(*partition)
        while True:
            version = self._engine.version
            position = self._engine.position(wanted)
            if position is not None:
                return position
            _either(self._engine.change(version), Deadline(None))

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Where partitions begin, assigned or not."""
        return self._engine.ask(self._engine.beginnings(named(partitions))).result()

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offsets after the last records; read_committed: that have been decided."""
        return self._engine.ask(self._engine.latest(named(partitions))).result()

    def offsets_for_times(
        self, times_ms: Mapping[Partition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset of a time (ms since the epoch) or later; None: no record is so late."""
        wanted = {TopicPartition(*partition): at for partition, at in times_ms.items()}
        return self._engine.ask(self._engine.offsets(wanted)).result()

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions that a topic has."""
        return self._engine.ask(self._engine.partitions_of(topic)).result()

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition's end is ahead of its position."""
        owned = self._engine.assignment()
        ends = self.end_offsets(owned)
        return {p: max(0, ends[p] - self.position(p)) for p in owned if p in ends}

    # The group.

    def unsubscribe(self, timeout_ms: float = 30_000) -> None:
        """Leave the group; what the listener is due is done first, and the auto commit."""
        self._end_loan()
        self._leave(Deadline(timeout_ms), closes=False)

    def commit(self, offsets: Written | None = None) -> None:
        """Commit in the group: offsets of the next records to be read, by partition.

        Where the user has come to if nothing is named. Returns once the coordinator has it, or
        a later commit of this consumer.

        Raises:
            CommitFailed: not all of it was committed; the message says what, and why.
            NoGroup, NotSubscribed: there is nothing to commit for.
        """
        self._grouped("commit()").commit(offsets).result()

    def commit_async(self, offsets: Written | None = None) -> Future[None]:
        """The same without waiting; the future says what came of it."""
        return self._grouped("commit_async()").commit(offsets)

    def committed(
        self, partitions: Iterable[Partition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for each partition; None for nothing."""
        wanted = named(partitions)
        found = self._grouped("committed()").committed(wanted).result()
        return {partition: found.get(partition) for partition in wanted}

    def close(self, timeout_ms: float = 30_000) -> None:
        """End it; what was fetched and not handed out is dropped. Again does nothing.

        A member of a group commits by itself, if it does so at all, and leaves; a static one
        leaves without a word, so that it finds its partitions when it comes back (KIP-345).
        """
        self._end_loan()
        deadline = Deadline(timeout_ms)
        try:
            self._leave(deadline, closes=True)
        finally:
            self._engine.close(timeout_ms)

    def _leave(self, deadline: Deadline, *, closes: bool) -> None:
        place = self._place
        if place is None or not place.is_subscribed:
            return
        place.commit_last(deadline.left_s)
        owner, first = place.leave(closes=closes), None
        while owner is not None and not owner.is_out and not deadline.is_over:
            version = self._engine.version
            try:
                self._tend()
            except Exception as error:  # the listener's; it is raised once we are out
                first = first or error
            if not owner.is_out:
                _either(self._engine.change(version), deadline)
        if first is not None:
            raise first

    def _tend(self) -> None:
        """Do what the group is due before anything is handed out."""
        place = self._place
        if place is None:
            return
        place.commit_if_due()
        first: Exception | None = None
        while (call := place.due) is not None:
            self._commit_before(place, call)  # interrupted here, the next poll does it all
            try:
                self._call(place, call)
            except Exception as error:  # the listener's; what was done stands (KIP-429)
                first = first or error
            finally:
                place.owner.called(call)
        if first is not None:
            raise first

    def _commit_before(self, place: Place, call: CallListener) -> None:
        self._engine.ask(place.owner.commit_quietly(place.before(call))).result()

    def _call(self, place: Place, call: CallListener) -> None:
        if place.listener is not None:
            with Stopwatch(call.callback):
                place.listener.call(call.callback, place.partitions_of(call))

    def _checked(self, listener: RebalanceListener | None) -> RebalanceListener | None:
        if listener is not None and listener.is_asynchronous:
            raise ValueError(
                "the listener has coroutine functions, which only partage.Consumer can await"
            )
        return listener

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _either(waiter: Future[None], deadline: Deadline) -> None:
    """Wait for something to change, or for the time to be up."""
    try:
        waiter.result(deadline.left_s)
    except TimeoutError:
        waiter.cancel()
