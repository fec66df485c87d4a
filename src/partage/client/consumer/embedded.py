"""The consumer's protocol at work: what a member's core asks of it, answered with an event.

Whatever is the user's (an assignor) or may take long runs in a thread, off the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeAlias, TypeVar

from partage.bridge.consumer_protocol import ConsumerProtocol, LeaderAssignmentError
from partage.client.cluster import Cluster
from partage.client.consumer.leading import described
from partage.client.consumer.watching import Watching
from partage.client.group.coordinator import Coordinator
from partage.client.group.driver import now_ms
from partage.member.events import (
    AssignmentComputed,
    AssignmentDecoded,
    AssignmentDecodeFailed,
    AssignorFailed,
    Event,
    JoinPrepared,
    JoinPrepareFailed,
)
from partage.member.outcome import (
    ComputeAssignment,
    DecodeAssignment,
    EncodeSubscription,
    WatchTopics,
)
from partage.member.ownership import Ownership

P = ParamSpec("P")
T = TypeVar("T")

Asked: TypeAlias = EncodeSubscription | ComputeAssignment | DecodeAssignment | WatchTopics

log = logging.getLogger(__name__)


class EmbeddedProtocol:
    """What one member answers its core, on the loop."""

    def __init__(
        self,
        embedding: ConsumerProtocol,
        cluster: Cluster,
        coordinator: Coordinator,
        group_id: str,
        watching: Watching,
    ) -> None:
        self._embedding = embedding
        self._cluster = cluster
        self._coordinator = coordinator
        self._group_id = group_id
        self._watching = watching

    async def answer(self, action: Asked, member: Ownership) -> Event | None:
        """The event that answers what the member's core asked."""
        match action:
            case EncodeSubscription():
                return await self._describe(action, member.topics)
            case ComputeAssignment():
                return await self._assign(action)
            case DecodeAssignment():
                return await self._decode(action)
            case WatchTopics():
                await self._keep_watch(action, member.membership.protocol)
                return None

    async def _describe(self, action: EncodeSubscription, topics: frozenset[str]) -> Event:
        try:
            protocols = await _off_loop(
                self._embedding.build_protocols, topics, action.owned, action.generation
            )
        except Exception as error:  # an assignor of the user's
            log.exception("assignor failed to encode its user data: group=%s", self._group_id)
            return JoinPrepareFailed(at_ms=now_ms(), serial=action.serial, reason=_story(error))
        return JoinPrepared(at_ms=now_ms(), serial=action.serial, protocols=protocols)

    async def _assign(self, action: ComputeAssignment) -> Event:
        try:
            assigning = self._embedding.decode_members(action.protocol, action.members)
            topics = await described(
                self._cluster,
                self._coordinator,
                self._group_id,
                assigning.assignor,
                await self._watching.lead(assigning.topics),
            )
            assignments = await _off_loop(self._embedding.assign, assigning, topics)
        except Exception as error:  # an assignor of the user's, or a subscription not to be read
            reason = _story(error)
            log.error("assignment failed: group=%s reason=%s", self._group_id, reason)
            return AssignorFailed(
                at_ms=now_ms(),
                serial=action.serial,
                reason=reason,
                assignments=self._embedding.encode_failure(action.members, reason),
            )
        return AssignmentComputed(at_ms=now_ms(), serial=action.serial, assignments=assignments)

    async def _decode(self, action: DecodeAssignment) -> Event:
        try:
            again = self._embedding.negotiate_version(action.protocol, action.assignment)
            partitions = await _off_loop(
                self._embedding.apply_assignment,
                action.protocol,
                action.assignment,
                action.generation,
            )
        except LeaderAssignmentError as error:
            return AssignmentDecodeFailed(at_ms=now_ms(), serial=action.serial, reason=str(error))
        except Exception as error:  # bytes that are no assignment, or an assignor of the user's
            reason = f"the assignment could not be applied: {_story(error)}"
            return AssignmentDecodeFailed(at_ms=now_ms(), serial=action.serial, reason=reason)
        return AssignmentDecoded(
            at_ms=now_ms(),
            serial=action.serial,
            partitions=tuple(partitions),
            is_subscribed=all(self._watching.is_wanted(topic) for topic, _ in partitions),
            rejoin_reason=again,
        )

    async def _keep_watch(self, action: WatchTopics, protocol: str | None) -> None:
        """The last assignment stands (KIP-814): what was it made of?"""
        if protocol is not None:
            assigning = self._embedding.decode_members(protocol, action.members)
            await self._watching.lead(assigning.topics)


async def _off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what is the user's, or may take long, in a thread."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, partial(work, *args, **kwargs))


def _story(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
