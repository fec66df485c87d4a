"""What of its topics is a query's own: all of it, or its share as a member of a group.

Everything here runs on one loop. A member heartbeats and joins again by itself, at any time; what
it is told to give up it keeps until `Holding.give_up`, which is called between two batches only.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from partage.bridge.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocol
from partage.client.cluster import Cluster
from partage.client.consumer.group_assignment import GroupAssignment
from partage.client.errors import ClientError
from partage.client.group.errors import (
    AssignmentFailedError,
    CommitFailedError,
    GroupError,
    MemberFailedError,
)
from partage.client.group.offsets import OffsetAndMetadata
from partage.client.metadata import TopicPartition
from partage.member.outcome import ListenerCallback
from partage.member.settings import MemberSettings
from partage.spark.group_options import GroupOptions
from partage.spark.options import Assign, Subscribe, SubscribePattern, Wanted
from partage.spark.stream.planner import Tenure

log = logging.getLogger(__name__)

Tenures = Mapping[TopicPartition, Tenure]

_LOOKED_EVERY_S: Final = 1.0
_COMMIT_PATIENCE_S: Final = 5.0
_LEAVE_PATIENCE_S: Final = 3.0


class Holding(ABC):
    """Which partitions are the query's; the group's offsets where there is a group."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    @abstractmethod
    async def begin(self) -> None:
        """Begin to hold something; does not wait until there is something."""

    @abstractmethod
    async def tenures(self) -> Tenures:
        """What is held and may be read now. Raises what ends the query."""

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What the group has committed."""
        return {}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Have the group know how far the query is; whether it does. Never raises."""
        return True

    @property
    @abstractmethod
    def owned(self) -> Tenures:
        """What is held, with what is to be given up."""

    @property
    def to_give_up(self) -> tuple[TopicPartition, ...]:
        """What `give_up` gives up."""
        return ()

    def give_up(self) -> None:  # noqa: B027
        """No batch is under way: give up what others wait for."""

    @property
    def identity(self) -> tuple[str, int]:
        """Member and generation; "" and -1 outside a group."""
        return "", -1

    @property
    def is_in(self) -> bool:
        """Whether the first assignment has come, be it empty."""
        return True

    async def change(self, timeout_s: float) -> None:
        """Wait until what is held may have changed, no longer than that."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way to the query, or away from it, as far as it knows."""
        return True

    async def stop(self, *, leaves: bool) -> None:  # noqa: B027
        """Hold nothing any more, and if it ``leaves``, let the group know."""


class Everything(Holding):
    """All that the options name, outside any group; new partitions are found by looking."""

    def __init__(self, look: Callable[[], Awaitable[Iterable[TopicPartition]]]) -> None:
        super().__init__()
        self._look = look
        self._partitions: Tenures = {}
        self._looked_s: float | None = None

    async def begin(self) -> None:
        await self.tenures()

    @property
    def owned(self) -> Tenures:
        return self._partitions

    async def tenures(self) -> Tenures:
        now_s = asyncio.get_running_loop().time()
        if self._looked_s is None or now_s - self._looked_s >= _LOOKED_EVERY_S:
            self._partitions = dict.fromkeys(await self._look(), 0)
            self._looked_s = now_s
        return self._partitions


