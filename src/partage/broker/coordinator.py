"""The coordinator as the broker runs it: every shard of ``__consumer_offsets``, one host each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from partage.bridge import Call
from partage.broker.shard_host import ShardHost
from partage.coordinator.events import Event, ListGroups, TopicsDeleted
from partage.coordinator.outcome import Happening, Notice
from partage.store.shard_log import shard_of

log = logging.getLogger(__name__)

_LOUD = {
    Happening.REBALANCE_STARTED,
    Happening.GENERATION_STARTED,
    Happening.EXPIRED,
    Happening.FENCED,
    Happening.EMPTIED,
    Happening.REMOVED,
}


class Coordinator:
    """Routes each event to the shard of its group."""

    def __init__(self, host_of: Callable[[int], ShardHost], shard_count: int) -> None:
        self._hosts = [host_of(index) for index in range(shard_count)]
        self.shard_count = shard_count

    def serve(self, call: Call[Any]) -> None:
        """Ask the core what a request asks; the response leaves when all of it is answered."""
        asked = call.ask()
        if not asked:
            call.origin.respond_encoded(call.response())
            return
        for position, event in enumerate(asked):
            if isinstance(event, ListGroups):
                self._hosts[position].handle(event)
            else:
                self._hosts[shard_of(event.group_id, len(self._hosts))].handle(event)

    def topics_deleted(self, names: frozenset[str], at_ms: int) -> None:
        """Forget the offsets of topics that are gone."""
        event: Event = TopicsDeleted(at_ms=at_ms, topics=names)
        for host in self._hosts:
            host.handle(event)

    async def loaded(self) -> None:
        """Return once every shard is loaded."""
        for host in self._hosts:
            await host.loaded()

    def close(self) -> None:
        """Handle nothing any more."""
        for host in self._hosts:
            host.close()


def log_notice(notice: Notice) -> None:
    """Say in the broker's log what happened in a group."""
    level = logging.INFO if notice.happening in _LOUD else logging.DEBUG
    log.log(
        level,
        "group %s generation %d: %s%s%s",
        notice.group_id,
        notice.generation,
        notice.happening,
        f" {notice.member_id}" if notice.member_id else "",
        f": {notice.reason}" if notice.reason else "",
    )
