"""A single writer: an election whose winner holds a transactional id, so that the broker rejects
everything that an earlier winner still writes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Unpack

from partage.client.addresses import BootstrapServers
from partage.client.config import DynamicMemberConfig
from partage.model.arguments import check_function, check_instance, invalid_argument
from partage.recipes.election import LeaderElection, Term

log = logging.getLogger(__name__)

#: The blocking call that fences earlier producers returns after this time, to be repeated.
_INIT_STEP_S: Final = 1.0
#: The pause before a writer that was fenced during its term becomes a candidate again.
_FENCED_PAUSE_S: Final = 1.0

CreateProducer = Callable[[str], Any]
WriteFunction = Callable[[Term, Any], Awaitable[object]]


class SingleWriter(LeaderElection):
    """A participant in an election of which one process at a time writes, with transactions.

    At the start of a term, the winner creates a producer with the transactional id of all
    participants, and initializes its transactions. From then on the broker rejects every request of
    an earlier producer, even of a process that was suspended and does not know that its term has
    ended. Then ``write`` runs with the `Term` and the producer::

        def create_producer(transactional_id):
            return Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})

        async def write(term, producer):
            ...

        async with SingleWriter(servers, "ledger", create_producer=create_producer, write=write):
            ...

    Only writes inside a transaction are protected. When ``write`` returns or raises, the process
    resigns, as in `LeaderElection`. There is one exception: if the broker rejects the producer
    although the term has not ended, the process becomes a candidate again. A process that was
    suspended just before it initialized its producer can cause this.

    Args:
        bootstrap_servers: As in `LeaderElection`.
        group_id: The group of the election.
        create_producer: A function or coroutine function that takes the transactional id and
            returns a new producer of confluent-kafka or aiokafka. Do not initialize or start it.
        write: A coroutine function that takes the `Term` and the producer.
        transactional_id: The transactional id; ``group_id`` if None.
        identity, stands, priority, stop_ms, options: As in `LeaderElection`.

    Raises:
        InvalidArgumentError: An argument is invalid.
        ClientError: As `Membership`.
    """

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        *,
        create_producer: CreateProducer,
        write: WriteFunction,
        transactional_id: str | None = None,
        identity: Any = None,
        stands: bool = True,
        priority: int = 0,
        stop_ms: int | None = None,
        **options: Unpack[DynamicMemberConfig],
    ) -> None:
        check_function("create_producer", create_producer, "a transactional id")
        check_function("write", write, "a Term and a producer")
        if transactional_id is not None:
            check_instance("transactional_id", transactional_id, str)
            if not transactional_id:
                raise invalid_argument("transactional_id", transactional_id, "at least 1 character")
        self._create_producer = create_producer
        self._write = write
        self.transactional_id = group_id if transactional_id is None else transactional_id
        super().__init__(
            bootstrap_servers,
            group_id,
            identity,
            work=self._write_in_term,
            stands=stands,
            priority=priority,
            stop_ms=stop_ms,
            **options,
        )
        self.membership._name_in_warning = "SingleWriter"
        self._resign_count = 0
        self._closing: set[asyncio.Task[None]] = set()  # of producers that take long to close

    async def resign(self) -> None:
        """Resign as `LeaderElection.resign` does, also from a candidacy after a lost term."""
        self._resign_count += 1
        await super().resign()

    async def _write_in_term(self, term: Term) -> None:
        producer = self._create_producer(self.transactional_id)
        if inspect.isawaitable(producer):
            producer = await producer
        is_initialized = False
        try:
            is_initialized = await _init_transactions(producer, term)
            # A process may have been suspended meanwhile. Its successor then fences it.
            if term.is_active:
                await self._write(term, producer)
        finally:
            closing = asyncio.create_task(_close(producer, is_initialized=is_initialized))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            # Not `asyncio.wait_for`: an interrupted `stop` of aiokafka leaves its tasks and
            # connections behind for ever.
            await asyncio.wait({closing}, timeout=self._margin_ms / 1000)

    async def _on_work_done(self, term: Term) -> None:
        is_current = self._term is term and not term.has_ended
        resign_count = self._resign_count + 1  # the end of the work resigns
        await super()._on_work_done(term)
        if not is_current or self.failure is None or not is_fenced(self.failure):
            return
        log.warning(
            "another producer initialized the transactional id during the term: "
            "transactional_id=%r token=%d",
            self.transactional_id,
            term.token,
        )
        await self._pause()
        if self._resign_count == resign_count:  # otherwise the user has resigned meanwhile
            self._stands = True
            self._update()

    async def _pause(self) -> None:
        await asyncio.sleep(_FENCED_PAUSE_S)


def is_fenced(error: BaseException) -> bool:
    """True if a producer of confluent-kafka or aiokafka was fenced by another one."""
    code = getattr(error.args[0], "code", None) if error.args else None
    if callable(code):
        return code() in _FENCED_CODES
    return type(error).__name__ in ("ProducerFenced", "InvalidProducerEpoch")


#: librdkafka's _FENCED and _FATAL, and Kafka's INVALID_PRODUCER_EPOCH and PRODUCER_FENCED.
#: librdkafka reports _FATAL from `produce` after it was fenced in the background.
_FENCED_CODES: Final = frozenset({-144, -150, 47, 90})


async def _init_transactions(producer: Any, term: Term) -> bool:
    """Fence earlier producers with the same transactional id; return False if the term ends
    first.
    """
    if not hasattr(producer, "init_transactions"):
        await producer.start()  # aiokafka
        return True
    while term.is_active:
        step = asyncio.ensure_future(asyncio.to_thread(producer.init_transactions, _INIT_STEP_S))
        # After a cancellation, the result has no meaning.
        step.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            # Not `asyncio.shield`: on Python 3.14, it logs errors after a cancellation.
            await asyncio.wait([step])
            step.result()
        except asyncio.CancelledError:
            # A thread cannot be cancelled. If this process resigned earlier, the thread could fence
            # the successor.
            await asyncio.wait([step])
            raise
        except Exception as error:
            if not _is_retriable(error):
                raise
        else:
            return True
    return False


def _is_retriable(error: Exception) -> bool:
    retriable = getattr(error.args[0], "retriable", None) if error.args else None
    return bool(callable(retriable) and retriable())


async def _close(producer: Any, *, is_initialized: bool) -> None:
    """Close a producer. It may wait for its records; the next writer aborts its transaction.

    librdkafka initializes a producer in the background, too, and would fence the next writer. So a
    producer that is not initialized is closed completely, if its version has ``close``.
    """
    try:
        if hasattr(producer, "purge"):
            producer.purge(blocking=False)
            if not is_initialized and hasattr(producer, "close"):
                await asyncio.to_thread(producer.close)
        else:
            await _stop(producer)
    except Exception as error:  # for example without a connection; the broker ends the transaction
        log.warning("closing the producer failed: %s", error)


async def _stop(producer: Any) -> None:
    """Stop a producer of aiokafka; its `stop` keeps the connections of a fenced producer open."""
    try:
        await producer.stop()
    except Exception:  # such as ProducerFenced; the caller logs it
        client = getattr(producer, "client", None)
        if client is not None:
            await client.close()
        raise
