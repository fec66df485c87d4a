"""Bugs to plant in the shells of the consumer and of the broker; see `shell_mutation`."""

from __future__ import annotations

from lab.mutant import Mutant

_FETCH = "partage.client.consumer.fetch_state_machine"
_STATE = "partage.client.consumer.partition_state"
_FETCHER = "partage.client.consumer.fetcher"
_ENGINE = "partage.client.consumer.engine"
_POLLS = "partage.client.consumer.group_polls"
_GROUP = "partage.client.consumer.group_subscription"
_DRIVER = "partage.client.group.driver"
_COMMITS = "partage.client.group.offset_committer"
_SERVER = "partage.broker.net.connection"
_CLUSTER = "partage.client.cluster"
_ASSIGNMENT = "partage.client.consumer.group_assignment"

SHELL_MUTANTS = (
    Mutant(
        "a response to a fetch whose buffer was given up is used",
        _FETCH,
        "        if state.fetch_offset != wanted.offset:\n            return\n",
        "",
    ),
    Mutant(
        "results for a former position are used",
        _FETCH,
        "return state if state is not None and state.permit is lease else None",
        "return state",
    ),
    Mutant(
        "records that are put back lose the first one",
        _FETCH,
        "state.position = taken.chunk.from_offset = from_offset\n",
        "state.position = taken.chunk.from_offset = from_offset + 1\n",
    ),
    Mutant(
        "the bytes of a finished fetch stay reserved",
        _FETCH,
        "        self._in_flight_bytes.pop(fetch.broker_id, None)\n",
        "",
    ),
    Mutant(
        "a buffer that is given up is not fetched again",
        _STATE,
        "        self.fetch_offset = self.position\n\n",
        "\n",
    ),
    Mutant(
        "fetched records stay after a seek",
        _STATE,
        "        self.chunks.clear()\n        self.buffered_bytes = 0\n        self.is_in_flight",
        "        self.buffered_bytes = 0\n        self.is_in_flight",
    ),
    Mutant(
        "paused partitions are delivered",
        _STATE,
        "return bool(self.chunks) and not self.is_paused",
        "return bool(self.chunks)",
    ),
    Mutant(
        "a partition with an outdated leader stays outdated",
        _FETCHER,
        "        self._stale = {partition for partition in self._stale "
        "if partition.topic != topic.name}\n",
        "",
    ),
    Mutant(
        "the fetcher keeps its tasks when it stops",
        _FETCHER,
        "        for task in tasks:\n            task.cancel()\n"
        "        await asyncio.gather(*tasks, return_exceptions=True)\n",
        "",
    ),
    Mutant(
        "revoked partitions keep their positions",
        _ENGINE,
        "            self._positions.remove_partitions(partitions)\n        self._wake_fetcher()",
        "            pass\n        self._wake_fetcher()",
    ),
    Mutant(
        "connections stay open after close",
        _ENGINE,
        "        finally:\n            self.cluster.close()\n",
        "        finally:\n            pass\n",
    ),
    Mutant(
        "the fetcher is woken once only",
        _ENGINE,
        "        self._is_wake_scheduled = False\n        self._fetcher",
        "        self._fetcher",
    ),
    Mutant(
        "records are delivered after the session ended",
        _POLLS,
        "        if snapshot.session_ends_ms is not None and at_ms >= snapshot.session_ends_ms:\n"
        "            return False\n",
        "",
    ),
    Mutant(
        "records of revoked partitions are delivered",
        _POLLS,
        "        if partition not in snapshot.deliverable:\n            return False\n",
        "",
    ),
    Mutant(
        "a listener callback runs twice",
        _POLLS,
        "        self._completed_serial = call.serial\n",
        "",
    ),
    Mutant(
        "no commit before a revocation",
        _GROUP,
        "        if not self.has_auto_commit or call.callback is not ListenerCallback.REVOKED:\n",
        "        if self.has_auto_commit or call.callback is not ListenerCallback.REVOKED:\n",
    ),
    Mutant(
        "no commit before a leave",
        _GROUP,
        "        if self.has_auto_commit and self._assignment is not None:\n            committing",
        "        if not self.has_auto_commit and self._assignment is not None:\n"
        "            committing",
    ),
    Mutant(
        "auto commits are one record ahead",
        _GROUP,
        "OffsetAndMetadata(position) for",
        "OffsetAndMetadata(position + 1) for",
    ),
    Mutant(
        "a replaced timer still fires",
        _DRIVER,
        "        if before is not None:\n            before.cancel()\n",
        "",
    ),
    Mutant(
        "a lost coordinator is not reported",
        _DRIVER,
        "            self.handle(CoordinatorLost(at_ms=now_ms(), serial=link))\n",
        "",
    ),
    Mutant(
        "a closed connection to the coordinator is used again",
        "partage.client.group.coordinator_client",
        "if self._connection is None or not self._connection.is_open:",
        "if self._connection is None:",
    ),
    Mutant(
        "a refused commit counts as stored",
        _COMMITS,
        "            stored = due - set(refused)\n",
        "            stored = due\n",
    ),
    Mutant(
        "a commit is repeated for partitions that were given up meanwhile",
        _COMMITS,
        "        return {p for p in left if then[p] is None or then[p] != now.get(p)}\n",
        "        return set()\n",
    ),
    Mutant(
        "pending requests of a lost connection are not failed",
        "partage.client.connection",
        "        for answer in waiting.values():\n            if not answer.done():\n"
        "                answer.set_exception(failure)\n\n\n",
        "        waiting.clear()\n\n\n",
    ),
    Mutant(
        "the rest of a partial frame is lost on the broker",
        _SERVER,
        '        self._partial_frame = bytes(data[pos:]) if pos < end else b""\n',
        '        self._partial_frame = b""\n',
    ),
    Mutant(
        "the broker reads nothing more after a request had to wait",
        _SERVER,
        "            self._transport.resume_reading()\n",
        "            pass\n",
    ),
    Mutant(
        "a changed heartbeat counts as repeated",
        "partage.broker.net.repeated_request",
        "return frame[_AFTER_ID] == self._request_end and frame[_BEFORE_ID] == self._request_start",
        "return len(frame[_AFTER_ID]) == len(self._request_end) "
        "and frame[_BEFORE_ID] == self._request_start",
    ),
    Mutant(
        "a waiting fetch is not answered when its time is over",
        "partage.broker.apis.fetch",
        "        self._timer = self._loop.call_later(self._request.max_wait_ms / 1000, "
        "self.end_wait)\n",
        "",
    ),
)

