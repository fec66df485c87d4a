"""The group coordinator of a broker: one host for each shard of ``__consumer_offsets``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from partage.broker.coordination.shard_host import ShardHost
from partage.broker.net.inbound_request import InboundRequest
from partage.coordinator.events import ListGroups, Request
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.model.errors import ErrorCode
from partage.model.printable import printable
from partage.store.shard_log import find_shard

log = logging.getLogger(__name__)

#: Groups of one request that are handled in one turn of the loop.
_REQUESTS_PER_TURN: Final = 256
_DURABLE_TIMEOUT_S: Final = 5.0

_INFO_EVENT_TYPES = {
    GroupEventType.REBALANCE_STARTED,
    GroupEventType.EPOCH_RAISED,
    GroupEventType.TARGET_ASSIGNED,
    GroupEventType.GENERATION_STARTED,
    GroupEventType.EXPIRED,
    GroupEventType.FENCED,
    GroupEventType.EMPTIED,
    GroupEventType.REMOVED,
    GroupEventType.UPGRADED,
    GroupEventType.DOWNGRADED,
}


class GroupCoordinator:
    """Routes each event to the shard of its group."""

    def __init__(self, hosts: Sequence[ShardHost]) -> None:
        self.hosts = hosts
        self.shard_count = len(hosts)

    def handle(self, inbound: InboundRequest, requests: Sequence[Request]) -> None:
        """Handle the events of a request; the response is sent when all of them are answered."""
        if len(requests) == 1 and type(requests[0]) is not ListGroups:
            event: Any = requests[0]  # a `GroupRequest`; a check would take longer than the rest
            self.hosts[find_shard(event.group_id, self.shard_count)].answer(event)
        elif requests:
            self._dispatch(requests, 0)
        else:
            inbound.respond_with_replies()

    def _dispatch(self, requests: Sequence[Request], begin: int) -> None:
        """Handle events from an index on; continue in the next loop turn if there are many."""
        end = begin + _REQUESTS_PER_TURN
        if end < len(requests):
            asyncio.get_running_loop().call_soon(self._dispatch, requests, end)
        for position, event in enumerate(requests[begin:end], begin):
            self._host(position, event).handle(event)

    def _host(self, position: int, event: Request) -> ShardHost:
        """Return the host for an event; a ListGroups has the position of its shard."""
        if type(event) is ListGroups:
            return self.hosts[position]
        of_group: Any = event  # a `GroupRequest`; a check would take longer than the rest
        return self.hosts[find_shard(of_group.group_id, self.shard_count)]

    def host_of(self, group_id: str) -> ShardHost:
        """Return the host of the group's shard."""
        return self.hosts[find_shard(group_id, self.shard_count)]

    def complete_transaction(
        self,
        shard: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append the marker of a transaction to a shard; see `ShardHost.complete_transaction`."""
        self.hosts[shard].complete_transaction(
            producer_id, producer_epoch, coordinator_epoch, is_commit=is_commit, done=done
        )

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Delete the groups' offsets of deleted topics."""
        for host in self.hosts:
            host.delete_topic_offsets(names)

    def refresh_topics(self) -> None:
        """Report the current topics to the loaded shards."""
        for host in self.hosts:
            host.refresh_topics()

    def refresh_group_configs(self) -> None:
        """Report the current configs of groups to the loaded shards."""
        for host in self.hosts:
            host.refresh_group_configs()

    async def wait_durable(self) -> None:
        """Return once everything that the shards have received so far is durable, or after a
        timeout.

        A shard that cannot be loaded may take forever.
        """
        try:
            async with asyncio.timeout(_DURABLE_TIMEOUT_S):
                for host in self.hosts:
                    await host.wait_durable()
        except TimeoutError:
            log.warning(
                "timed out waiting for shards to store the deletion of topics; continuing: "
                "timeout_s=%g",
                _DURABLE_TIMEOUT_S,
            )

    def caught_up_epochs(self) -> dict[int, int]:
        """Return the shards that have deleted all offsets of deleted topics, with their epochs."""
        epochs = ((shard, host.caught_up_epoch) for shard, host in enumerate(self.hosts))
        return {shard: epoch for shard, epoch in epochs if epoch is not None}

    async def wait_loaded(self) -> None:
        """Return once every shard is loaded."""
        for host in self.hosts:
            await host.wait_loaded()

    def close(self) -> None:
        """Stop handling events."""
        for host in self.hosts:
            host.close()


def log_group_event(notice: GroupEvent) -> None:
    """Write a group event to the broker's log."""
    reason = notice.reason or notice.cause
    level = logging.INFO if notice.event_type in _INFO_EVENT_TYPES else logging.DEBUG
    if notice.event_type is GroupEventType.ASSIGNOR_FAILED:
        level = logging.WARNING
    if not log.isEnabledFor(level):
        return
    log.log(
        level,
        "group %s generation %d: %s%s%s",
        printable(notice.group_id),
        notice.generation,
        notice.event_type,
        f" {printable(notice.member_id)}" if notice.member_id else "",
        f": {printable(reason)}" if reason else "",
    )
