"""The rules about the failed fetches of readers, by name:

- ``flood``: after a transient error of a partition, a consumer waits before it fetches the same
  data of it again.
- ``stale``: after a reset of its connections, a consumer fetches the partitions of a fetch that has
  failed only with new metadata of their topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from partage.broker.net.inbound_request import InboundRequest
from partage.client.errors import BrokerResponseError
from partage.client.options import RetryPolicy
from partage.lab.brokers.observed_response import (
    ObservedResponse,
    observe_response,
    original_connection,
)
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.delivery_rules import DeliveryRules
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.metadata import METADATA

#: Errors of partitions after which a consumer resets the position, or raises an error.
_FINAL: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE})
#: Waits end at whole milliseconds.
_BACKOFF_S: Final = RetryPolicy().backoff_ms / 1000 - 0.002
#: Longer than the way of a response to a client.
_ARRIVAL_S: Final = 0.01
#: The shortest time from a response to the arrival of the next request.
_ROUND_TRIP_S: Final = 0.0002


class _WaitingFetch(NamedTuple):
    process: str
    asked_s: float
    offsets: dict[TopicPartition, int]


class _Failure(NamedTuple):
    """A transient error of a partition: its fetch offset, and the times of request and response."""

    offset: int
    asked_s: float
    answered_s: float


class FetchRetryRules:
    """Checks the fetches of the readers of a world.

    Args:
        readers: The names of the readers.
        rules: What the readers own.
        now_s: Returns the virtual time in seconds.
        report: Called with the name of a broken rule and a description.
    """

    def __init__(
        self,
        readers: Collection[str],
        rules: DeliveryRules,
        now_s: Callable[[], float],
        report: Callable[[str, str], None],
    ) -> None:
        self._readers = readers
        self._rules = rules
        self._now_s = now_s
        self._report = report
        #: The connections of each process that are not lost, as far as is known.
        self._connections: dict[str, set[object]] = defaultdict(set)
        self._lost: set[object] = set()
        self._waiting: dict[object, _WaitingFetch] = {}
        self._failures: dict[tuple[object, TopicPartition], _Failure] = {}
        #: The partitions of each process that need new metadata.
        self._outdated: dict[str, set[TopicPartition]] = defaultdict(set)
        #: When each process got metadata of a topic since the last reset.
        self._metadata_s: dict[tuple[str, str], float] = {}

    def on_process_end(self, process: str) -> None:
        """Note that a process was killed or has ended."""
        self._forget(process)
        self._outdated.pop(process, None)

    def on_broker_end(self) -> None:
        """Note that a broker has ended: its requests get no response."""
        self._waiting.clear()

    def on_reset(self, process: str) -> None:
        """Note that all connections of a process are reset now.

        A fetch fails thereby unless its response is on the way.
        """
        for connection in self._connections[process]:
            fetch = self._waiting.get(connection)
            if fetch is not None and self._now_s() > fetch.asked_s + _ARRIVAL_S:
                self._outdated[process].update(fetch.offsets)
        for key in [key for key in self._metadata_s if key[0] == process]:
            del self._metadata_s[key]
        self._forget(process)

    def _forget(self, process: str) -> None:
        lost = self._connections.pop(process, set())
        self._lost |= lost
        for connection in lost:
            self._waiting.pop(connection, None)

    def on_request(
        self, process: str, inbound: InboundRequest, topic_name: Callable[[bytes], str]
    ) -> None:
        """Check a request of a reader."""
        connection = original_connection(inbound)
        if process not in self._readers or connection in self._lost:
            return
        self._connections[process].add(connection)
        if inbound.api.key == METADATA.key and inbound.message.topics is not None:
            self._watch_metadata(process, connection, inbound)
        elif inbound.api.key == FETCH.key:
            offsets = {
                TopicPartition(topic.topic or topic_name(topic.topic_id), each.partition): (
                    each.fetch_offset
                )
                for topic in inbound.message.topics
                for each in topic.partitions
            }
            self._check_metadata(process, offsets)
            self._check_backoff(process, connection, offsets)
            self._watch_fetch(process, connection, offsets, inbound, topic_name)

    def _watch_metadata(self, process: str, connection: object, inbound: InboundRequest) -> None:
        def answered(response: ObservedResponse) -> None:
            if connection in self._lost:
                return
            for topic in response.message.topics:
                if not topic.error_code:
                    self._metadata_s.setdefault((process, topic.name), self._now_s())

        observe_response(inbound, answered)

    def _check_metadata(self, process: str, partitions: Collection[TopicPartition]) -> None:
        outdated = self._outdated[process]
        for partition in sorted(outdated & set(partitions)):
            metadata_s = self._metadata_s.get((process, partition.topic))
            if metadata_s is None or self._now_s() < metadata_s + _ROUND_TRIP_S:
                text = f"{process} fetched {partition} without new metadata after a reset"
                self._report("stale", text)
            outdated.discard(partition)

    def _check_backoff(
        self, process: str, connection: object, offsets: dict[TopicPartition, int]
    ) -> None:
        """Check that partitions are not fetched again soon after a transient error.

        On the same connection, the response has arrived before the consumer sends this request.
        The consumer ignores the response if its user has changed the position since the request.
        """
        for partition, offset in offsets.items():
            failure = self._failures.pop((connection, partition), None)
            place = self._rules.owned(process).get(partition)
            if failure is None or failure.offset != offset or place is None:
                continue
            is_new_position = place.restarted_s > failure.asked_s - _ARRIVAL_S
            wait_s = self._now_s() - failure.answered_s
            if wait_s < _BACKOFF_S and not is_new_position:
                self._report(
                    "flood",
                    f"{process} fetches {partition} again {1000 * wait_s:.1f} ms after an error",
                )

    def _watch_fetch(
        self,
        process: str,
        connection: object,
        offsets: dict[TopicPartition, int],
        inbound: InboundRequest,
        topic_name: Callable[[bytes], str],
    ) -> None:
        fetch = _WaitingFetch(process, self._now_s(), offsets)
        self._waiting[connection] = fetch

        def answered(response: ObservedResponse) -> None:
            if self._waiting.get(connection) is not fetch:
                return
            del self._waiting[connection]
            for topic in response.message.responses:
                name = topic.topic or topic_name(topic.topic_id)
                for each in topic.partitions:
                    partition = TopicPartition(name, each.partition_index)
                    if _is_transient(each.error_code):
                        failure = _Failure(offsets[partition], fetch.asked_s, self._now_s())
                        self._failures[connection, partition] = failure

        observe_response(inbound, answered)


def _is_transient(code: int) -> bool:
    return code not in _FINAL and code != 0 and BrokerResponseError(code, "fetching").is_retriable
