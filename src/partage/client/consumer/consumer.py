"""The consumer for asynchronous code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from partage.client.consumer.errors import ReadTimedOut
from partage.client.consumer.face import Deadline, Face, Partition, batches, behind, named
from partage.client.consumer.listener import Stopwatch
from partage.client.consumer.place import Place, Written
from partage.client.consumer.records import COLUMNS, Record, Records, table
from partage.client.group.offsets import OffsetAndMetadata
from partage.client.metadata import TopicPartition
from partage.client.offsets import OffsetAndTimestamp
from partage.member.outcome import CallListener

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(Face):
    """Reads partitions of topics; on asyncio. `partage.sync.Consumer` is the same without.

    ``bootstrap_servers`` is ``host:port,host:port``; options are Kafka's in snake case, with its
    defaults (see the documentation). A context manager, and an asynchronous iterator of records::

        async with Consumer("localhost:9092", auto_offset_reset="earliest") as consumer:
            consumer.assign([("flights", 0)])
            async for record in consumer:
                print(record.value)

    Connections and fetching run in a thread of its own, which lasts until `close`. Methods that
    are no coroutines take effect at once. Everything that goes wrong is a `ClientError`; after
    one, the consumer can be used on. To be used by one task at a time; `close` may come from any.

    Raises:
        InvalidAddressError, UnknownOption, BadOption, InvalidSecurityOptionError: on construction.
    """

    async def poll(self, timeout_ms: float = 1000, max_records: int | None = None) -> Records:
        """What has been fetched: at once if there is anything, else within the time.

        At most ``max_records`` records (``max_poll_records`` if None); none if nothing came.
        """
        self._end_loan()
        deadline = Deadline(timeout_ms)
        while True:
            version = self._engine.version
            await self._tend()
            if self.is_drained:
                return batches(())
            taken = self._engine.take(self._limit(max_records))
            if taken or deadline.is_over:
                self._engine.owner.returned()
                return batches(taken)
            await _either(self._engine.change(version), deadline)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        if self._loan is not None and self._engine.version == self._seen:
            record = self._loan.next()  # nothing has happened since the last one
            if record is not None:
                return record
            self._loan = None
        while True:
            version = self._seen = self._engine.version
            await self._tend()
            if self._loan is not None:
                record = self._loan.next()
                if record is not None:
                    self._engine.owner.touched()
                    return record
                self._loan = None
            if self.is_drained:
                raise StopAsyncIteration
            if self._lend() is None:
                await _either(self._engine.change(version), Deadline(None))

    async def to_arrow(
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
        before = {partition: await self.position(partition) for partition in owned}
        ends = await self.end_offsets(owned)
        found = []
        try:
            while left := behind(self._engine.positions(), ends):
                if deadline.is_over:
                    raise ReadTimedOut(timeout_ms or 0, left)
                version = self._engine.version
                await self._tend()
                taken = batches(self._engine.take(None))
                found += [batch.to_arrow(columns) for batch in taken.batches]
                if not taken:
                    await _either(self._engine.change(version), deadline)
        except BaseException:
            self._go_back(before)
            raise
        return table(found, columns)

    async def position(self, partition: Partition) -> int:
        """The offset after the last record that was handed out; looked up if need be."""
        wanted = TopicPartition(*partition)
        while True:
            version = self._engine.version
            position = self._engine.position(wanted)
            if position is not None:
                return position
            await _either(self._engine.change(version), Deadline(None))

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Where partitions begin, assigned or not."""
        return await asyncio.wrap_future(
            self._engine.ask(self._engine.beginnings(named(partitions)))
        )

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offsets after the last records; read_committed: that have been decided."""
        return await asyncio.wrap_future(self._engine.ask(self._engine.latest(named(partitions))))

    async def offsets_for_times(
        self, times_ms: Mapping[Partition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset of a time (ms since the epoch) or later; None: no record is so late."""
        wanted = {TopicPartition(*partition): at for partition, at in times_ms.items()}
        return await asyncio.wrap_future(self._engine.ask(self._engine.offsets(wanted)))

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions that a topic has."""
        return await asyncio.wrap_future(self._engine.ask(self._engine.partitions_of(topic)))

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition's end is ahead of its position."""
        owned = self._engine.assignment()
        ends = await self.end_offsets(owned)
        return {p: max(0, ends[p] - await self.position(p)) for p in owned if p in ends}

    # The group.

    async def unsubscribe(self, timeout_ms: float = 30_000) -> None:
        """Leave the group; what the listener is due is done first, and the auto commit."""
        self._end_loan()
        await self._leave(Deadline(timeout_ms), closes=False)

    async def commit(self, offsets: Written | None = None) -> None:
        """Commit in the group: offsets of the next records to be read, by partition.

        Where the user has come to if nothing is named. Returns once the coordinator has it, or
        a later commit of this consumer.

        Raises:
            CommitFailed: not all of it was committed; the message says what, and why.
            NoGroup, NotSubscribed: there is nothing to commit for.
        """
        await asyncio.wrap_future(self._grouped("commit()").commit(offsets))

    async def committed(
        self, partitions: Iterable[Partition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for each partition; None for nothing."""
        wanted = named(partitions)
        found = await asyncio.wrap_future(self._grouped("committed()").committed(wanted))
        return {partition: found.get(partition) for partition in wanted}

    async def close(self, timeout_ms: float = 30_000) -> None:
        """End it; what was fetched and not handed out is dropped. Again does nothing.

        A member of a group commits by itself, if it does so at all, and leaves; a static one
        leaves without a word, so that it finds its partitions when it comes back (KIP-345).
        """
        self._end_loan()
        deadline = Deadline(timeout_ms)
        try:
            await self._leave(deadline, closes=True)
        finally:
            await asyncio.to_thread(self._engine.close, timeout_ms)

    async def _leave(self, deadline: Deadline, *, closes: bool) -> None:
        place = self._place
        if place is None or not place.is_subscribed:
            return
        await asyncio.to_thread(place.commit_last, deadline.left_s)
        owner, first = place.leave(closes=closes), None
        while owner is not None and not owner.is_out and not deadline.is_over:
            version = self._engine.version
            try:
                await self._tend()
            except Exception as error:  # the listener's; it is raised once we are out
                first = first or error
            if not owner.is_out:
                await _either(self._engine.change(version), deadline)
        if first is not None:
            raise first

    async def _tend(self) -> None:
        """Do what the group is due before anything is handed out."""
        place = self._place
        if place is None:
            return
        place.commit_if_due()
        first: Exception | None = None
        while (call := place.due) is not None:
            await self._commit_before(place, call)  # interrupted here, the next poll does it all
            try:
                await self._call(place, call)
            except Exception as error:  # the listener's; what was done stands (KIP-429)
                first = first or error
            finally:
                place.owner.called(call)
        if first is not None:
            raise first

    async def _commit_before(self, place: Place, call: CallListener) -> None:
        committing = self._engine.ask(place.owner.commit_quietly(place.before(call)))
        await asyncio.wrap_future(committing)

    async def _call(self, place: Place, call: CallListener) -> None:
        if place.listener is not None:
            with Stopwatch(call.callback):
                waited_for = place.listener.call(call.callback, place.partitions_of(call))
                if inspect.isawaitable(waited_for):
                    await waited_for

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def _either(waiter: Future[None], deadline: Deadline) -> None:
    """Wait for something to change, or for the time to be up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline.left_s):
            await asyncio.wrap_future(waiter)
