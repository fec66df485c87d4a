"""A ZooKeeper session over kazoo, for one event loop.

When a session expires, kazoo opens a new one by itself, and the same client object continues to
write as if nothing had happened. Therefore each client is used for one session only. Callbacks from
kazoo's threads arrive on the loop in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import Connect

from partage.broker.clock import Clock
from partage.broker.cluster.cluster_session import ZooKeeperUnreachableError
from partage.broker.cluster.state_address import StateAddress
from partage.broker.cluster.tls import KazooTlsHandler, ssl_context
from partage.model.settings import BrokerSettings
from partage.store.zookeeper import (
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
    StoreError,
    ZNode,
)

T = TypeVar("T")

_CONNECT_TIMEOUT_S: Final = 10.0
_RETRY: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.1}
_REFUSAL_REASONS: Final = {
    NodeExistsError: RefusalReason.EXISTS,
    NoNodeError: RefusalReason.MISSING,
    BadVersionError: RefusalReason.VERSION,
    NotEmptyError: RefusalReason.CHILDREN,
}
_ANY_VERSION: Final = -1
_ROLLED_BACK: Final = (RolledBackError, RuntimeInconsistency)

log = logging.getLogger(__name__)
_quiet = logging.getLogger(f"{__name__}.kazoo")
_quiet.setLevel(logging.CRITICAL)  # this module logs what matters itself


class KazooSession:
    """One session, see `ClusterSession`; created by `begin`, ended by `end`.

    Attributes:
        on_suspended: called on the loop when the connection is lost.
        on_connected: called on the loop when it is connected again in the same session.
        on_ended: called on the loop when the session has ended.
    """

    def __init__(self, hosts: str, timeout_ms: int, context: ssl.SSLContext | None = None) -> None:
        self.on_suspended: Callable[[], None] = _no_op
        self.on_connected: Callable[[], None] = _no_op
        self.on_ended: Callable[[], None] = _no_op
        #: Time by `Clock.boot_ms` before the session started.
        self.started_ms = Clock().boot_ms()
        self._requested_timeout_ms = timeout_ms
        self._granted_timeout_ms: int | None = None
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._pending: set[asyncio.Future[Any]] = set()  # results that callers are waiting for
        # kazoo ignores a watch that is registered twice only if it is the same object
        self._watches: dict[ChangeCallback, Callable[[Any], None]] = {}
        self._is_ended = False  # set in kazoo's thread, before it can start another session
        self._tls = None if context is None else KazooTlsHandler(context)
        self._client = KazooClient(
            hosts,
            timeout=timeout_ms / 1000,
            connection_retry=dict(_RETRY),
            logger=_quiet,
            handler=self._tls,
            use_ssl=context is not None,
        )
        self._client.add_listener(self._on_kazoo_state)
        self._capture_granted_timeout()

    def _capture_granted_timeout(self) -> None:
        """Record the session timeout that the servers grant: kazoo does not expose it."""
        connection = self._client._connection
        invoke = connection._invoke

        def noting(timeout: float, request: Any, xid: int | None = None) -> Any:
            result = invoke(timeout, request, xid)
            if isinstance(request, Connect) and result and result[0].time_out > 0:
                self._granted_timeout_ms = result[0].time_out
            return result

        connection._invoke = noting

    @classmethod
    async def begin(
        cls, hosts: str, timeout_ms: int, wait_s: float, context: ssl.SSLContext | None = None
    ) -> KazooSession:
        """Connect, with TLS if a context is given.

        Args:
            hosts: the servers, ``HOST:PORT,HOST:PORT``.
            timeout_ms: the requested session timeout.
            wait_s: how long to wait for a server.
            context: the TLS context; None for a plain connection.

        Raises:
            ZooKeeperUnreachableError: no server answered in time.
        """
        session = cls(hosts, timeout_ms, context)
        session._client.start_async()
        try:
            await asyncio.wait_for(session._connected.wait(), wait_s)
        except TimeoutError:
            await session.end()
            fault = "" if session._tls is None else session._tls.fault
            raise ZooKeeperUnreachableError(
                "no ZooKeeper server answers at "
                f"{hosts}{f' over TLS ({fault})' if fault else ''}; start "
                "it, or correct --state"
            ) from None
        except BaseException:
            await session.end()
            raise
        return session

    async def end(self) -> None:
        """Close the session. Its ephemeral nodes are removed at once if a server is reachable."""
        self._is_ended = True
        self.on_ended = self.on_suspended = self.on_connected = _no_op
        self._connected.set()
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self._stop)
        self._fail_pending()

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    # Callbacks in kazoo's threads.

    def _on_kazoo_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._is_ended = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_state_changed, state)

    def _on_state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED and not self._is_ended:
            self._connected.set()
            self.on_connected()
        elif state == KazooState.SUSPENDED and not self._is_ended:
            self._connected.clear()
            self.on_suspended()
        elif self._is_ended:
            self._fail_pending()
            on_over, self.on_ended = self.on_ended, _no_op
            on_over()

    def _fail_pending(self) -> None:
        """Fail all pending requests.

        kazoo may never answer requests that are made while it stops its threads or replaces its
        queues for a new session.
        """
        self._connected.set()
        open_, self._pending = self._pending, set()
        for answer in open_:
            if not answer.done():
                answer.set_exception(SessionExpiredError("the ZooKeeper session has ended"))

    # Implementation of `partage.store.zookeeper.Session`.

    @property
    def timeout_ms(self) -> int:
        """Session timeout that the servers granted."""
        return self._granted_timeout_ms or self._requested_timeout_ms

    @property
    def session_id(self) -> int:
        """Session id, as the servers store it in ephemeral nodes."""
        session = self._client.client_id
        return 0 if session is None else int(session[0])

    async def wait_connected(self) -> None:
        """Return once there is a connection.

        Raises:
            SessionEndedError: the session has ended.
        """
        await self._connected.wait()
        self._check()

    def _check(self) -> None:
        if self._is_ended:
            raise SessionEndedError("the ZooKeeper session has ended")

    async def transact(self, operations: Sequence[Operation]) -> None:
        """Apply all operations, or none."""
        self._check()
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Check():
                    transaction.check(operation.path, operation.version)
                case Create():
                    transaction.create(
                        operation.path, operation.data, ephemeral=operation.is_ephemeral
                    )
                case SetData():
                    transaction.set_data(operation.path, operation.data, operation.version)
                case Delete():
                    transaction.delete(operation.path, operation.version)
        results = await self._request(transaction.commit_async)
        for position, result in enumerate(results):
            if isinstance(result, SessionExpiredError):
                raise SessionEndedError("the ZooKeeper session has ended")
            if isinstance(result, Exception) and not isinstance(result, _ROLLED_BACK):
                why = _REFUSAL_REASONS.get(type(result), RefusalReason.OTHER)
                path = operations[position].path
                raise RefusedError(position, why, f"{path}: {why.value}: {type(result).__name__}")

    async def read(self, path: str, changed: ChangeCallback | None = None) -> ZNode | None:
        """Return the node, or None if it does not exist."""
        watch = self._watch(changed)
        try:
            data, stat = await self._request(partial(self._client.get_async, path, watch=watch))
        except RefusedError as refused:
            if refused.reason is not RefusalReason.MISSING:
                raise
            if watch is None:
                return None
            # The watch on a missing node must be set with `exists`.
            if await self._request(partial(self._client.exists_async, path, watch=watch)) is None:
                return None
            return await self.read(path)
        return ZNode(
            data=data,
            version=stat.version,
            created_ms=stat.ctime,
            session=stat.ephemeralOwner,
        )

    async def read_all(self, paths: Sequence[str]) -> list[ZNode | None]:
        """Return the nodes, requested concurrently."""
        return list(await asyncio.gather(*map(self.read, paths)))

    async def children(self, path: str, changed: ChangeCallback | None = None) -> list[str]:
        """Return the sorted names of the children."""
        watch = self._watch(changed)
        try:
            names = await self._request(partial(self._client.get_children_async, path, watch=watch))
        except RefusedError as refused:
            if refused.reason is not RefusalReason.MISSING:
                raise
            return []
        return sorted(names)

    async def ping_leader(self) -> None:
        """Return once the leader and a quorum have confirmed a transaction without effect.

        A server that answers from its memory may be behind. ``sync`` asks only the leader, and if
        nothing else is in progress the leader answers alone, even for some ticks after the quorum
        elected another leader. A refusal is also agreed on by the quorum, so the root need not be
        readable.
        """
        with contextlib.suppress(RefusedError):
            await self.transact([Check("/", _ANY_VERSION)])

    def _watch(self, changed: ChangeCallback | None) -> Callable[[Any], None] | None:
        if changed is None:
            return None
        if changed in self._watches:
            return self._watches[changed]

        def callback(event: Any) -> None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(changed)

        self._watches[changed] = callback
        return callback

    async def _request(self, ask: Callable[[], Any]) -> Any:
        """Send a request through kazoo; return the result or raise a `StoreError`."""
        self._check()
        answer: asyncio.Future[Any] = self._loop.create_future()

        def answered(result: Any) -> None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_set_result, answer, result)

        self._pending.add(answer)
        try:
            ask().rawlink(answered)
            return await answer
        except KazooException as error:
            raise _to_store_error(error) from None
        finally:
            self._pending.discard(answer)


async def begin_session(address: StateAddress, settings: BrokerSettings) -> KazooSession:
    """Begin a session of a broker; see `partage.broker.cluster.cluster_session.BeginSession`."""
    log.info(
        "started to connect to ZooKeeper: servers=%s timeout_s=%g",
        address.servers,
        _CONNECT_TIMEOUT_S,
    )
    return await KazooSession.begin(
        address.servers,
        settings.zookeeper_session_timeout_ms,
        _CONNECT_TIMEOUT_S,
        ssl_context(settings),
    )


def _set_result(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():  # the caller was cancelled
        return
    if result.exception is not None:
        answer.set_exception(result.exception)
    else:
        answer.set_result(result.value)


def _to_store_error(error: KazooException) -> StoreError:
    if isinstance(error, SessionExpiredError):  # also if the client was closed
        return SessionEndedError(str(error) or "the ZooKeeper session has ended")
    if isinstance(error, ConnectionLoss | OperationTimeoutError | SessionMovedError):
        return InDoubtError(str(error) or "the connection to ZooKeeper was lost")
    why = _REFUSAL_REASONS.get(type(error), RefusalReason.OTHER)
    return RefusedError(0, why, f"{why.value}: {type(error).__name__} {error}".rstrip())


def _no_op() -> None:
    """Do nothing."""
