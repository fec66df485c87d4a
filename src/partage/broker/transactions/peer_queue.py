"""Items for other brokers, which are sent in batches: one request to each broker at a time."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.cluster.peer_connection import PEER_ERRORS, PeerConnection

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Report = Callable[[], None]


class PeerQueues(ABC, Generic[Item]):
    """A queue for each broker.

    Args:
        cluster_view: the brokers.
    """

    def __init__(self, cluster_view: ClusterView) -> None:
        self._cluster_view = cluster_view
        self._pending: dict[int, list[Item]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._connections: dict[int, PeerConnection] = {}

    @abstractmethod
    def _take(self, pending: list[Item]) -> list[Item]:
        """Remove and return the items of the next request; at least one."""

    @abstractmethod
    async def _send(
        self, node: BrokerNode, connection: PeerConnection, items: list[Item]
    ) -> list[Report]:
        """Send items; return functions that report their results.

        Raises:
            OSError, EOFError, ValueError: no item has a result.
        """

    @abstractmethod
    def _fail(self, item: Item) -> None:
        """Report that an item has no result."""

    def _put(self, node_id: int, item: Item) -> None:
        self._pending.setdefault(node_id, []).append(item)
        if node_id not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(node_id))
            self._tasks[node_id] = task

    async def _run(self, node_id: int) -> None:
        """Send until no item is pending."""
        try:
            while self._pending.get(node_id):
                items = self._take(self._pending[node_id])
                failures: list[Report] = [partial(self._fail, item) for item in items]
                try:
                    reports = await self._send_to(node_id, items)
                except PEER_ERRORS as error:
                    log.debug("broker not reached: broker_id=%d error=%r", node_id, error)
                    reports = failures
                except Exception:  # a bug; the items must not wait forever
                    log.exception("request to broker %d failed", node_id)
                    reports = failures
                _call_all(reports)
        finally:
            self._tasks.pop(node_id, None)

    async def _send_to(self, node_id: int, items: list[Item]) -> list[Report]:
        node = next((one for one in self._cluster_view.brokers() if one.node_id == node_id), None)
        if node is None:
            raise ConnectionError(f"broker {node_id} is not live")
        connection = self._connections.get(node_id)
        if connection is None:
            client_id = f"partage-broker-{self._cluster_view.node.node_id}"
            connection = PeerConnection(client_id, self._cluster_view.is_up)
            self._connections[node_id] = connection
        return await self._send(node, connection, items)

    def close(self) -> None:
        """Stop; pending items get no result."""
        for task in list(self._tasks.values()):
            task.cancel()
        for connection in self._connections.values():
            connection.close()


def _call_all(reports: Sequence[Report]) -> None:
    for report in reports:
        try:
            report()
        except Exception:  # a bug; the other items must be reported nevertheless
            log.exception("report of a result failed")