#: Written after the rules, from the code of the client and the broker alone.
LATER_SHELL_MUTANTS = (
    Mutant(
        "a closed connection to a broker is used again",
        _CLUSTER,
        "        known = self._connections.get(address)\n"
        "        if known is not None and known.is_open:\n"
        "            return known\n        if self._is_closed",
        "        known = self._connections.get(address)\n"
        "        if known is not None:\n"
        "            return known\n        if self._is_closed",
    ),
    Mutant(
        "two tasks open two connections to a broker",
        _CLUSTER,
        "        attempt = self._connecting.get(address)\n",
        "        attempt = None\n",
    ),
    Mutant(
        "failed fetches are repeated without a pause",
        _FETCHER,
        "doubled: int = policy.backoff_ms << min(failures, 20)",
        "doubled: int = 0",
    ),
    Mutant(
        "the back-off of a broker is never reset",
        _FETCHER,
        "            self._failures.pop(fetch.broker_id, None)\n",
        "",
    ),
    Mutant(
        "the partition that was served last comes first",
        _FETCH,
        "                self._states[state.partition] = self._states.pop(state.partition)\n",
        "                pass\n",
    ),
    Mutant(
        "a partition is fetched beyond its limit",
        _FETCH,
        "            if state.buffered_bytes >= self._partition_bytes:\n",
        "            if state.buffered_bytes >= self._buffer_bytes:\n",
    ),
    Mutant(
        "a loop over records goes on after a pause",
        _FETCH,
        "state.is_paused = state.permit.is_paused = paused",
        "state.is_paused = paused",
    ),
    Mutant(
        "the position in a loop over records stays at its begin",
        "partage.client.consumer.record_cursor",
        "self._position = lease.delivered_offset = record.offset + 1",
        "self._position = record.offset + 1",
    ),
    Mutant(
        "partitions are revoked after the session has ended, and not lost",
        _ASSIGNMENT,
        "due.callback is ListenerCallback.REVOKED and is_lost:",
        "due.callback is ListenerCallback.REVOKED and not is_lost and is_lost:",
    ),
    Mutant(
        "the connection for commits stays open after close",
        _ASSIGNMENT,
        "        self._driver.close()\n        self._coordinator.disconnect()\n",
        "        self._driver.close()\n",
    ),
    Mutant(
        "a connection with a failed request is kept",
        _DRIVER,
        "            if link == self._link:\n                self._coordinator.disconnect()\n",
        "",
    ),
    Mutant(
        "timers of a member fire late",
        _DRIVER,
        "wait_s = max(0, deadline_ms - now_ms()) / 1000",
        "wait_s = max(0, deadline_ms - now_ms()) / 500",
    ),
    Mutant(
        "an earlier commit is sent after a later one",
        "partage.client.group.commit_order",
        "if p not in self._sent and self._newest(p) is commit}",
        "if p not in self._sent}",
    ),
    Mutant(
        "requests never time out",
        "partage.client.connection",
        "        if answer is not None:\n            failure = RequestTimeoutError",
        "        if answer is None:\n            failure = RequestTimeoutError",
    ),
    Mutant(
        "the broker does not end the fetch of a lost connection",
        _SERVER,
        "            if self.on_lost is not None:\n                self.on_lost()\n",
        "            pass\n",
    ),
    Mutant(
        "new records do not end the wait of a fetch",
        "partage.broker.apis.fetch",
        "        self._missing_bytes -= byte_count\n",
        "",
    ),
    Mutant(
        "partitions keep fetches that have ended",
        "partage.broker.apis.fetch",
        "            partition.remove_listener(self)\n",
        "            pass\n",
    ),
    Mutant(
        "positions are committed at each poll",
        _GROUP,
        "        if time.monotonic() >= self._commit_at_s and not is_under_way:\n"
        "            self._commit_at_s = time.monotonic() + self._commit_interval_s\n",
        "        if time.monotonic() >= self._commit_at_s and not is_under_way:\n",
    ),
    Mutant(
        "metadata is refreshed five times a second",
        "partage.client.consumer.metadata_watcher",
        "await self._pause(min(_MISSING_S, every_s) if is_missing else every_s)",
        "await self._pause(0.2)",
    ),
    Mutant(
        "records are acknowledged before they are synced",
        "partage.broker.topics.log_writer",
        "perform_writes(self._disk, writes, sync=self.is_sync_enabled)",
        "perform_writes(self._disk, writes, sync=False)",
    ),
    Mutant(
        "timers of a member stay after close",
        _DRIVER,
        "        for timer in self._timers.values():\n            timer.cancel()\n",
        "",
    ),
)

