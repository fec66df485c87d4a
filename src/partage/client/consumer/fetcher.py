"""The shell of the fetch state machine; it runs on the consumer's event loop.

One task checks for new work after every change: topic metadata, offset lookups and fetches. Each
piece of work is a separate task, so that a slow or dead broker delays only its own partitions.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from partage.client.cluster import Cluster
from partage.client.consumer import fetch_response
from partage.client.consumer.fetch_state_machine import (
    FetchStateMachine,
    OffsetLookup,
    PermanentFailure,
    Placement,
    PlannedFetch,
    RetryLater,
)
from partage.client.consumer.options import ConsumerOptions
from partage.client.consumer.outage_log import OutageLog
from partage.client.errors import (
    BrokerResponseError,
    ClientError,
    NoLeaderError,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.client.jitter import jittered
from partage.client.metadata import TopicMetadata
from partage.client.offsets import LATEST, OffsetAndTimestamp, list_offsets
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import FETCH, FetchResponse

log = logging.getLogger(__name__)

#: A request for committed offsets.
Committed = Coroutine[Any, Any, Mapping[TopicPartition, int]]

#: Errors that may be transient; if they persist, the metadata refresh reports them.
_WAITS: Final = (UnknownTopicError, UnknownPartitionError, NoLeaderError)
#: Work that all topics share, in the log.
_METADATA: Final = "metadata"
_COMMITTED: Final = "committed offsets"
# the last Fetch version with topic names; v13 and later use topic ids (KIP-516)
_LAST_BY_NAME: Final = 12


class _TopicOnLeader(NamedTuple):
    topic: str
    leader_id: int


class Fetcher:
    """The fetcher of one consumer, active from `start` to `stop`.

    Args:
        positions: The state machine; it is used only under ``lock``.
        committed: Fetches the committed offsets of partitions.
        changed: Called, without the lock, when there may be something new for the user.
        failed: Called with errors that concern the whole cluster and are not retriable.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: FetchStateMachine,
        lock: threading.Lock,
        options: ConsumerOptions,
        *,
        committed: Callable[[list[TopicPartition]], Committed],
        changed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._cluster = cluster
        self._positions = positions
        self._lock = lock
        self._ask_committed = committed
        self._read_committed = options.isolation_level == "read_committed"
        self._rules = fetch_response.FetchRules(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            partition_bytes=options.max_partition_fetch_bytes,
            read_committed=self._read_committed,
            check_crcs=options.check_crcs,
            rack=options.client_rack or "",
        )
        self._unknown_wait_s = options.unknown_topic_wait_ms / 1000
        self._changed = changed
        self._failed = failed
        self._topics: dict[str, TopicMetadata] = {}
        self._ask_at: dict[str, float] = {}  # when to refresh a topic's metadata
        self._asking: set[str] = set()
        self._stale: set[TopicPartition] = set()  # partitions that need new metadata
        #: Assigned partitions that had no leader in the last metadata, or were missing.
        self._leaderless: set[TopicPartition] = set()
        self._unknown_since: dict[str, float] = {}
        self._failures: dict[object, int] = {}  # consecutive failures, by broker, topic or work
        self._outages = OutageLog()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake_event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Check for new work; call it on the event loop."""
        self._wake_event.set()

    async def start(self) -> None:
        """Start to fetch."""
        self._spawn(self._run())

    async def stop(self) -> None:
        """Cancel all work."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._wake_event.clear()
            self._schedule_wake(self._begin())
            await self._wake_event.wait()

    def _schedule_wake(self, due: float | None) -> None:
        """Check for work at a time. An earlier timer stays, because an extra check does no harm."""
        if due is None or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wake_event.set()

    def _begin(self) -> float | None:
        """Start all due work; return the time of the next check, or None."""
        now = self._now()
        now_ms = int(now * 1000)
        with self._lock:
            self._forget_topics(self._positions.owned_topics)
            wanted = self._positions.topics()
            placements, unplaced = self._placements()
            fetches = self._positions.fetches(placements, now_ms)
            outdated = self._positions.pop_outdated() | unplaced
            # Last: `fetches` detects topics that were created again and resets their positions.
            lookups = self._positions.lookups(placements, now_ms)
            retry_ms = self._positions.retry_at_ms(now_ms)
        if outdated:
            self._refresh_topics(outdated)
        self._refresh_due_topics(wanted, now)
        if lookups:
            self._spawn(self._look_up(lookups))
        for fetch in fetches:
            self._spawn(self._fetch(fetch))
        dues = [self._ask_at.get(name, now) for name in wanted - self._asking]
        if retry_ms is not None:
            dues.append(retry_ms / 1000 + 0.001)
        return min(dues, default=None)

    def _placements(self) -> tuple[dict[TopicPartition, Placement], set[TopicPartition]]:
        """Return where to fetch, and the partitions without a leader whose topic is known.

        The latter were assigned after the metadata arrived. The partition or its leader may have
        appeared since then.
        """
        found, unplaced = {}, set()
        for partition in self._positions.owned:
            topic = self._topics.get(partition.topic)
            if topic is None or partition in self._stale:
                continue
            leadership = topic.partitions.get(partition.partition)
            if leadership is not None and leadership.leader_id >= 0:
                online = topic.online_replicas.get(partition.partition, ())
                found[partition] = Placement(leadership, topic.topic_id, online)
            elif partition not in self._leaderless:
                unplaced.add(partition)
        return found, unplaced

    # Topics.

    def _forget_topics(self, owned: Container[str]) -> None:
        """Forget topics without partitions: their metadata would be old in a later assignment."""
        left = [name for name in self._ask_at if name not in owned]
        for name in left:
            for known in (self._topics, self._ask_at, self._unknown_since, self._failures):
                known.pop(name, None)
        if left:
            self._stale = {each for each in self._stale if each.topic in owned}
            self._leaderless = {each for each in self._leaderless if each.topic in owned}

    def _refresh_due_topics(self, wanted: Iterable[str], now: float) -> None:
        missing = [n for n in wanted if n not in self._asking and self._ask_at.get(n, 0.0) <= now]
        if missing:
            self._asking.update(missing)
            self._spawn(self._find(missing))

    async def _find(self, names: list[str]) -> None:
        try:
            found, errors = await self._cluster.describe_topics(names)
        except ClientError as error:
            self._outages.on_failure(_METADATA, error, self._now())
            self._ask_again(dict.fromkeys(names, error))
            if not error.is_retriable:
                self._failed(error)
        else:
            self._outages.on_success(_METADATA)
            for topic in found.values():
                self._store_topic(topic)
            await self._on_topic_errors(errors)
        finally:
            self._asking.difference_update(names)

    async def _on_topic_errors(self, errors: Mapping[str, ClientError]) -> None:
        """Handle topics without metadata; polls raise errors that are not retriable."""
        unknown = {n: error for n, error in errors.items() if isinstance(error, UnknownTopicError)}
        others = {n: error for n, error in errors.items() if n not in unknown}
        if others:
            self._ask_again(others)
        for error in others.values():
            if not error.is_retriable:
                self._failed(error)
        similar = {}
        if late := [name for name in unknown if self._is_unknown_for_long(name)]:
            with suppress(ClientError):
                similar = await self._cluster.similar_topics(late)
        for name in unknown:
            self._topics.pop(name, None)
            self._on_unknown_partitions(name, UnknownTopicError(name, similar.get(name)))

    def _ask_again(self, errors: Mapping[str, ClientError]) -> None:
        """Ask for some topics again later, at the same time."""
        due = self._now() + jittered(max(self._backoff_s(name) for name in errors))
        self._ask_at.update(dict.fromkeys(errors, due))
        with self._lock:
            self._positions.note_failures(errors)

    def _store_topic(self, topic: TopicMetadata) -> None:
        self._topics[topic.name] = topic
        self._stale = {partition for partition in self._stale if partition.topic != topic.name}
        with self._lock:
            owned = [p for p in self._positions.owned if p.topic == topic.name]
        leaders = {number: each.leader_id for number, each in topic.partitions.items()}
        missing = [p for p in owned if p.partition not in leaders]
        leaderless = [p for p in owned if leaders.get(p.partition, 0) < 0]
        others = {partition for partition in self._leaderless if partition.topic != topic.name}
        self._leaderless = others.union(missing, leaderless)
        if missing:
            self._on_unknown_partitions(
                topic.name, UnknownPartitionError(missing[0], len(topic.partitions)), missing
            )
        elif leaderless:
            self._ask_at[topic.name] = self._now() + self._backoff_s(topic.name)
            with self._lock:
                for partition in leaderless:
                    self._positions.note_lookup_failure(partition, NoLeaderError(partition))
        else:
            self._failures.pop(topic.name, None)
            self._unknown_since.pop(topic.name, None)
            self._ask_at[topic.name] = self._now() + self._cluster.options.metadata_max_age_ms / 1e3

    def _on_unknown_partitions(
        self, name: str, error: ClientError, partitions: list[TopicPartition] | None = None
    ) -> None:
        """Handle missing topics or partitions; some brokers may not know a new topic yet."""
        now = self._now()
        self._ask_at[name] = now + self._backoff_s(name)
        self._unknown_since.setdefault(name, now)
        is_late = self._is_unknown_for_long(name)
        with self._lock:
            owned = partitions or [p for p in self._positions.owned if p.topic == name]
            for partition in owned:
                self._positions.note_lookup_failure(partition, error)
            if is_late:
                self._positions.set_error(owned, error)
        if is_late:
            self._changed()

    def _is_unknown_for_long(self, name: str) -> bool:
        since = self._unknown_since.get(name)
        return since is not None and self._now() - since >= self._unknown_wait_s

    def _refresh_topics(self, partitions: Iterable[TopicPartition]) -> None:
        """Refresh the metadata of partitions, which is out of date.

        They are not fetched until then.
        """
        stale = set(partitions)
        self._stale |= stale
        for name in {partition.topic for partition in stale}:
            due = self._now() + self._backoff_s(name)
            self._ask_at[name] = min(self._ask_at.get(name, 0.0), due)

    # Offset lookups.

    async def _look_up(self, lookups: list[OffsetLookup]) -> None:
        """Look up offsets separately for each leader, so that a dead leader delays only its own."""
        committed = [one for one in lookups if one.reset is None]
        by_leader: dict[_TopicOnLeader, list[OffsetLookup]] = {}
        for one in lookups:
            if one.reset is not None:
                partition = one.permit.partition
                where = _TopicOnLeader(partition.topic, self._leader_of(partition))
                by_leader.setdefault(where, []).append(one)
        if committed:
            self._spawn(self._look_up_one_kind(committed, self._committed))
        for group in by_leader.values():
            self._spawn(self._look_up_one_kind(group, self._by_time))

    def _leader_of(self, partition: TopicPartition) -> int:
        topic = self._topics.get(partition.topic)
        leadership = topic.partitions.get(partition.partition) if topic else None
        return -1 if leadership is None else leadership.leader_id

    async def _look_up_one_kind(
        self,
        lookups: list[OffsetLookup],
        find: Callable[[list[OffsetLookup]], Coroutine[Any, Any, dict[TopicPartition, int]]],
    ) -> None:
        try:
            found = await find(lookups)
        except ClientError as error:
            answer: RetryLater | PermanentFailure = PermanentFailure(error)
            if error.is_retriable or isinstance(error, _WAITS):
                answer = self._retry_lookups(lookups, error)
            with self._lock:
                for one in lookups:
                    self._positions.lookup_failed(one, answer)
        else:
            with self._lock:
                for one in lookups:
                    self._positions.lookup_succeeded(one, found.get(one.permit.partition))
        self._changed()

    def _retry_lookups(self, lookups: list[OffsetLookup], error: ClientError) -> RetryLater:
        if lookups[0].reset is None:
            self._outages.on_failure(_COMMITTED, error, self._now())
            due = self._now() + jittered(self._backoff_s(_COMMITTED))
            return RetryLater(int(due * 1000), error=error)
        self._refresh_topics(one.permit.partition for one in lookups)
        name = lookups[0].permit.partition.topic
        return RetryLater(self._retry_at_ms(name), error=error)

    async def _committed(self, lookups: list[OffsetLookup]) -> dict[TopicPartition, int]:
        found = dict(await self._ask_committed([one.permit.partition for one in lookups]))
        self._outages.on_success(_COMMITTED)
        self._failures.pop(_COMMITTED, None)
        return found

    async def _by_time(self, lookups: list[OffsetLookup]) -> dict[TopicPartition, int]:
        now_ms = int(time.time() * 1000)
        wanted = {
            one.permit.partition: one.reset.timestamp_at(now_ms) for one in lookups if one.reset
        }
        found = await self._list_offsets(wanted)
        late = {partition: LATEST for partition, offset in found.items() if offset is None}
        if late:
            found |= await self._list_offsets(late)
        return {partition: offset.offset for partition, offset in found.items() if offset}

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look offsets up, and note why it takes longer."""

        def on_failure(error: ClientError) -> None:
            with self._lock:
                for partition in wanted:
                    self._positions.note_lookup_failure(partition, error)

        committed = self._read_committed
        return await list_offsets(
            self._cluster, wanted, read_committed=committed, on_failure=on_failure
        )

    # Fetches.

    async def _fetch(self, fetch: PlannedFetch) -> None:
        try:
            answer = await self._ask(fetch)
        except ClientError as error:
            self._on_fetch_failed(fetch, error)
        else:
            self._failures.pop(fetch.broker_id, None)
            self._on_fetch_answer(fetch, answer)
            if answer.throttle_time_ms:  # the broker asks for a pause (KIP-219)
                await asyncio.sleep(answer.throttle_time_ms / 1000)
        finally:
            with self._lock:
                self._positions.fetch_done(fetch)

    async def _ask(self, fetch: PlannedFetch) -> FetchResponse:
        first = fetch.partitions[0].permit.partition
        connection = await self._cluster.replica(first, fetch.broker_id)
        answer = await connection.send(
            FETCH,
            fetch_response.build_request(fetch, self._rules),
            version_max=None if fetch_response.has_topic_ids(fetch) else _LAST_BY_NAME,
            timeout_ms=self._cluster.options.request_timeout_ms + self._rules.max_wait_ms,
        )
        if answer.error_code:
            raise BrokerResponseError(answer.error_code, "Fetch")
        return answer

    def _on_fetch_failed(self, fetch: PlannedFetch, error: ClientError) -> None:
        log.debug("fetch failed: broker=%d error=%s", fetch.broker_id, error)
        passes = error.is_retriable or isinstance(error, _WAITS)
        answer = (
            RetryLater(self._retry_at_ms(fetch.broker_id)) if passes else PermanentFailure(error)
        )
        self._refresh_topics(wanted.permit.partition for wanted in fetch.partitions)
        now_ms = int(self._now() * 1000)
        with self._lock:
            for wanted in fetch.partitions:
                self._positions.partition_answered(wanted, answer, now_ms)
        self._changed()

    def _on_fetch_answer(self, fetch: PlannedFetch, answer: FetchResponse) -> None:
        found = fetch_response.results_by_partition(fetch, answer)
        stale = set()
        retry_at_ms = self._retry_at_ms(None)
        outcomes = []
        for wanted in fetch.partitions:
            partition = wanted.permit.partition
            said, code = fetch_response.parse_result(
                partition, wanted.offset, found.get(partition), self._rules, retry_at_ms
            )
            outcomes.append((wanted, said))
            if isinstance(said, RetryLater):
                log.debug(
                    "fetch of a partition failed: partition=%s error_code=%d", partition, code
                )
                stale.add(partition)
        if stale:
            self._refresh_topics(stale)
        now_ms = int(self._now() * 1000)
        with self._lock:
            for wanted, said in outcomes:
                self._positions.partition_answered(wanted, said, now_ms)
        self._changed()

    # Retries.

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _backoff_s(self, of: object) -> float:
        """Return the exponential backoff of a broker or topic, and count one more failure."""
        policy = self._cluster.options.retries
        failures = self._failures.get(of, 0)
        if of is not None:
            self._failures[of] = failures + 1
        doubled: int = policy.backoff_ms << min(failures, 20)
        return min(doubled, policy.backoff_max_ms) / 1000

    def _retry_at_ms(self, of: object) -> int:
        return int((self._now() + self._backoff_s(of)) * 1000)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._failed(error)
        self._wake_event.set()
