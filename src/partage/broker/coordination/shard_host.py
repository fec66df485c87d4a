"""Hosts one shard on the loop: events to its driver, records to its log, replies to clients."""

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

#: Of thousands of replies that fall due at once, as many leave in one turn of the loop.
_REPLIES_PER_TURN: Final = 128
_RELOAD_AFTER_S: Final = 0.5
_RELOAD_AFTER_MAX_S: Final = 10.0
_UNPUBLISHED_MAX: Final = 20_000  # of what may wait for the log, or for ZooKeeper


class ShardHost:
    """One shard, from loading to the end, through failures of its log.

    It is loaded in a thread of ``loaders``, the loop's own pool where there is none. The
    ``listener`` hears at once what happens, ``publisher`` when it is durable.
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
        #: With the mark that they wait for, and their epoch.
        self._unpublished = deque[tuple[int, GroupEvent | LagSample, int | None]]()
        self._loop = asyncio.get_running_loop()
        self._driver = Driver()
        self._incarnation = (
            0  # counts up when the log fails: what was under way before counts no more
        )
        self._loading: asyncio.Task[None] | None = None
        self._is_append_scheduled = False
        self._is_sending_replies = False
        self._timers = ShardTimers(
            name, clock, store, self._driver, self._fail, self._flush_outputs
        )
        self._has_failed = False  # since its store was opened
        self._is_resigned = False
        self._is_closed = False
        self._progress: asyncio.Future[None] | None = None  # for who waits until something changes

    # Life.

    def load(self, topics: frozenset[str] | None = None) -> None:
        """Begin to load; requests are told so until it is done.

        At a start ``topics`` are those that there are: one may have been deleted by a broker that
        died before the groups forgot it.
        """
        self._is_resigned = False
        self._driver.start_loading()
        self._loading = self._loop.create_task(self._load(topics))

    def resign(self) -> None:
        """The shard is somebody else's, until `load`: drop what is loaded, and say so."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._discard_state()
        self._has_failed = False  # who takes the shard over again opens a store of its own
        self._driver.resign()
        self._is_resigned = True
        self._flush_outputs()

    def flush(self) -> None:
        """Go on, after something on which replies depend has changed."""
        self._flush_outputs()

    def start_empty(self) -> None:
        """There is nothing to load."""
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
            except Exception:  # a fault of ours; somebody may see to it in the meantime
                log.exception("loading of %s failed, retrying", self._name)
                self._driver.fail()  # for it may have taken over half a shard
            else:
                self._flush_outputs()
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RELOAD_AFTER_MAX_S)

    def _replay(
        self, read: ContentReader, topics: frozenset[str] | None
    ) -> tuple[Shard, frozenset[str]]:
        """The shard, and the topics that it has offsets of and that there are no more."""
        shard = replay(read(), self._settings)
        if topics is None:
            return shard, frozenset()
        known = {topic for offsets in shard.offsets.values() for topic, _ in offsets}
        return shard, frozenset(known - topics)

    async def wait_loaded(self) -> None:
        """Return once loading is over."""
        if self._loading is not None:
            await self._loading

    async def wait_durable(self) -> None:
        """Return once all that was handed to it up to now is durable, through loading and failures
        of its log; or the shard is somebody else's.
        """
        life, mark = -1, 0
        while not (self._is_resigned or self._is_closed):
            if self._driver.shard is not None:
                if life != self._incarnation:  # what was under way before counts no more
                    life, mark = self._incarnation, self._driver.applied_mark
                if self._driver.is_durable(mark):
                    return
            self._progress = self._progress or self._loop.create_future()
            await asyncio.shield(self._progress)

    @property
    def caught_up_epoch(self) -> int | None:
        """The epoch, where the shard is here, and what it was to forget is gone for good."""
        return self._store.epoch if self._driver.is_caught_up else None

    def close(self) -> None:
        """Handle nothing any more."""
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
        """What is under way counts no more; the driver has to be told why."""
        self._incarnation += 1
        self._has_failed = True
        self._is_append_scheduled = False
        self._unpublished.clear()
        self._timers.cancel()

    # For tests that order faults.

    @property
    def shard(self) -> Shard | None:
        """The core; None while it is loaded."""
        return self._driver.shard

    def unload(self) -> None:
        """Drop what is loaded, until `load`; all who wait are told to look for a coordinator."""
        if self._loading is not None:
            self._loading.cancel()
        self._discard_state()
        self._driver.fail()
        self._flush_outputs()

    def expire_session(self, group_id: str, member_id: str) -> None:
        """Take a member for dead now."""
        key = SessionTimer(group_id, member_id)
        self.handle(TimerFired(at_ms=self._clock.now_ms(), key=key))

    # Events.

    def handle(self, event: Event) -> None:
        """Hand an event to the core."""
        try:
            self._driver.handle(event)
        except Exception as error:  # a fault of ours: what is durable is right, so begin there
            log.exception("event handler of %s failed: event=%s", self._name, type(event).__name__)
            self._fail(error)
        self._flush_outputs()

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Topics are gone; so are the offsets that groups have of them."""
        self.handle(TopicsDeleted(at_ms=self._clock.now_ms(), topics=names))

    def _flush_outputs(self) -> None:
        """Send what may be sent, store what is to be stored, and see to the next timer."""
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

    # Telling.

    @property
    def is_authoritative(self) -> bool:
        """Whether what the shard says now is so: it is loaded, and nobody else can have it."""
        return self._driver.shard is not None and self._store.may_answer()

    def publish(self, told: GroupEvent | LagSample) -> None:
        """Tell it once all that the shard has stored up to now is durable, at a time when nobody
        else can have the shard: what is told has happened then. If somebody has it, never.
        """
        if self._publisher is None or self._is_resigned:
            return
        if len(self._unpublished) >= _UNPUBLISHED_MAX:
            self._publisher.count_dropped(1)
            return
        self._unpublished.append((self._driver.applied_mark, told, self._store.epoch))
        self._publish_durable()

    def _publish_durable(self) -> None:
        assert self._publisher is not None
        while self._unpublished and self._driver.is_durable(self._unpublished[0][0]):
            if not self._store.may_answer():
                return
            _, told, epoch = self._unpublished.popleft()
            try:
                self._publisher.publish(told, epoch)
            except Exception:  # a fault of ours; groups go on without their events
                log.exception("publishing group events of %s failed", self._name)

    def _publish_loaded(self, shard: Shard, at_ms: int) -> None:
        """Who reads the events learns what there is, should some of them be missing."""
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

    # Replies.

    def _send_replies(self) -> None:
        """Send replies in order; a reply may bring its connection's next request, and so more.

        None while somebody else may have the shard: they wait until it is known.
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

    # The log.

    def _append_unsent(self, life: int) -> None:
        """Append everything that this turn of the loop has brought, as one batch."""
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
        except Exception as error:  # a fault of ours, such as a record that cannot be encoded
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
    except Exception:  # a fault of ours: this client alone loses its connection
        log.exception("encoding of a response failed: api=%r", inbound.api)
        inbound.connection.close()
