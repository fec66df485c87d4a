"""Poll loop of a consumer process: fetch, deliver, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from partage.bridge.member_requests import to_error_code
from partage.lab import history
from partage.lab.clients.client_connection import ClientConnection
from partage.lab.clients.member_process import MemberProcess
from partage.lab.options import REQUEST_TIMEOUT_MS
from partage.member import events, outcome
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.records.decoder import decode_records

_FETCH_MS: Final = 300
_FENCED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class PollLoop:
    """The user's loop on separate connections: poll, process, commit."""

    def __init__(self, process: MemberProcess) -> None:
        self.no_poll_until_ms = 0  # the user does not poll before this time
        self.is_listener_slow = False  # the listener exceeds the rebalance timeout
        self._connections: dict[int, ClientConnection] = {}
        self._is_late = False
        self._polls = 0
        self._process = process
        self._positions: dict[TopicPartition, int | None] = {}
        # incremented each time the process gets the partition
        self._ownership_counts: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def on_owned_changed(self, owned: frozenset[TopicPartition]) -> None:
        """Drop the positions of revoked partitions; positions of new ones are unknown until
        fetched.
        """
        for gone in sorted(self._positions.keys() - owned):
            del self._positions[gone]
            self._committed.pop(gone, None)
        for new in sorted(owned - self._positions.keys()):
            self._positions[new] = None
            self._ownership_counts[new] = self._ownership_counts.get(new, 0) + 1

    # Loop

    def poll(self) -> None:
        """Poll: run a pending listener callback first, otherwise fetch records."""
        process = self._process
        process.handle(events.Polled(at_ms=process.world.now_ms, is_in_poll=True))
        due, process.pending_callback = process.pending_callback, None
        if due is not None:
            self._run_listener(due)
            return
        self._request_records()
        process.call_later(_FETCH_MS, self._return_from_poll)

    def _run_listener(self, due: outcome.CallListener) -> None:
        process = self._process
        may_commit = (
            due.callback is outcome.ListenerCallback.REVOKED
            and not process.core.has_lost_partitions
        )
        takes_ms = process.rng.randrange(30)
        if self.is_listener_slow:
            takes_ms += process.world.options.rebalance_timeout_ms + 2_000
        elif may_commit and process.world.options.commits_at_revoke:
            self.commit(due.partitions)
            takes_ms += 100

        def done() -> None:
            process.handle(events.CallbackCompleted(at_ms=process.world.now_ms, serial=due.serial))
            self.poll()

        process.call_later(takes_ms, done)

    def _return_from_poll(self) -> None:
        process, world = self._process, self._process.world
        process.handle(events.Polled(at_ms=world.now_ms, is_in_poll=False))
        if process.rng.random() < 0.5 or world.is_healed:
            self.commit(self._positions)
        works_ms = process.rng.randrange(1, world.options.poll_interval_ms)
        late_ms, self.no_poll_until_ms = self.no_poll_until_ms - world.now_ms, 0
        self._is_late = late_ms > works_ms
        self._poll_later(max(works_ms, late_ms))

    def _poll_later(self, wait_ms: int) -> None:
        self._polls += 1
        polls = self._polls

        def poll() -> None:
            if polls == self._polls:
                self._is_late = False
                self.poll()

        self._process.call_later(wait_ms, poll)

    def poll_now(self) -> None:
        """Make a late user poll now."""
        self.no_poll_until_ms = 0
        if self._is_late:
            self._is_late = False
            self._poll_later(0)

    def end_slowness(self) -> None:
        """Let later listener callbacks return quickly."""
        self.is_listener_slow = False

    # Requests

    @property
    def connections(self) -> list[ClientConnection]:
        """The last opened connection to each broker."""
        return list(self._connections.values())

    def _open_connection(self, broker_id: int) -> ClientConnection | None:
        """Return the open connection to a broker, or open one and return None."""
        connection = self._connections.get(broker_id)
        if connection is None or connection.is_closed:
            connect = self._process.connect
            self._connections[broker_id] = connect(broker_id, lambda: None, lambda opened: None)
            return None
        return connection if connection.is_open else None

    def _request_records(self) -> None:
        process = self._process
        connection = self._open_connection(1)
        missing = [p for p, at in self._positions.items() if at is None]
        coordinator_id = process.coordinator_id
        coordinator = connection if coordinator_id == 1 else self._open_connection(coordinator_id)
        if missing and coordinator is not None:
            self._fetch_offsets(coordinator, missing)
        wanted = {
            p: at
            for p, at in self._positions.items()
            if at is not None and p in process.core.deliverable
        }
        if wanted and connection is not None:
            self._fetch(connection, wanted)

    def _fetch_offsets(self, connection: ClientConnection, missing: list[TopicPartition]) -> None:
        asked = [(p, self._ownership_counts[p]) for p in missing]
        group_id = self._process.group_id
        topics = [
            OffsetFetchTopic(name=name, partition_indexes=indexes)
            for name, indexes in partitions_by_topic(missing).items()
        ]
        group = OffsetFetchGroup(group_id=group_id, topics=topics)
        message = OffsetFetchRequest(group_id=group_id, topics=topics, groups=[group])

        def on_response(response: Any) -> None:
            results, error = response.topics, response.error_code
            for one in response.groups:
                results, error = one.topics, one.error_code
            if error:
                return
            found = {
                (topic.name, p.partition_index): (p.committed_offset, p.error_code)
                for topic in results
                for p in topic.partitions
            }
            for partition, ownership_count in asked:
                offset, code = found[partition]
                is_due = partition in self._positions and self._positions[partition] is None
                if not code and is_due and self._ownership_counts[partition] == ownership_count:
                    self._positions[partition] = max(offset, 0)

        connection.send(OFFSET_FETCH, message, on_response, REQUEST_TIMEOUT_MS)

    def _fetch(self, connection: ClientConnection, wanted: dict[TopicPartition, int]) -> None:
        ownership_counts = {p: self._ownership_counts[p] for p in wanted}
        topics = [
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=wanted[TopicPartition(name, index)],
                        partition_max_bytes=1 << 20,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in partitions_by_topic(wanted).items()
        ]
        message = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)

        def on_response(response: Any) -> None:
            process = self._process
            # The member gets the time before any delivery: the process may have been paused.
            is_in_poll = process.core.membership.is_in_poll
            process.handle(events.Polled(at_ms=process.world.now_ms, is_in_poll=is_in_poll))
            for topic in response.responses:
                for result in topic.partitions:
                    partition = TopicPartition(topic.topic, result.partition_index)
                    offset = wanted[partition]
                    is_same = self._ownership_counts[partition] == ownership_counts[partition]
                    if is_same and self._positions.get(partition) == offset:
                        self._deliver(
                            partition, offset, bytes(result.records[0]) if result.records else b""
                        )

        connection.send(FETCH, message, on_response, REQUEST_TIMEOUT_MS)

    def _deliver(self, partition: TopicPartition, offset: int, content: bytes) -> None:
        process = self._process
        if partition not in process.core.deliverable:
            return
        records = [r for r in decode_records(content, offset) if r[0] >= offset]
        if not records:
            return
        process.world.append_history(
            history.RecordsDelivered(
                at_ms=process.world.now_ms,
                process=process.name,
                group_id=process.group_id,
                partition=partition,
                records=tuple((r[0], r[3] or b"") for r in records),
            )
        )
        self._positions[partition] = records[-1][0] + 1

    # Commits

    def commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit the positions of these partitions in the member's generation, without retries."""
        process = self._process
        identity = process.core.commit_identity
        connection = self._open_connection(process.coordinator_id)
        offsets = {
            p: at
            for p in partitions
            if (at := self._positions.get(p)) is not None and self._committed.get(p) != at
        }
        if identity is None or connection is None or not offsets:
            return
        message = OffsetCommitRequest(
            group_id=process.group_id,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=[
                OffsetCommitTopic(
                    name=name,
                    partitions=[
                        OffsetCommitPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(name, index)],
                            committed_metadata=process.name,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in partitions_by_topic(offsets).items()
            ],
        )

        def on_response(response: Any) -> None:
            codes = [p.error_code for topic in response.topics for p in topic.partitions]
            fenced = [code for code in codes if code in _FENCED]
            if not any(codes):
                self._committed |= offsets
            if fenced:
                process.handle(
                    events.CommitRejected(
                        at_ms=process.world.now_ms,
                        generation=identity.generation,
                        member_id=identity.member_id,
                        error=to_error_code(fenced[0]),
                    )
                )

        connection.send(OFFSET_COMMIT, message, on_response, REQUEST_TIMEOUT_MS)

    def has_committed_all(self, ends: Callable[[TopicPartition], int]) -> bool:
        """Return True if all owned partitions are read and committed up to their ends."""
        return all(self._committed.get(p) == ends(p) or not ends(p) for p in self._positions)


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition indexes by topic, both sorted."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found
