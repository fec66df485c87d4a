"""The consumer's embedded protocol: it answers actions of the member core with events.

User code (assignors) and slow work run in a thread, not on the event loop.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import ParamSpec, TypeAlias, TypeVar

from partage.bridge.consumer_protocol import ConsumerProtocol, LeaderAssignmentError
from partage.client.cluster import Cluster
from partage.client.consumer.assignor_topics import describe_topics
from partage.client.consumer.metadata_watcher import MetadataWatcher
from partage.client.consumer.unassigned_partitions import find_unassigned
from partage.client.errors import ClientError
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.driver import now_ms
from partage.client.loop_thread import run_in_executor
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

ProtocolAction: TypeAlias = EncodeSubscription | ComputeAssignment | DecodeAssignment | WatchTopics

log = logging.getLogger(__name__)


class ConsumerProtocolHandler:
    """The handler of one member's protocol actions; it runs on the event loop."""

    def __init__(
        self,
        embedding: ConsumerProtocol,
        cluster: Cluster,
        coordinator: CoordinatorClient,
        group_id: str,
        watching: MetadataWatcher,
    ) -> None:
        self._embedding = embedding
        self._cluster = cluster
        self._coordinator = coordinator
        self._group_id = group_id
        self._watching = watching

    async def handle(self, action: ProtocolAction, member: Ownership) -> Event | None:
        """Perform an action of the member core and return the event that answers it."""
        match action:
            case EncodeSubscription():
                return await self._describe(action, member.topics)
            case ComputeAssignment():
                return await self._assign(action)
            case DecodeAssignment():
                return await self._decode(action)
            case WatchTopics():
                await self._keep_assignment(action, member)
                return None

    async def _describe(self, action: EncodeSubscription, topics: frozenset[str]) -> Event:
        try:
            protocols = await run_in_executor(
                partial(self._embedding.build_protocols, topics, action.owned, action.generation)
            )
        except Exception as error:  # An assignor is user code and may raise anything.
            log.exception("assignor failed to encode its user data: group=%s", self._group_id)
            return JoinPrepareFailed(at_ms=now_ms(), serial=action.serial, reason=_story(error))
        return JoinPrepared(at_ms=now_ms(), serial=action.serial, protocols=protocols)

    async def _assign(self, action: ComputeAssignment) -> Event:
        try:
            assigning = self._embedding.decode_members(action.protocol, action.members)
            topics = await describe_topics(
                self._cluster,
                self._coordinator,
                self._group_id,
                assigning.assignor,
                await self._watching.watch_topics(assigning.topics),
            )
            assignments = await run_in_executor(partial(self._embedding.assign, assigning, topics))
        # An assignor may raise anything, and a subscription may not be decodable.
        except Exception as error:
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
            partitions = await run_in_executor(
                partial(
                    self._embedding.apply_assignment,
                    action.protocol,
                    action.assignment,
                    action.generation,
                )
            )
        except LeaderAssignmentError as error:
            return AssignmentDecodeFailed(at_ms=now_ms(), serial=action.serial, reason=str(error))
        # The bytes may not be an assignment, and an assignor may raise anything.
        except Exception as error:
            reason = f"the assignment could not be applied: {_story(error)}"
            return AssignmentDecodeFailed(at_ms=now_ms(), serial=action.serial, reason=reason)
        return AssignmentDecoded(
            at_ms=now_ms(),
            serial=action.serial,
            partitions=tuple(partitions),
            is_subscribed=all(self._watching.is_subscribed(topic) for topic, _ in partitions),
            rejoin_reason=again,
        )

    async def _keep_assignment(self, action: WatchTopics, member: Ownership) -> None:
        """Keep the last assignment of a static leader that returned (KIP-814).

        Watch its topics. If they have got partitions that no member is assigned, rejoin.
        """
        membership = member.membership
        if membership.protocol is None:
            return
        generation = membership.generation
        wanted = self._embedding.decode_members(membership.protocol, action.members).topics
        while membership.is_in_generation and membership.generation == generation:
            try:
                topics = await self._cluster.with_retries(
                    partial(self._watching.watch_topics, wanted)
                )
                unassigned = await self._cluster.with_retries(
                    partial(find_unassigned, self._coordinator, self._group_id, topics)
                )
            except ClientError as error:
                log.info("last assignment is not checked: group=%s error=%s", self._group_id, error)
                if error.is_retriable:
                    continue
                return
            if unassigned and membership.generation == generation:
                names = ", ".join(sorted({partition.topic for partition in unassigned}))
                self._watching.partitions_changed(
                    f"no member is assigned all partitions of {names}"
                )
            return


def _story(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
