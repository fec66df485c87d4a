"""The ZooKeeper interface of the stores, which a shell or a simulation implements.

The methods are coroutines that are independent of the event loop. Paths are absolute. A request can
fail in three ways:

* `RefusedError`: the servers refused it, and nothing was changed.
* `InDoubtError`: the connection was lost; it may have been applied or not, or be applied later.
* `SessionEndedError`: the session expired or was closed; no later request can succeed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeVar

import msgspec

T = TypeVar("T")

#: A packet has at most 1 MB (``jute.maxbuffer``); transactions with two writes of half of that were
#: refused.
TRANSACTION_BYTES_MAX: Final = 480 * 1024
ANY_VERSION: Final = -1


class Check(msgspec.Struct, frozen=True):
    """Require that a node has a version."""

    path: str
    version: int


class Create(msgspec.Struct, frozen=True):
    """Create a node; an ephemeral one is removed when its session ends."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False


class SetData(msgspec.Struct, frozen=True):
    """Replace a node's data, which raises its version by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(msgspec.Struct, frozen=True):
    """Delete a node without children."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | SetData | Delete


class ZNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    ``version`` counts the changes of its data. ``session`` is the owner of an ephemeral node, else
    0. ``created_ms`` is on the servers' wall clock.
    """

    data: bytes
    version: int
    created_ms: int = 0
    session: int = 0


class RefusalReason(StrEnum):
    """The reason why the servers refused an operation."""

    EXISTS = "the node exists"
    MISSING = "the node does not exist"
    VERSION = "the node has another version"
    CHILDREN = "the node has children"
    OTHER = "ZooKeeper refused the request"


class StoreError(Exception):
    """An operation failed, or its result is unknown."""


class RefusedError(StoreError):
    """The servers refused a transaction, because of the operation at ``position``."""

    def __init__(self, position: int, why: RefusalReason, detail: str = "") -> None:
        super().__init__(detail or why.value)
        self.position = position
        self.reason = why


class InDoubtError(StoreError):
    """The connection was lost before the reply arrived."""


class SessionEndedError(StoreError):
    """The session has ended."""


ChangeCallback = Callable[[], None]


class Session(Protocol):
    """One session, from its beginning until it expires or is closed."""

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the servers granted."""

    @property
    def session_id(self) -> int:
        """The id that the session's ephemeral nodes carry."""

    async def transact(self, operations: Sequence[Operation]) -> None:
        """Apply all operations or none.

        Raises:
            RefusedError: The servers refused one of them.
            InDoubtError: The connection was lost.
            SessionEndedError: The session ended.
        """

    async def read(self, path: str, changed: ChangeCallback | None = None) -> ZNode | None:
        """Return a node; None if it does not exist.

        Args:
            path: The path of the node.
            changed: Called once, when the node is created, changed or deleted, or the connection is
                lost.

        Raises:
            InDoubtError: The connection was lost.
            SessionEndedError: The session ended.
        """

    async def read_all(self, paths: Sequence[str]) -> list[ZNode | None]:
        """Return several nodes, read concurrently. Raises as `read`."""

    async def children(self, path: str, changed: ChangeCallback | None = None) -> list[str]:
        """Return the sorted names of a node's children; none if the node does not exist."""

    async def ping_leader(self) -> None:
        """Return once the leader has replied. Raises as `read`."""

    async def wait_connected(self) -> None:
        """Wait for a connection.

        Raises:
            SessionEndedError: The session ended.
        """


async def retry_read(session: Session, ask: Callable[[], Awaitable[T]]) -> T:
    """Call a function that only reads, and retry it while the connection is lost.

    Raises:
        SessionEndedError: The session ended.
    """
    while True:
        try:
            return await ask()
        except InDoubtError:
            await session.wait_connected()


async def transact_once(
    session: Session, operations: Sequence[Operation], is_done: Callable[[], Awaitable[bool]]
) -> None:
    """Apply a transaction exactly once, even if its reply is lost.

    Args:
        session: The session.
        operations: The operations of the transaction.
        is_done: Returns whether an earlier attempt was applied. It is called when a retry is
            refused.

    Raises:
        RefusedError: No attempt was applied.
        SessionEndedError: The session ended.
    """
    is_in_doubt = False
    while True:
        try:
            await session.transact(operations)
        except InDoubtError:
            is_in_doubt = True
            await session.wait_connected()
        except RefusedError:
            if is_in_doubt and await retry_read(session, is_done):
                return
            raise
        else:
            return
