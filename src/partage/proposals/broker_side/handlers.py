"""The rebalance handlers, each with a bounded queue of tasks."""

from __future__ import annotations

from collections import deque


class RebalanceHandler:
    """A handler: it rebalances one group at a time.

    Args:
        queue_size: The tasks that its queue holds. Further ones wait as a thread would that blocks
            on the queue.
    """

    def __init__(self, queue_size: int) -> None:
        self.current: str | None = None
        self.queue: deque[str] = deque()
        self.blocked: deque[str] = deque()
        self._queue_size = queue_size

    def put(self, group_id: str) -> None:
        """Add the task of a group."""
        (self.queue if len(self.queue) < self._queue_size else self.blocked).append(group_id)

    def next(self) -> str | None:
        """Take the next task if the handler is free."""
        if self.current is not None or not self.queue:
            return None
        self.current = self.queue.popleft()
        if self.blocked:
            self.queue.append(self.blocked.popleft())
        return self.current


class RebalanceHandlers:
    """All handlers of a coordinator.

    Args:
        count: The number of handlers.
        queue_size: The size of each queue.
    """

    def __init__(self, count: int, queue_size: int) -> None:
        self.handlers = [RebalanceHandler(queue_size) for _ in range(count)]
        self._queued: set[str] = set()
        self._bound: dict[str, RebalanceHandler] = {}  # by group, while it has a task

    def put(self, group_id: str, draw: int) -> RebalanceHandler:
        """Add the task of a group to its handler, or to a random one if it has none.

        A group has at most one task in the queues.
        """
        handler = self._bound.get(group_id)
        if handler is None:
            handler = self._bound[group_id] = self.handlers[draw % len(self.handlers)]
        if group_id not in self._queued:
            self._queued.add(group_id)
            handler.put(group_id)
        return handler

    def has_task(self, group_id: str) -> bool:
        """True if a queue has a task of the group."""
        return group_id in self._queued

    def next(self, handler: RebalanceHandler) -> str | None:
        """Take the next task of a handler that is free."""
        group_id = handler.next()
        if group_id is not None:
            self._queued.discard(group_id)
        return group_id

    def finish(self, group_id: str) -> RebalanceHandler:
        """End the current task of a group's handler, which may take the next one."""
        handler = self._bound[group_id]
        assert handler.current == group_id, f"{group_id} is not the current task"
        handler.current = None
        if group_id not in self._queued:
            del self._bound[group_id]
        return handler