class Share(Holding):
    """A member's share of the topics. The holdings of a `GroupAssignment`, which runs the member.

    With ``assign`` there is a group to commit to, and no membership: everything is held.
    """

    def __init__(self, cluster: Cluster, wanted: Wanted, group: GroupOptions) -> None:
        super().__init__()
        assert group.group_id is not None, "GroupPartitions needs a group id"
        self._group_id = group.group_id
        self._wanted = wanted
        self._tenures: dict[TopicPartition, Tenure] = {}
        self._serial = 0
        self._loop = asyncio.get_running_loop()
        self._is_left = False
        self._said = ""
        self._owner = GroupAssignment(
            cluster,
            self,
            MemberSettings(
                group_id=self._group_id,
                protocol_type=PROTOCOL_TYPE,
                instance_id=group.instance_id,
                session_timeout_ms=group.session_timeout_ms,
                heartbeat_interval_ms=group.heartbeat_interval_ms,
                rebalance_timeout_ms=group.rebalance_timeout_ms,
                max_poll_interval_ms=None,  # a query is not polled; its source process lives
                request_timeout_ms=cluster.options.request_timeout_ms,
                retry_backoff_ms=cluster.options.retries.backoff_ms,
                retry_backoff_max_ms=cluster.options.retries.backoff_max_ms,
            ),
            ConsumerProtocol(group.assignors, group.rack),
        )

    async def begin(self) -> None:
        match self._wanted:
            case Assign(partitions=partitions):
                self.own(partitions)
            case Subscribe(topics=topics):
                await self._owner.subscribe(frozenset(topics), None)
            case SubscribePattern(pattern=pattern):
                await self._owner.subscribe(frozenset(), re.compile(pattern))

    @property
    def owned(self) -> Tenures:
        return self._tenures

    async def tenures(self) -> Tenures:
        self._raise_failure()
        return {p: t for p, t in self._tenures.items() if self._owner.may_deliver(p)}

    def _raise_failure(self) -> None:
        """Raise what is final, say what is not."""
        if isinstance(self._wanted, Assign):
            return
        try:
            self._owner.on_poll()
        except MemberFailedError:
            raise
        except (AssignmentFailedError, GroupError) as error:
            log.warning("group %s: %s", self._group_id, error)

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = await self._owner.committed_offsets(partitions) if partitions else {}
        return {partition: at.offset for partition, at in found.items()}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        # Of one generation only: joined anew, the member may not own these any more.
        identity = self._owner.identity
        if self._is_left or identity is None:
            return False
        try:
            async with asyncio.timeout(_COMMIT_PATIENCE_S):
                at = {p: OffsetAndMetadata(offset) for p, offset in offsets.items()}
                await self._owner.commit(at, only_as=identity)
        except CommitFailedError as error:  # a rebalance, mostly; the next call makes up for it
            log.info("group %s: %s", self._group_id, error)
        except (ClientError, TimeoutError) as error:
            self._say(f"group {self._group_id}: could not commit offsets, will retry: {error!r}")
        else:
            self._said = ""
            return True
        return False

    def _say(self, story: str) -> None:
        """Log, once for as long as it stays the same."""
        if story != self._said:
            log.warning("%s", story)
            self._said = story

    @property
    def to_give_up(self) -> tuple[TopicPartition, ...]:
        due = self._owner.due_callback
        if due is None or due.callback is not ListenerCallback.REVOKED:
            return ()
        return tuple(TopicPartition(*partition) for partition in due.partitions)

    def give_up(self) -> None:
        due = self._owner.due_callback
        if due is not None and due.callback is ListenerCallback.REVOKED:
            self._owner.callback_done(due)

    @property
    def identity(self) -> tuple[str, int]:
        identity = self._owner.identity
        return ("", -1) if identity is None else (identity.member_id, identity.generation)

    @property
    def is_in(self) -> bool:
        return self._owner.identity is not None

    @property
    def is_settled(self) -> bool:
        return (
            self._owner.identity is not None
            and self._owner.due_callback is None
            and all(map(self._owner.may_deliver, self._tenures))
        )

    async def stop(self, *, leaves: bool) -> None:
        self._is_left = True
        if leaves and not isinstance(self._wanted, Assign):
            await self._owner.leave("the query has ended")
            deadline_s = self._loop.time() + _LEAVE_PATIENCE_S
            while not self._owner.has_left and self._loop.time() < deadline_s:
                self.give_up()
                await self.change(0.1)
        await self._owner.close(0)

    # What the member's shell tells (`Holdings`).

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold these, of a new tenure."""
        for partition in partitions:
            self._serial += 1
            self._tenures[partition] = self._serial

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold these no more."""
        for partition in partitions:
            self._tenures.pop(partition, None)

    def assignment(self) -> list[TopicPartition]:
        """What is held."""
        return sorted(self._tenures)

    def is_idle(self) -> bool:
        """Whether nothing is held."""
        return not self._tenures

    def positions(self) -> Mapping[TopicPartition, int]:
        """Nothing is committed by itself."""
        return {}

    def wake(self) -> None:
        """Something is different: what is assigned, or gone anyway, needs no batch to end."""
        due = self._owner.due_callback
        if due is not None and due.callback is not ListenerCallback.REVOKED:
            self._owner.callback_done(due)
        self._changed.set()
