"""A watcher of topic metadata, for a member's subscription and for a leader's assignment.

A pattern subscription picks up new topics, and a leader notices new partitions. The metadata is
refreshed every ``metadata_max_age_ms``, and every second while a subscribed topic does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from partage.client.cluster import Cluster
from partage.client.errors import BrokerResponseError, ClientError
from partage.client.metadata import TopicMetadata

log = logging.getLogger(__name__)

_MISSING_S: Final = 1.0


class MetadataWatcher:
    """The metadata watcher of one member; it runs on the event loop.

    Args:
        topics_changed: Called with the topics that the pattern matches, when they change.
        partitions_changed: Called with a reason when a leader's assignment is out of date.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics_changed: Callable[[frozenset[str]], None],
        partitions_changed: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._topics_changed = topics_changed
        #: Called with a reason when a leader's assignment is out of date.
        self.partitions_changed = partitions_changed
        self._wanted: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        # partition counts at the time of the assignment; None for a missing topic
        self._watched: dict[str, int | None] = {}
        self._missing: list[str] = []
        self._has_missing_topic = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        #: Called with the error of a topic that cannot be read, once for each subscription.
        self.on_topic_error: Callable[[BrokerResponseError], None] = _log_topic_error
        self._reported: set[str] = set()

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Set the subscription of this member."""
        self._wanted, self._pattern = topics, pattern
        self._watched = {}
        self._reported.clear()

    def is_subscribed(self, topic: str) -> bool:
        """True if the topic belongs to this member's subscription."""
        if self._pattern is not None:
            return self._pattern.fullmatch(topic) is not None
        return topic in self._wanted

    async def watch_topics(self, topics: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return the current metadata of the topics to assign, and watch them from now on.

        Raises:
            ClientError: No broker answered, or a topic cannot be read.
        """
        names = list(topics)
        found = await self._existing_or_raise(names)
        missing = sorted(set(names) - found.keys())
        if missing and missing != self._missing:
            log.warning("subscribed topic does not exist yet: topics=%s", ", ".join(missing))
        self._missing = missing
        self._watched = _counts(names, found)
        if missing:
            self._has_missing_topic.set()  # refresh the metadata earlier than planned
        return found

    def start(self) -> None:
        """Start to watch; a pattern is matched at once."""
        self.stop()
        self._running = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop to watch."""
        self._watched = {}
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self) -> None:
        while True:
            try:
                if self._pattern is not None:
                    await self._match(self._pattern)
                await self._compare()
            except ClientError as error:
                log.info("metadata request failed: error=%s", error)
            except Exception:  # A bug here must not end the watcher.
                log.exception("metadata check failed and will be repeated")
            is_missing = None in self._watched.values() or (self._pattern and not self._wanted)
            every_s = self._cluster.options.metadata_max_age_ms / 1000
            await self._pause(min(_MISSING_S, every_s) if is_missing else every_s)

    async def _pause(self, seconds: float) -> None:
        """Wait until the next refresh, or until an assignment lacks a topic."""
        self._has_missing_topic.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_missing_topic.wait()

    async def _match(self, pattern: re.Pattern[str]) -> None:
        found = frozenset(
            name
            for name, topic in (await self._cluster.all_topics()).items()
            if pattern.fullmatch(name) and not topic.is_internal
        )
        if found != self._wanted:
            self._wanted = found
            self._topics_changed(found)

    async def _compare(self) -> None:
        led = self._watched
        now = _counts(led, await self._existing_or_raise(led))
        if led is not self._watched:
            return  # A new assignment was made during the request.
        changed = sorted(name for name, count in now.items() if count != led[name])
        if changed:
            self._watched = now
            self.partitions_changed(f"the number of partitions changed: {', '.join(changed)}")

    async def existing_topics(self, topics: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return the topics that exist; report the errors of others once.

        Raises:
            ClientError: No broker answered.
        """
        found, errors = await self._cluster.existing_topics(sorted(topics))
        for name, error in errors.items():
            if name not in self._reported:
                self._reported.add(name)
                self.on_topic_error(error)
        return found

    async def _existing_or_raise(self, topics: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return the topics that exist; raise if one has another error."""
        found, errors = await self._cluster.existing_topics(sorted(topics))
        for error in errors.values():
            raise error
        return found


def _log_topic_error(error: BrokerResponseError) -> None:
    log.warning("subscribed topic cannot be read: error=%s", error)


def _counts(topics: Iterable[str], found: Mapping[str, TopicMetadata]) -> dict[str, int | None]:
    """Return the number of partitions of each topic; None for a missing topic."""
    return {name: len(found[name].partitions) if name in found else None for name in topics}
