"""The history of the coordinators of a world, judged by the rules of `partage.lab`.

The rules see what they see in the worlds of `lab`: requests and responses on the wire, and the
records that shards append, store and load. Here, production brokers and consumers cause them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from partage.broker.broker import Broker
from partage.broker.net.inbound_request import InboundRequest
from partage.lab import history
from partage.lab.brokers.observed_response import (
    ObservedResponse,
    observe_response,
    original_connection,
)
from partage.lab.brokers.recorded_shard_host import (
    EntryRecorder,
    RecordedShardHost,
    broker_number,
)
from partage.lab.checkers import attach_coordinator_checkers
from partage.model.settings import GroupSettings
from partage.testing.world.process import current_process
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.apis.sync_group import SYNC_GROUP

#: The requests that the rules know; all of them have a group.
_WATCHED: Final = frozenset(
    api.key
    for api in (
        CONSUMER_GROUP_HEARTBEAT,
        HEARTBEAT,
        JOIN_GROUP,
        LEAVE_GROUP,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        SYNC_GROUP,
    )
)
_TopicNames = Callable[[bytes], str]


class CoordinatorHistory:
    """Records the history of group coordinators, and reports rules that it breaks.

    Args:
        brokers: The names of the brokers.
        settings: The settings of the brokers' groups.
        report: Called with a broken rule and its description.
        last_pause: Returns begin and end of the last pause of a process, in virtual seconds.
        has_consumer_group: True if the group `partage.lab.names.CONSUMER_GROUP` speaks the consumer
            protocol.

    Attributes:
        broker_class: The class of the brokers that are recorded.
    """

    def __init__(
        self,
        brokers: Collection[str],
        settings: GroupSettings,
        report: Callable[[str, str], None],
        last_pause: Callable[[str], tuple[float, float]],
        *,
        has_consumer_group: bool,
    ) -> None:
        self.broker_class = _recorded_broker_class(self)
        self._brokers = brokers
        self._report = report
        self._last_pause = last_pause
        self._pauses: dict[str, float] = {}  # the ends of those that were appended
        self._history = history.History()
        self._serial = 0
        self._connections: dict[object, int] = {}
        attach_coordinator_checkers(self._history, settings, has_consumer_group=has_consumer_group)

    def append(self, entry: history.HistoryEntry) -> None:
        """Append an entry, and report a rule that it breaks."""
        self._append_pauses()
        self._judge(entry)

    def _append_pauses(self) -> None:
        """Append the pauses of brokers that have ended since the last entry."""
        for broker in self._brokers:
            began_s, ended_s = self._last_pause(broker)
            if ended_s > began_s and ended_s != self._pauses.get(broker):
                self._pauses[broker] = ended_s
                now_ms = self._now_ms()
                began_ms = now_ms - round(1000 * (ended_s - began_s))
                self._judge(
                    history.StallEnded(
                        at_ms=now_ms, broker=broker_number(broker), began_ms=began_ms
                    )
                )

    def _judge(self, entry: history.HistoryEntry) -> None:
        try:
            self._history.append(entry)
        except history.RuleViolationError as error:
            self._report(error.rule, error.description)

    def on_request(
        self, broker: Broker, process: str, inbound: InboundRequest, topic_name: _TopicNames
    ) -> None:
        """Record a request that a broker has read, and its response when it is sent."""
        if inbound.api.key not in _WATCHED:
            return
        connection = original_connection(inbound)
        self._serial += 1
        message = _with_topic_names(inbound.message, topic_name)
        host = broker.coordinator.host_of(_group_id(message))
        entry = history.RequestReceived(
            at_ms=inbound.at_ms,
            arrived_ms=inbound.at_ms,
            broker_ms=inbound.at_ms,
            broker=broker_number(broker.address.host),
            is_loaded=host.is_loaded,
            serial=self._serial,
            connection=self._connections.setdefault(connection, len(self._connections)),
            client=process,
            api_key=inbound.api.key,
            version=inbound.version,
            message=message,
        )
        self.append(entry)

        def answered(response: ObservedResponse) -> None:
            self.append(
                history.ResponseSent(
                    at_ms=self._now_ms(),
                    request=entry,
                    message=_with_topic_names(response.message, topic_name),
                )
            )

        observe_response(inbound, answered)

    def on_topics(self, topics: Iterable[tuple[str, bytes, int]], *, is_known: bool = True) -> None:
        """Record the topics.

        Args:
            topics: The name, the id and the number of partitions of each.
            is_known: False while they change.
        """
        self.append(
            history.ConsumerTopicsChanged(
                at_ms=self._now_ms(), topics=tuple(topics), is_known=is_known
            )
        )

    def on_process_end(self, process: str) -> None:
        """Record that a process was killed or has ended, if it is a broker."""
        if process in self._brokers:
            number = broker_number(process)
            self.append(history.BrokerDied(at_ms=self._now_ms(), broker=number, cause="killed"))

    def _now_ms(self) -> int:
        """Return the time of the brokers' clocks."""
        return time.time_ns() // 1_000_000


def _recorded_broker_class(recorder: EntryRecorder) -> type[Broker]:
    """Return a class of brokers whose group shards record what they read and write."""

    class RecordedHost(RecordedShardHost):
        entries = recorder

        @classmethod
        def broker_id(cls) -> int:
            process = current_process.get()
            assert process is not None, "a broker runs in a process"
            return broker_number(process.name)

    class RecordedBroker(Broker):
        shard_host_class = RecordedHost

    return RecordedBroker


def _group_id(message: Any) -> str:
    group_id: str = message.group_id or message.groups[0].group_id
    return group_id


def _with_topic_names(message: Any, topic_name: _TopicNames) -> Any:
    """Return a message about offsets with names instead of topic ids, as older versions have."""
    if groups := getattr(message, "groups", None):
        named = [_with_topic_names(group, topic_name) for group in groups]
        return msgspec.structs.replace(message, groups=named)
    topics = getattr(message, "topics", None)
    if not topics or not hasattr(topics[0], "topic_id") or topics[0].name:
        return message
    named = [msgspec.structs.replace(each, name=topic_name(each.topic_id)) for each in topics]
    return msgspec.structs.replace(message, topics=named)
