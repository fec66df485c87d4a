"""ZooKeeper as the stores see it: an interface that a shell brings, or a simulation.

The methods are coroutines, and nothing here says which loop runs them: a shell awaits a socket in
them, a simulation its own clock. Paths are absolute. What may go wrong is one of three:

* `Refused`: the servers answered no, and nothing happened;
* `InDoubt`: the connection was lost; it may have happened or not, or happen yet;
* `SessionOver`: the session has expired, or was closed; nothing more comes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeVar

import msgspec

T = TypeVar("T")

#: A packet has at most 1 MB (``jute.maxbuffer``), and two writes of half of that were refused.
TRANSACTION_BYTES_MAX: Final = 480 * 1024
ANY_VERSION: Final = -1


class Check(msgspec.Struct, frozen=True):
    """The node has this version."""

    path: str
    version: int


class Create(msgspec.Struct, frozen=True):
    """Make a node; an ephemeral one goes with the session that made it."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False


class SetData(msgspec.Struct, frozen=True):
    """Replace a node's data; its version rises by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(msgspec.Struct, frozen=True):
    """Remove a node, which must have no children."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | SetData | Delete


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node: ``version`` counts changes of its data, ``session`` is the owner of an ephemeral one,
    else 0; ``created_ms`` is the servers' wall clock.
    """

    data: bytes
    version: int
    created_ms: int = 0
    session: int = 0


class Why(StrEnum):
    """Why an operation was refused."""

    EXISTS = "the node exists"
    MISSING = "there is no such node"
    VERSION = "the node has another version"
    CHILDREN = "the node has children"
    OTHER = "ZooKeeper refused it"


class StoreFault(Exception):  # noqa: N818 - named after what happened
    """An operation did not succeed, as far as is known."""


class Refused(StoreFault):
    """The servers refused a transaction, because of the operation at ``position``."""

    def __init__(self, position: int, why: Why, detail: str = "") -> None:
        super().__init__(detail or why.value)
        self.position = position
        self.why = why


class InDoubt(StoreFault):
    """The connection was lost before the answer came."""


class SessionOver(StoreFault):
    """The session is over for good."""


Changed = Callable[[], None]


class Session(Protocol):
    """One session, from its beginning until it expires or is closed.

    ``timeout_ms`` is what the servers granted, ``session_id`` what ephemeral nodes carry.
    """

    @property
    def timeout_ms(self) -> int:
        """After so long without a sign of this client the servers end the session."""

    @property
    def session_id(self) -> int:
        """The owner that ephemeral nodes of this session carry."""

    async def transact(self, operations: Sequence[Operation]) -> None:
        """Do all of it or nothing. Raises `Refused`, `InDoubt` or `SessionOver`."""

    async def read(self, path: str, changed: Changed | None = None) -> Node | None:
        """The node, None where there is none. ``changed`` is called once: when the node appears,
        changes or goes, or when the connection is lost. Raises `InDoubt` or `SessionOver`.
        """

    async def read_all(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes, asked for at once; raises as `read`."""

    async def children(self, path: str, changed: Changed | None = None) -> list[str]:
        """The names of a node's children, sorted; none where there is no such node."""

    async def reach(self) -> None:
        """Return once the leader has answered. Raises `InDoubt` or `SessionOver`."""

    async def connected(self) -> None:
        """Return once there is a connection; raises `SessionOver`."""


async def surely(session: Session, ask: Callable[[], Awaitable[T]]) -> T:
    """What ``ask``, which only reads, gives; asked again until an answer comes.

    Raises `SessionOver`.
    """
    while True:
        try:
            return await ask()
        except InDoubt:
            await session.connected()


async def settle(
    session: Session, operations: Sequence[Operation], is_done: Callable[[], Awaitable[bool]]
) -> None:
    """Do a transaction once, also where its answer is lost.

    ``is_done`` looks whether an earlier try has happened after all: it is asked when a later one is
    refused. Raises `Refused` where none has happened, and `SessionOver`.
    """
    is_in_doubt = False
    while True:
        try:
            await session.transact(operations)
        except InDoubt:
            is_in_doubt = True
            await session.connected()
        except Refused:
            if is_in_doubt and await surely(session, is_done):
                return
            raise
        else:
            return