#: Written after the rules of `LATER_SHELL_MUTANTS`. Each is in one of the functions of the client
#: and the broker that were drawn at random, without those that no world runs.
DRAWN_SHELL_MUTANTS = (
    Mutant(
        "a failed lookup of an offset is never repeated",
        _FETCHER,
        "self._positions.lookup_failed(one, answer)",
        "pass",
    ),
    Mutant(
        "the fetcher does not look for work when a fetch has ended",
        _FETCHER,
        "            self._failed(error)\n        self._wake_event.set()\n",
        "            self._failed(error)\n",
    ),
    Mutant(
        "a seek keeps the mark of the fetch in flight",
        _STATE,
        "        self.is_in_flight = False\n",
        '        self.is_in_flight = getattr(self, "is_in_flight", False)\n',
    ),
    Mutant(
        "a response is announced before it is complete",
        "partage.broker.net.inbound_request",
        "        self.response_buffers = response_buffers\n"
        "        self.is_done = True\n        self.connection.on_response_ready()\n",
        "        self.response_buffers = response_buffers\n"
        "        self.connection.on_response_ready()\n        self.is_done = True\n",
    ),
    Mutant(
        "events of a member without actions are not published",
        _DRIVER,
        "            self._arm(key, deadline_ms)\n        self._on_event_handled()\n",
        "            self._arm(key, deadline_ms)\n"
        "        if outcome.actions:\n            self._on_event_handled()\n",
    ),
    Mutant(
        "the error of a coordinator lookup stays after a success",
        _DRIVER,
        "            self._on_lookup_error(None)\n",
        "",
    ),
    Mutant(
        "metadata of several topics is refreshed only together",
        _CLUSTER,
        "        if missing:\n            await self._refresh(missing)\n",
        "        if len(missing) == len(names):\n            await self._refresh(missing)\n",
    ),
    Mutant(
        "a fenced commit does not tell its member",
        _COMMITS,
        "        if fence is not None:\n",
        "        if fence is not None and fence < 0:\n",
    ),
    Mutant(
        "partitions with an outdated leader are fetched",
        _FETCHER,
        "            if topic is None or partition in self._stale:\n",
        "            if topic is None:\n",
    ),
    Mutant(
        "a commit waits for an earlier one without a limit",
        _COMMITS,
        "asyncio.timeout(retries.remaining_s)",
        "asyncio.timeout(None)",
    ),
    Mutant(
        "the broker waits for more bytes after a whole frame",
        _SERVER,
        "            if stop > end:\n",
        "            if stop >= end:\n",
    ),
    Mutant(
        "the position is the end of the fetched records",
        _FETCH,
        "        return (\n            state.position\n",
        "        return (\n            state.fetch_offset\n",
    ),
    Mutant(
        "the topics of a member are watched after its leave",
        _ASSIGNMENT,
        "        self._cancel_choice()\n        self._watcher.stop()\n",
        "        self._cancel_choice()\n",
    ),
    Mutant(
        "a JoinGroup has the timeout of other requests",
        "partage.client.group.coordinator_client",
        "version_max=version_max, timeout_ms=timeout_ms)",
        "version_max=version_max)",
    ),
    Mutant(
        "an error of a partition is raised again and again",
        _FETCH,
        "error, state.error = state.error, None",
        "error = state.error",
    ),
    Mutant(
        "new partitions do not wake the fetcher",
        _ENGINE,
        "self._positions.add_partitions(partitions, topic_ids)\n        self._wake_fetcher()\n",
        "self._positions.add_partitions(partitions, topic_ids)\n",
    ),
    Mutant(
        "a connection stays open after a request has timed out",
        "partage.client.connection",
        "            answer.set_exception(failure)\n"
        "            self._end(ConnectionLostError(self.address, str(failure)))\n",
        "            answer.set_exception(failure)\n",
    ),
    Mutant(
        "a new number of partitions is reported again and again",
        "partage.client.consumer.metadata_watcher",
        "            self._watched = now\n            self.partitions_changed",
        "            self.partitions_changed",
    ),
)
