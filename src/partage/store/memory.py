"""An in-memory ZooKeeper for tests and simulations, with fault injection.

It has sessions, ephemeral nodes, versions, watches and transactions like a real server. Requests
take no time, unless ``before`` or ``after`` delays them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from partage.store.zookeeper import (
    ANY_VERSION,
    ChangeCallback,
    Check,
    Create,
    Delete,
    InDoubtError,
    Operation,
    RefusalReason,
    RefusedError,
    SessionEndedError,
    SetData,
    ZNode,
)

T = TypeVar("T")

#: Called with the operations of a transaction, or with the path that is read. It may wait, or raise
#: `InDoubtError`: as ``before`` nothing has happened, as ``after`` only the reply is lost.
SessionFault = Callable[[Sequence[Operation] | str], Awaitable[None]]


class MemoryZooKeeper:
    """The servers, with all nodes and watches. ``now_ms`` is their wall clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.nodes: dict[str, ZNode] = {"/": ZNode(data=b"", version=0)}
        self.history: list[Sequence[Operation]] = []  # all transactions that succeeded
        self._sessions: dict[int, MemorySession] = {}
        self._watches: dict[str, list[ChangeCallback]] = {}
        self._child_watches: dict[str, list[ChangeCallback]] = {}
        self._next_session = 1

    def connect(self, timeout_ms: int = 6_000) -> MemorySession:
        """Begin a new session."""
        session = MemorySession(self, self._next_session, timeout_ms)
        self._sessions[self._next_session] = session
        self._next_session += 1
        return session

    def expire(self, session: MemorySession) -> None:
        """Expire a session and remove its ephemeral nodes; the client learns of it by its next
        request.
        """
        if self._sessions.pop(session.session_id, None) is None:
            return
        mine = [path for path, node in self.nodes.items() if node.session == session.session_id]
        for path in mine:
            self._apply(Delete(path), self.nodes, 0)
        self._notify_watches([Delete(path) for path in mine])

    def is_alive(self, session: MemorySession) -> bool:
        """True if the session has not expired."""
        return session.session_id in self._sessions

    def transact(self, operations: Sequence[Operation], session_id: int) -> None:
        """Apply all operations or none."""
        nodes = dict(self.nodes)
        for position, operation in enumerate(operations):
            why = self._apply(operation, nodes, session_id)
            if why is not None:
                raise RefusedError(position, why, f"{operation}: {why.value}")
        self.nodes = nodes
        self.history.append(tuple(operations))
        self._notify_watches(operations)

    def _apply(
        self, operation: Operation, nodes: dict[str, ZNode], session_id: int
    ) -> RefusalReason | None:
        path = operation.path
        node = nodes.get(path)
        if isinstance(operation, Create):
            if node is not None:
                return RefusalReason.EXISTS
            if _parent(path) not in nodes:
                return RefusalReason.MISSING
            owner = session_id if operation.is_ephemeral else 0
            nodes[path] = ZNode(
                data=operation.data, version=0, created_ms=self.now_ms, session=owner
            )
            return None
        if node is None:
            return RefusalReason.MISSING
        if operation.version not in (ANY_VERSION, node.version):
            return RefusalReason.VERSION
        if isinstance(operation, Delete):
            if any(_parent(other) == path for other in nodes if other != path):
                return RefusalReason.CHILDREN
            del nodes[path]
        elif isinstance(operation, SetData):
            version = node.version + 1
            nodes[path] = msgspec.structs.replace(node, data=operation.data, version=version)
        return None

    def _notify_watches(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Check):
                continue
            callbacks = self._watches.pop(operation.path, [])
            if not isinstance(operation, SetData):
                callbacks += self._child_watches.pop(_parent(operation.path), [])
            for changed in callbacks:
                changed()

    def watch(self, path: str, changed: ChangeCallback) -> None:
        """Call ``changed`` once, at the next change of a node."""
        self._watches.setdefault(path, []).append(changed)

    def watch_children(self, path: str, changed: ChangeCallback) -> None:
        """Call ``changed`` once, when a child is created or deleted."""
        self._child_watches.setdefault(path, []).append(changed)


class MemorySession:
    """A session of `MemoryZooKeeper`; see `partage.store.zookeeper.Session`."""

    def __init__(self, server: MemoryZooKeeper, session_id: int, timeout_ms: int) -> None:
        self.server = server
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.before: SessionFault = _nothing
        self.after: SessionFault = _nothing

    def _check(self) -> None:
        if not self.server.is_alive(self):
            raise SessionEndedError("the session has expired")

    async def _request(self, what: Sequence[Operation] | str, answer: Callable[[], T]) -> T:
        self._check()
        await self.before(what)
        self._check()
        given = answer()
        await self.after(what)
        self._check()
        return given

    async def transact(self, operations: Sequence[Operation]) -> None:
        """Apply all operations or none."""
        await self._request(operations, lambda: self.server.transact(operations, self.session_id))

    async def read(self, path: str, changed: ChangeCallback | None = None) -> ZNode | None:
        """Return the node; None if it does not exist."""

        def answer() -> ZNode | None:
            if changed is not None:
                self.server.watch(path, changed)
            return self.server.nodes.get(path)

        return await self._request(path, answer)

    async def read_all(self, paths: Sequence[str]) -> list[ZNode | None]:
        """Return the nodes."""
        return [await self.read(path) for path in paths]

    async def children(self, path: str, changed: ChangeCallback | None = None) -> list[str]:
        """Return the names of the children."""

        def answer() -> list[str]:
            if changed is not None:
                self.server.watch_children(path, changed)
            names = (other for other in self.server.nodes if other != "/")
            return sorted(n.rpartition("/")[2] for n in names if _parent(n) == path)

        return await self._request(path, answer)

    async def ping_leader(self) -> None:
        """Send a request to the leader."""
        await self._request("/", lambda: None)

    async def wait_connected(self) -> None:
        """Return at once: the connection is never lost."""
        self._check()


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


async def _nothing(what: Sequence[Operation] | str) -> None:
    """Inject no fault."""


def lose_transactions(count: int = 1) -> SessionFault:
    """Return a fault that loses the first ``count`` transactions, or their replies."""
    left = count

    async def losing(what: Sequence[Operation] | str) -> None:
        nonlocal left
        if left and not isinstance(what, str):
            left -= 1
            raise InDoubtError("the connection was lost")

    return losing
