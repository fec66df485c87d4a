"""Host of a shard: events to its driver, records to its log, replies to clients."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import Executor
from typing import Final, cast

from partage.bridge.api_adapter import deliver
from partage.broker.clock import Clock
from partage.broker.coordination.group_event_listeners import (
    GroupEventListener,
    GroupEventPublisher,
)
from partage.broker.coordination.shard_timers import ShardTimers
from partage.broker.coordination.state_store import ContentReader, StateStore, StoredCallback
from partage.broker.net.inbound_request import InboundRequest
from partage.coordinator.events import Event, TimerFired, TopicsDeleted
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.coordinator.records import GroupTombstone, OffsetTombstone, Record
from partage.coordinator.shard import Shard
from partage.coordinator.timers import SessionTimer
from partage.log.errors import DamagedLogError
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver
from partage.store.group_events import LagSample
from partage.store.shard_log import replay, subscribed_topics
from partage.wire.primitives import MalformedError

log = logging.getLogger(__name__)

#: Replies that are sent in one turn of the loop, if thousands are ready at once.
_REPLIES_PER_TURN: Final = 128
_RELOAD_AFTER_S: Final = 0.5
_RELOAD_AFTER_MAX_S: Final = 10.0
_UNPUBLISHED_MAX: Final = 20_000  # events that wait for the log or for ZooKeeper


class ShardHost:
    """Runs one shard, through loading and failures of its log.

    Args:
        name: the shard's name in log lines.
        store: the shard's log.
        settings: the group settings.
        clock: the broker's clock.
        listener: called with each group event at once.
        loaders: threads for loading; by default the loop's pool.
        publisher: receives group events once they are durable.
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
    ) -> None:
        self._name = name
        self._store = store
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._loaders = loaders
        self._publisher = publisher
        #: With the mark they wait for, and their epoch.
        self._unpublished = deque[tuple[int, GroupEvent | LagSample, int | None]]()
        self._loop = asyncio.get_running_loop()
        self._driver = Driver()
        self._incarnation = 0  # incremented when the log fails: results of earlier work are ignored
        self._loading: asyncio.Task[None] | None = None
        self._is_append_scheduled = False
        self._is_sending_replies = False
        self._timers = ShardTimers(
            name, clock, store, self._driver, self._fail, self._flush_outputs
        )
        self._has_failed = False  # since the store was opened
        self._is_resigned = False
        self._is_closed = False
        self._progress: asyncio.Future[None] | None = None  # resolved at the next change

    def load(self, topics: frozenset[str] | None = None) -> None:
        """Start loading; until it is done, requests fail with COORDINATOR_LOAD_IN_PROGRESS.

        Args:
            topics: at a start or takeover, the existing topics. Offsets of other topics are
                deleted: a broker may have failed between the deletion of a topic and of its
                offsets.
        """
        self._is_resigned = False
        self._driver.start_loading()
        self._loading = self._loop.create_task(self._load(topics))

    def resign(self) -> None:
        """Drop the loaded state until `load`: another broker owns the shard."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._discard_state()
        self._has_failed = False  # the next ownership has a new log
        self._driver.resign()
        self._is_resigned = True
        self._flush_outputs()

    def flush(self) -> None:
        """Continue after a change on which replies depend, such as a renewed lease."""
        self._flush_outputs()

    def start_empty(self) -> None:
        """Activate the shard without loading: its log is empty."""
        self._driver.activate(Shard(self._settings, subscribed_topics), self._clock.now_ms())
        self._flush_outputs()

    async def _load(self, topics: frozenset[str] | None) -> None:
        delay_s = _RELOAD_AFTER_S
        while not self._is_closed:
            try:
                if self._has_failed:
                    await self._store.reopen()
                read = await self._store.prepare_read()
                loading = self._loop.run_in_executor(self._loaders, self._replay, read, topics)
                shard, gone = await loading
                now_ms = self._clock.now_ms()
                self._driver.activate(shard, now_ms)
                self._publish_loaded(shard, now_ms)
                if gone:
                    self._driver.handle(TopicsDeleted(at_ms=now_ms, topics=gone))
            except (OSError, DamagedLogError, MalformedError) as error:
                log.error("loading of %s failed, retrying: %s", self._name, error)
            except Exception:  # a bug; retry, it may depend on the state
                log.exception("loading of %s failed, retrying", self._name)
                self._driver.fail()  # the driver may be partly activated
            else:
                self._flush_outputs()
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RELOAD_AFTER_MAX_S)

    def _replay(
        self, read: ContentReader, topics: frozenset[str] | None
    ) -> tuple[Shard, frozenset[str]]:
        """Return the shard, and the topics with offsets that no longer exist."""
        shard = replay(read(), self._settings)
        if topics is None:
            return shard, frozenset()
        known = {topic for offsets in shard.offsets.values() for topic, _ in offsets}
        return shard, frozenset(known - topics)

    async def wait_loaded(self) -> None:
        """Return once loading has ended."""
        if self._loading is not None:
            await self._loading

    async def wait_durable(self) -> None:
        """Return once everything received so far is durable, or another broker owns the shard.

        It waits through loading and failures of the log.
        """
        life, mark = -1, 0
        while not (self._is_resigned or self._is_closed):
            if self._driver.shard is not None:
                # a reloaded shard has only durable state; wait for what follows
                if life != self._incarnation:
                    life, mark = self._incarnation, self._driver.applied_mark
                if self._driver.is_durable(mark):
                    return
            self._progress = self._progress or self._loop.create_future()
            await asyncio.shield(self._progress)

    @property
    def caught_up_epoch(self) -> int | None:
        """Epoch of the shard if it is loaded here and all its deletions are durable, otherwise
        None.
        """
        return self._store.epoch if self._driver.is_caught_up else None

    def close(self) -> None:
        """Stop handling events."""
        self._is_closed = True
        self._notify_progress()
        if self._loading is not None:
            self._loading.cancel()
        self._timers.cancel()

    def _fail(self, error: BaseException) -> None:
        log.error("reloading %s after a failure: %s", self._name, error)
        self._discard_state()
        self._driver.fail()
        self.load()
        self._flush_outputs()

    def _discard_state(self) -> None:
        """Ignore all work in progress; the caller must tell the driver why."""
        self._incarnation += 1
        self._has_failed = True
        self._is_append_scheduled = False
        self._unpublished.clear()
        self._timers.cancel()

    # For tests that inject faults.

    @property
    def shard(self) -> Shard | None:
        """The state machine; None while it is being loaded."""
        return self._driver.shard

    def unload(self) -> None:
        """Drop the loaded state until `load`; open requests get COORDINATOR_NOT_AVAILABLE."""
        if self._loading is not None:
            self._loading.cancel()
        self._discard_state()
        self._driver.fail()
        self._flush_outputs()

    def remove_groups(self) -> None:
        """Remove all groups and offsets; open requests get COORDINATOR_NOT_AVAILABLE."""
        shard = self._driver.shard
        assert shard is not None, f"{self._name} is not loaded"
        removed: list[Record] = [
            OffsetTombstone(group_id=group_id, topic=topic, partition=partition)
            for group_id, offsets in shard.offsets.items()
            for topic, partition in offsets
        ]
        removed += [GroupTombstone(group_id=group_id) for group_id in shard.groups]
        self.unload()
        if removed:
            self._store.append(removed, self._clock.now_ms(), lambda error: None)
        self.start_empty()

    def expire_session(self, group_id: str, member_id: str) -> None:
        """Expire a member's session now."""
        key = SessionTimer(group_id, member_id)
        self.handle(TimerFired(at_ms=self._clock.now_ms(), key=key))

    def handle(self, event: Event) -> None:
        """Pass an event to the state machine."""
        try:
            self._driver.handle(event)
        except Exception as error:  # a bug; reload the shard, since the durable state is correct
            log.exception("event handler of %s failed: event=%s", self._name, type(event).__name__)
            self._fail(error)
        self._flush_outputs()

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Delete the groups' offsets of deleted topics."""
        self.handle(TopicsDeleted(at_ms=self._clock.now_ms(), topics=names))

    def _flush_outputs(self) -> None:
        """Send replies, schedule the append, publish events, and schedule the next timer."""
        driver = self._driver
        if driver.ready and not self._is_sending_replies:
            self._send_replies()
        if self._unpublished:
            self._publish_durable()
        if driver.unsent and not self._is_append_scheduled:
            self._is_append_scheduled = True
            self._loop.call_soon(self._append_unsent, self._incarnation)
        if driver.group_events:
            for notice in driver.pop_group_events():
                self._listener(notice)
                self.publish(notice)
        self._timers.schedule()
        if self._progress is not None:
            self._notify_progress()

    def _notify_progress(self) -> None:
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None

    @property
    def is_authoritative(self) -> bool:
        """True if the shard is loaded and no other broker can own it now."""
        return self._driver.shard is not None and self._store.may_answer()

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
            if group.members:
                loaded = GroupEvent(
                    at_ms=at_ms,
                    group_id=group.id,
                    event_type=GroupEventType.LOADED,
                    generation=group.generation,
                    reason=str(group.state),
                    group_record=group.record,
                )
                self.publish(loaded)

    def _send_replies(self) -> None:
        """Send ready replies in order; a reply may start the next request of its connection.

        Nothing is sent while another broker may own the shard.
        """
        if not (self._is_resigned or self._store.may_answer()):
            self._is_sending_replies = False
            return
        self._is_sending_replies = True
        left = _REPLIES_PER_TURN
        while left and self._driver.ready:
            for ticket, reply in self._driver.pop_ready(left):
                left -= 1
                call = deliver(ticket, reply)
                if call is not None:
                    _respond(cast(InboundRequest, call))
        if self._driver.ready:
            self._loop.call_soon(self._send_replies)
        else:
            self._is_sending_replies = False

    def _append_unsent(self, life: int) -> None:
        """Append all records of this turn of the loop as one batch."""
        if life != self._incarnation:
            return
        self._is_append_scheduled = False
        records, mark = self._driver.pop_unsent()
        if not records:
            return
        try:
            self._store.append(records, self._clock.now_ms(), self._append_callback(mark, life))
        except OSError as error:
            self._fail(error)
        except Exception as error:  # a bug, for example a record that cannot be encoded
            log.exception("append to the log of %s failed", self._name)
            self._fail(error)

    def _append_callback(self, mark: int, life: int) -> StoredCallback:
        def stored(error: ErrorCode) -> None:
            if life != self._incarnation or self._is_closed:
                return
            if error:
                self._fail(OSError(f"the append failed with {error.name}"))
            else:
                self._driver.on_durable(mark)
                self._flush_outputs()

        return stored


def _respond(inbound: InboundRequest) -> None:
    try:
        inbound.respond_encoded(inbound.encode_response())
    except Exception:  # a bug: only this client loses its connection
        log.exception("encoding of a response failed: api=%r", inbound.api)
        inbound.connection.close()
