"""Host of a shard of the group coordinator."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from partage.bridge.api_adapter import SubTicket, deliver
from partage.broker.clock import Clock
from partage.broker.coordination.base_shard_host import BaseShardHost
from partage.broker.coordination.group_event_listeners import (
    GroupEventListener,
    GroupEventPublisher,
)
from partage.broker.coordination.state_store import ContentReader, StateStore
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.turn_limiter import TurnLimiter
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.progress import snapshot_event
from partage.coordinator.events import (
    CompleteTransaction,
    Request,
    Ticket,
    TimerFired,
    TopicsDeleted,
)
from partage.coordinator.group import Group
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.coordinator.records import OffsetTombstone, Record
from partage.coordinator.shard import Shard
from partage.coordinator.timers import SessionTimer
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver
from partage.store.embedded_protocol import KafkaEmbeddedProtocol
from partage.store.group_events import LagSample
from partage.store.shard_log import EncodedRecord, encode_ahead, replay, subscribed_topics

if TYPE_CHECKING:
    from partage.broker.coordination.consumer_group_services import ConsumerGroupServices
    from partage.broker.coordination.group_actions import ActionResult

log = logging.getLogger(__name__)

_UNPUBLISHED_MAX: Final = 20_000  # events that wait for the log or for ZooKeeper


class ShardHost(BaseShardHost[Driver]):
    """Runs one shard of the group coordinator.

    Args:
        name: the shard's name in log lines.
        store: the shard's log.
        settings: the group settings.
        clock: the broker's clock.
        listener: called with each group event at once.
        loaders: threads for loading; by default the loop's pool.
        publisher: receives group events once they are durable.
        services: topics, configs and assignors for groups with the consumer protocol. Without them
            these groups are not served.
        turns: the requests that wait for their turns, and that timers must not overtake.
    """

    def __init__(
        self,
        name: str,
        store: StateStore,
        settings: GroupSettings,
        clock: Clock,
        listener: GroupEventListener,
        loaders: Executor | None = None,
        publisher: GroupEventPublisher | None = None,
        services: ConsumerGroupServices | None = None,
        turns: TurnLimiter | None = None,
    ) -> None:
        super().__init__(name, store, clock, Driver(), loaders, turns)
        self._settings = settings
        self._listener = listener
        self._publisher = publisher
        self._services = services
        #: With the mark they wait for, and their epoch.
        self._unpublished = deque[tuple[int, GroupEvent | LagSample, int | None]]()

    def load(self, topics: frozenset[str] | None = None) -> None:
        """Start loading; until it is done, requests fail with COORDINATOR_LOAD_IN_PROGRESS.

        Args:
            topics: at a start or takeover, the existing topics. Offsets of other topics are
                deleted: a broker may have failed between the deletion of a topic and of its
                offsets.
        """
        self._start_loading(partial(self._read_shard, topics))

    def start_empty(self) -> None:
        """Activate the shard without loading: its log is empty."""
        shard = Shard(self._settings, subscribed_topics, KafkaEmbeddedProtocol())
        self._activate(shard, frozenset())
        self._flush_outputs()

    def _read_shard(self, topics: frozenset[str] | None, read: ContentReader) -> Callable[[], None]:
        """Read the shard, and find the topics with offsets that no longer exist."""
        shard = replay(read(), self._settings)
        if topics is None:
            return partial(self._activate, shard, frozenset())
        known = {
            topic for group_id in shard.groups for topic, _ in shard.offset_partitions(group_id)
        }
        return partial(self._activate, shard, frozenset(known - topics))

    def _activate(self, shard: Shard, deleted_topics: frozenset[str]) -> None:
        now_ms = self._clock.now_ms()
        if self._services is not None:
            # before the sessions of members restart and requests that wait are handled
            shard.handle(self._services.configs_event(now_ms))
            shard.handle(self._services.images.to_event(now_ms))
        self._driver.activate(shard, now_ms)
        self._publish_loaded(shard, now_ms)
        if deleted_topics:
            self._driver.handle(TopicsDeleted(at_ms=now_ms, topics=deleted_topics))

    def refresh_topics(self) -> None:
        """Report the current topics to a loaded shard."""
        if self._services is not None and self._driver.shard is not None:
            self.handle(self._services.images.to_event(self._clock.now_ms()))

    def refresh_group_configs(self) -> None:
        """Report the current configs of groups to a loaded shard."""
        if self._services is not None and self._driver.shard is not None:
            self.handle(self._services.configs_event(self._clock.now_ms()))

    @property
    def caught_up_epoch(self) -> int | None:
        """Epoch of the shard if it is loaded here and all its deletions are durable, otherwise
        None.
        """
        return self._store.epoch if self._driver.is_caught_up else None

    # For tests that inject faults.

    @property
    def shard(self) -> Shard | None:
        """The state machine; None while it is being loaded."""
        return self._driver.shard

    def remove_groups(self) -> None:
        """Remove all groups and offsets; open requests get COORDINATOR_NOT_AVAILABLE."""
        shard = self._driver.shard
        assert shard is not None, f"{self._name} is not loaded"
        removed: list[Record] = [
            OffsetTombstone(group_id=group_id, topic=topic, partition=partition)
            for group_id in shard.groups
            for topic, partition in shard.offset_partitions(group_id)
        ]
        removed += [each for group in shard.groups.values() for each in group.tombstones()]
        self.unload()
        if removed:
            self._store.append(removed, self._clock.now_ms(), lambda error: None, [len(removed)])
        self.start_empty()

    def expire_session(self, group_id: str, member_id: str) -> None:
        """Expire a member's session now."""
        key = SessionTimer(group_id, member_id)
        self.handle(TimerFired(at_ms=self._clock.now_ms(), key=key))

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Delete the groups' offsets of deleted topics."""
        self.handle(TopicsDeleted(at_ms=self._clock.now_ms(), topics=names))

    def complete_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append the marker of a transaction: its pending offsets are committed or dropped.

        Args:
            producer_id: the producer of the transaction.
            producer_epoch: the epoch of the marker.
            coordinator_epoch: the epoch of the transaction coordinator.
            is_commit: True to commit, False to abort.
            done: called once with NONE when the marker is durable, or with an error.
        """
        self.handle(
            CompleteTransaction(
                at_ms=self._clock.now_ms(),
                reply_to=Ticket(_CompletionTicket(done)),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                is_commit=is_commit,
            )
        )

    def answer(self, event: Request) -> None:
        """Pass the only event of a request to the state machine.

        A reply that waits for nothing is sent in fewer steps than by `handle`.
        """
        driver = self._driver
        try:
            reply = driver.answer(event)
        except Exception as error:
            self._on_handler_failed(event, error)
            reply = None
        if reply is not None:
            if driver.ready or self._is_sending_replies or not self._may_send():
                driver.ready.append((event.reply_to, reply))
            else:
                self._is_sending_replies = True
                try:
                    self._deliver(event.reply_to, reply)
                finally:
                    self._is_sending_replies = False
                # requests that the reply has started have flushed their outputs, except replies
                if not (driver.ready or driver.timers.is_wake_changed):
                    return
        self._flush_outputs()

    def _deliver(self, ticket: Any, reply: Any) -> None:
        if type(ticket) is _CompletionTicket:
            ticket.done(reply.error)
            return
        inbound: Any = ticket.call if type(ticket) is SubTicket else ticket
        try:
            if type(ticket) is InboundRequest and ticket.repeat_response(reply):
                return
            if deliver(ticket, reply) is not None:
                inbound.respond_with_replies()
        except Exception:  # a bug: only this client loses its connection
            log.exception("encoding of a response failed: api=%r", inbound.api)
            inbound.connection.close()

    def _encode_ahead(self, record: Record) -> Record | EncodedRecord:
        return encode_ahead(record)

    def _flush_notices(self) -> None:
        if self._unpublished:
            self._publish_durable()
        if self._driver.group_events:
            for event in self._driver.pop_group_events():
                self._listener(event)
                self.publish(event)
        if self._driver.actions and self._services is not None:
            done = partial(self._on_action_done, self._incarnation)
            for action in self._driver.pop_actions():
                self._services.run(action, done)

    def _on_action_done(self, incarnation: int, result: ActionResult) -> None:
        """Pass the result of an action on, unless its shard was discarded meanwhile."""
        if incarnation == self._incarnation and not self._is_closed:
            self.handle(result)

    def _drop_notices(self) -> None:
        self._unpublished.clear()

    def publish(self, event: GroupEvent | LagSample) -> None:
        """Publish an event once everything applied so far is durable and the lease is valid.

        If another broker takes over before that, the event is never published.
        """
        if self._publisher is None or self._is_resigned:
            return
        if len(self._unpublished) >= _UNPUBLISHED_MAX:
            self._publisher.count_dropped(1)
            return
        self._unpublished.append((self._driver.applied_mark, event, self._store.epoch))
        self._publish_durable()

    def _publish_durable(self) -> None:
        assert self._publisher is not None
        while self._unpublished and self._driver.is_durable(self._unpublished[0][0]):
            if not self._store.may_answer():
                return
            _, event, epoch = self._unpublished.popleft()
            try:
                self._publisher.publish(event, epoch)
            except Exception:  # a bug; groups continue without their events
                log.exception("publishing group events of %s failed", self._name)

    def _publish_loaded(self, shard: Shard, at_ms: int) -> None:
        """Publish the state of each loaded group, because earlier events may be missing."""
        if self._publisher is None:
            return
        for group in shard.groups.values():
            if isinstance(group, ConsumerGroup) and group.members:
                self.publish(
                    snapshot_event(
                        at_ms, group, shard.catalogue, GroupEventType.LOADED, group.state_name
                    )
                )
            elif isinstance(group, Group) and group.members:
                loaded = GroupEvent(
                    at_ms=at_ms,
                    group_id=group.id,
                    event_type=GroupEventType.LOADED,
                    generation=group.generation,
                    reason=str(group.state),
                    group_record=group.record,
                )
                self.publish(loaded)


class _CompletionTicket:
    """The ticket of a CompleteTransaction; equal only to itself."""

    __slots__ = ("done",)

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self.done = done
