"""Faults of transactions, for a `ThreadedBroker`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from partage.broker.broker import Broker
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.testing.broker_loop import BrokerLoop
from partage.transactions.records import TransactionRecord
from partage.transactions.replies import ProducerReply

_POLL_S: Final = 0.002


class VerificationFault(msgspec.Struct, eq=False):
    """Verifications that fail, of one partition, one topic or all topics of users.

    Attributes:
        remaining: number of verifications that are still to fail.
        times: ``remaining`` at the start, for messages.
        is_required: True if it is an error that too few verifications happen.
    """

    topic: str | None
    partition: int | None
    remaining: int
    times: int
    is_required: bool

    def matches(self, where: TopicPartition) -> bool:
        """True if the fault applies to a partition."""
        if self.topic is None:
            return where.topic != OFFSETS_TOPIC
        return where.topic == self.topic and self.partition in (None, where.partition)

    def __str__(self) -> str:
        selection = ", ".join(repr(e) for e in (self.topic, self.partition) if e is not None)
        met = self.times - self.remaining
        call = f"faults.transactions.fail_verification({selection})"
        return f"{call} has met {met} of {self.times} verifications"


class TransactionFaults:
    """``broker.faults.transactions`` of a `ThreadedBroker`."""

    def __init__(self, broker: Broker, loop: BrokerLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._holds: list[Callable[[TopicPartition], bool]] = []
        self._verification_faults: list[VerificationFault] = []
        broker.transactions.fail_verification_if(self._fails_verification)

    def states(self) -> dict[str, str]:
        """Return the states of all transactional ids, such as ``Ongoing``, as Kafka names them."""
        return self._loop.call(
            lambda: {
                transactional_id: str(transaction.record.state)
                for host in self._coordinator().hosts
                if host.shard is not None
                for transactional_id, transaction in host.shard.transactions.items()
            }
        )

    @contextmanager
    def hold_markers(
        self, topic: str | None = None, partition: int | None = None
    ) -> Iterator[None]:
        """Hold the markers of transactions that commit or abort.

        The transaction stays in ``PrepareCommit`` or ``PrepareAbort``, and read_committed consumers
        do not get past its first record. The next transaction of the same producer begins when the
        markers are written.

        Args:
            topic: hold only the markers of this topic; by default of all topics.
            partition: hold only the marker of this partition of the topic.

        Raises:
            ValueError: ``partition`` without ``topic``.
        """
        if topic is None and partition is not None:
            raise ValueError(
                f"partition={partition} without a topic: hold_markers(topic, partition)"
            )

        def is_held(where: TopicPartition) -> bool:
            return topic in (None, where.topic) and partition in (None, where.partition)

        markers = self._coordinator().markers
        self._loop.call(lambda: markers.hold(is_held))
        self._holds.append(is_held)
        try:
            yield
        finally:
            self._release(is_held)

    def _release(self, is_held: Callable[[TopicPartition], bool]) -> None:
        if is_held in self._holds:
            self._holds.remove(is_held)
            if not self._loop.is_closed:
                self._loop.call(lambda: self._coordinator().markers.release(is_held))

    def fail_verification(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        times: int = 1,
        required: bool = True,
    ) -> None:
        """Fail the verification of a partition with the transaction coordinator (KIP-890).

        The leader of a partition verifies the first batch of each transaction. When this fails, it
        writes nothing, and the producer must abort. The error is INVALID_TXN_STATE for Produce up
        to v10, and TRANSACTION_ABORTABLE for later versions.

        Args:
            topic: the topic; by default the first topic that a producer writes to. With
                ``__consumer_offsets``, the next commit of offsets in a transaction fails.
            partition: the partition of the topic; by default the first that a producer writes to.
            times: the number of verifications.
            required: True if the test must fail when fewer than ``times`` verifications happen.

        Raises:
            ValueError: ``times`` is less than one, or ``partition`` is given without ``topic``.
        """
        if topic is None and partition is not None:
            raise ValueError(
                f"partition={partition} without a topic: fail_verification(topic, partition)"
            )
        if times < 1:
            raise ValueError(f"times={times}: at least one verification must fail")
        fault = VerificationFault(topic, partition, times, times, required)
        self._loop.call(lambda: self._verification_faults.append(fault))

    def _fails_verification(self, where: TopicPartition) -> bool:
        """Apply the oldest fault for a partition; return False if there is none."""
        for fault in self._verification_faults:
            if fault.matches(where):
                fault.remaining -= 1
                if not fault.remaining:
                    self._verification_faults.remove(fault)
                return True
        return False

    # The following methods are those of `Faults`, for the faults of `fail_verification`.

    @property
    def pending(self) -> int:
        """Number of verifications that are still to fail; read it on the broker's loop."""
        return sum(each.remaining for each in self._verification_faults)

    def unused(self) -> list[str]:
        """Describe the required faults that have not happened."""
        return [str(each) for each in self._verification_faults if each.is_required]

    def clear(self) -> None:
        """Remove the faults that have not happened; call it on the broker's loop."""
        self._verification_faults.clear()

    def waive(self) -> None:
        """Let the faults be unused. Any thread may call this."""
        for fault in list(self._verification_faults):
            fault.is_required = False

    def reset(self) -> None:
        """Release all held markers."""
        for is_held in list(self._holds):
            self._release(is_held)

    def time_out(self, transactional_id: str, *, within_s: float = 10.0) -> None:
        """Abort an open transaction, as if its timeout had passed. Its producer is fenced.

        Args:
            transactional_id: the transactional id.
            within_s: how long to wait until it has an open transaction.

        Raises:
            LookupError: the id has no open transaction.
            RuntimeError: called in a coroutine; `time_out_async` is for these.
        """
        self._loop.wait(
            lambda: self._time_out(transactional_id, within_s),
            blocking="time_out()",
            awaitable="faults.transactions.time_out_async(...)",
        )

    async def time_out_async(self, transactional_id: str, *, within_s: float = 10.0) -> None:
        """Do the same as `time_out`, without blocking the event loop.

        Raises:
            LookupError: the id has no open transaction.
        """
        await self._loop.wait_async(self._time_out(transactional_id, within_s))

    async def _time_out(self, transactional_id: str, within_s: float) -> None:
        clock = asyncio.get_running_loop().time
        give_up = clock() + within_s
        while not self._is_ongoing(transactional_id):
            if clock() > give_up:
                raise LookupError(f"{transactional_id!r} has no open transaction")
            await asyncio.sleep(_POLL_S)
        self._coordinator().host_of(transactional_id).time_out(transactional_id)

    def _is_ongoing(self, transactional_id: str) -> bool:
        shard = (
            self._coordinator().host_of(transactional_id).shard
            if self._coordinator().hosts
            else None
        )
        return shard is not None and transactional_id in shard.ongoing

    def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as if another process had initialized it.

        An open transaction is aborted.

        Raises:
            LookupError: no producer has initialized the id.
        """
        self._loop.call(lambda: self._fence(transactional_id))

    def _fence(self, transactional_id: str) -> None:
        record = self._record(transactional_id)
        if record is None:
            raise LookupError(f"no producer has initialized {transactional_id!r}")
        self._init_again(transactional_id, record.timeout_ms)

    def _init_again(self, transactional_id: str, timeout_ms: int) -> None:
        """Initialize a new producer, as often as a client would."""

        def on_reply(reply: ProducerReply) -> None:
            if reply.error is ErrorCode.CONCURRENT_TRANSACTIONS:
                # The open transaction is aborted first. Until then, its producer could still
                # repeat EndTxn with the earlier epoch (KIP-890).
                retry = partial(self._init_again, transactional_id, timeout_ms)
                asyncio.get_running_loop().call_later(_POLL_S, retry)

        self._coordinator().init_producer(transactional_id, timeout_ms, -1, -1, on_reply)

    def _record(self, transactional_id: str) -> TransactionRecord | None:
        coordinator = self._coordinator()
        shard = coordinator.host_of(transactional_id).shard if coordinator.hosts else None
        found = None if shard is None else shard.transactions.get(transactional_id)
        return None if found is None else found.record

    def _coordinator(self) -> TransactionCoordinator:
        return self._broker.transactions
