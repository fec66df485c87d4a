"""Idle long polls of a world, which are answered once for many polls.

A consumer without new records sends a Fetch request about every half second, and each one is
answered with nothing. A world would spend most of its work on that. Here the broker holds such a
request for longer than its client asked, and answers it when one of the later polls would have
ended. The answer is sent at the first such time after something that may change what the client
fetches:

- the client sends something on the same connection, or any request except heartbeats and commits;
- code of the user's program runs in the client's process.

- new records arrive that are fewer bytes than the request wants.

Otherwise new records are sent at once, as for any request that waits. So each world has a history
that is possible without this, too: the left out polls would have had no effect.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from partage.broker.apis.fetch import FetchHandler
from partage.broker.broker import Broker
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.broker.topics.log_reader import LogReader
from partage.lab.brokers.observed_response import (
    ObservedResponse,
    observe_response,
    original_connection,
)
from partage.log.disk import Disk
from partage.testing.world.network import WorldNetwork, WorldTransport
from partage.testing.world.process import WorldProcess
from partage.testing.world.virtual_loop import VirtualLoop
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.fetch import FETCH, FetchRequest
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.offset_commit import OFFSET_COMMIT

#: The longest time that a request is held, in seconds; clients give up after 30 s or 40 s.
_HOLD_MAX_S: Final = 10.0
#: How long a client may take between a response and its next request, besides the network.
_REACTION_MAX_S: Final = 0.01
#: No request is held for this time after a response that may change what its client fetches.
_CHANGE_S: Final = 1.0
#: Waits end at whole milliseconds.
_ROUNDING_S: Final = 0.001
#: Requests that do not change what a consumer fetches.
_ROUTINE: Final = frozenset({HEARTBEAT.key, OFFSET_COMMIT.key})


class _WorldFetch(FetchHandler):
    """A Fetch request that may be held.

    Attributes:
        on_news: Called when there are new records, but not enough to end the wait.
    """

    on_news: Callable[[], None] | None = None

    def on_partition_changed(self, byte_count: int) -> None:
        """Count new bytes."""
        super().on_partition_changed(byte_count)
        if self.on_news is not None and not self._inbound.is_done:
            self.on_news()


class _IdlePoll:
    """The fetches of one connection since one of them was answered with nothing.

    Args:
        client: the client's end of the connection.
        process: the process of the client.
        asked: what the request asked for.
        answered_s: the time of the empty answer.
        serial: the number of the last timer that was set before that.

    Attributes:
        hold: the request that is held now.
    """

    def __init__(
        self,
        client: WorldTransport,
        process: WorldProcess,
        asked: object,
        answered_s: float,
        serial: int,
    ) -> None:
        self.client = client
        self.process = process
        self.asked = asked
        self.answered_s = answered_s
        self.serial = serial
        self.hold: _Hold | None = None


class _Hold:
    """A request that is held.

    Args:
        inbound: the request.
        fetch: its handler, which waits.
        first_s: the time at which the wait of the client's own poll ends.
        cycle_s: the time from one poll to the next.
        context: a context of the broker's process.
    """

    def __init__(
        self,
        inbound: InboundRequest,
        fetch: FetchHandler,
        first_s: float,
        cycle_s: float,
        context: contextvars.Context,
    ) -> None:
        self.context = context
        self.is_lost = False
        self._inbound = inbound
        self._fetch = fetch
        self._first_s = first_s
        self._cycle_s = cycle_s

    def next_end_s(self, now_s: float) -> float:
        """Return the end of the poll that would wait now."""
        cycles = math.ceil((now_s - self._first_s) / self._cycle_s)
        return self._first_s + max(0, cycles) * self._cycle_s

    def end(self) -> None:
        """Answer the request unless it was answered, or its connection was lost."""
        if not self._inbound.is_done and not self.is_lost:
            self._fetch.end_wait()


class IdlePolls:
    """Holds the idle fetches of all processes of a world.

    Args:
        loop: the loop of the world.
        network: its network.
    """

    def __init__(self, loop: VirtualLoop, network: WorldNetwork) -> None:
        self._loop = loop
        self._network = network
        self._polls: dict[WorldTransport, _IdlePoll] = {}
        self._changed_s: dict[WorldProcess, float] = {}

    def observe(self, broker: Broker, disk: Disk) -> None:
        """Hold idle requests to a broker that has started; call it in the broker's process.

        Call it before other observers, so that they see each request and its answer.
        """
        reader = LogReader(disk)
        context = contextvars.copy_context()

        def start(inbound: InboundRequest) -> _WorldFetch:
            fetch = _WorldFetch(inbound, broker.log_manager, reader)
            fetch.run()
            return fetch

        def wrap(handler: Handler) -> Handler:
            def handle(inbound: InboundRequest) -> None:
                if inbound.api.key in _ROUTINE:
                    handler(inbound)
                    return
                client = self._client_of(inbound)
                process = None if client is None else client.process
                if client is None or process is None:
                    handler(inbound)
                elif inbound.api is FETCH:
                    poll = self._polls.get(client)
                    self._observe_fetch(inbound, client, process)
                    if poll is None or not self._try_to_hold(inbound, poll, start, context):
                        handler(inbound)
                else:
                    self._observe_change(inbound, process)
                    handler(inbound)

            return handle

        broker.server.intercept(wrap)

    def _client_of(self, inbound: InboundRequest) -> WorldTransport | None:
        """Return the client's end of a request's connection."""
        connection: Any = original_connection(inbound)  # which is its protocol, too
        return self._network.other_end(connection)

    # Observed requests

    def _observe_fetch(
        self, inbound: InboundRequest, client: WorldTransport, process: WorldProcess
    ) -> None:
        """Begin an idle poll if the answer has no records after the whole wait."""
        began_s, message = self._loop.time(), inbound.message
        wait_s, asked = message.max_wait_ms / 1000, _asked(message)
        poll = self._polls.get(client)
        if poll is not None and poll.asked != asked:
            self._forget(poll)

        def answered(response: ObservedResponse) -> None:
            now_s = self._loop.time()
            old = self._polls.get(client)
            if old is not None:
                self._forget(old)
            if wait_s > 0 and now_s - began_s >= wait_s - _ROUNDING_S and not response.has_records:
                new = _IdlePoll(client, process, asked, now_s, self._loop.next_serial())
                self._polls[client] = new
                process.watch(new, lambda: self._on_activity(new))

        observe_response(inbound, answered)

    def _observe_change(self, inbound: InboundRequest, process: WorldProcess) -> None:
        """End idle polls at a request, and at its response, which may change what is fetched."""
        is_heartbeat = inbound.api is CONSUMER_GROUP_HEARTBEAT

        def answered(response: ObservedResponse) -> None:
            if is_heartbeat:
                message = response.message
                if message.assignment is None and not message.error_code:
                    return
            self._on_change(process)

        if not is_heartbeat:
            self._on_change(process)
        observe_response(inbound, answered)

    def _on_change(self, process: WorldProcess) -> None:
        self._changed_s[process] = self._loop.time()
        for poll in [poll for poll in self._polls.values() if poll.process is process]:
            self._on_activity(poll)

    # Held requests

    def _try_to_hold(
        self,
        inbound: InboundRequest,
        poll: _IdlePoll,
        start: Callable[[InboundRequest], _WorldFetch],
        context: contextvars.Context,
    ) -> bool:
        """Hold a request if it repeats one that was answered with nothing."""
        now_s, message, client = self._loop.time(), inbound.message, poll.client
        round_trip_s = 2 * self._network.slowest_s
        pause_s = now_s - poll.answered_s
        wait_s = message.max_wait_ms / 1000
        if (
            self._polls.get(client) is not poll
            or pause_s > round_trip_s + _REACTION_MAX_S
            or now_s < self._changed_s.get(poll.process, -math.inf) + round_trip_s + _CHANGE_S
            or client.get_write_buffer_size()  # another request follows
        ):
            return False
        cycle_s = wait_s + pause_s
        timer_s = self._loop.first_timer_s(poll.process, poll.serial)  # of the request's timeout
        limit_s = min(now_s + _HOLD_MAX_S, timer_s - cycle_s)
        cycles = int((limit_s - now_s - wait_s) / cycle_s)
        if cycles < 1:
            return False
        inbound.message = replace(message, max_wait_ms=int((wait_s + cycles * cycle_s) * 1000))
        fetch = start(inbound)
        if not inbound.is_done:
            poll.hold = hold = _Hold(inbound, fetch, now_s + wait_s, cycle_s, context)
            client.on_write = fetch.on_news = lambda: self._on_activity(poll)
            connection = inbound.connection
            stop_waiting = connection.on_lost

            def on_lost() -> None:
                hold.is_lost = True
                self._forget(poll)
                if stop_waiting is not None:
                    stop_waiting()

            connection.on_lost = on_lost
        return True

    def _on_activity(self, poll: _IdlePoll) -> None:
        """Answer a held request when its present poll would end."""
        self._forget(poll)
        hold = poll.hold
        if hold is not None:
            at_s = hold.next_end_s(self._loop.time())
            self._loop.call_at(at_s, hold.end, context=hold.context.copy())

    def _forget(self, poll: _IdlePoll) -> None:
        if self._polls.get(poll.client) is poll:
            del self._polls[poll.client]
        poll.client.on_write = None
        poll.process.unwatch(poll)


def _asked(message: FetchRequest) -> object:
    """Return what a request asks for, in any order of the partitions."""
    partitions = frozenset(
        (topic.topic, topic.topic_id, each.partition, each.fetch_offset)
        for topic in message.topics
        for each in topic.partitions
    )
    return message.max_wait_ms, message.min_bytes, message.isolation_level, partitions
