"""Rule ``transaction-timeout``: a transaction is aborted soon after its timeout.

The timeout counts from the begin of the transaction, also if the coordinator has loaded it since. A
load computes the age from the wall clock. If that stepped since the begin, the timeout ends earlier
or later by this difference, but at the latest one timeout after the load.
On a single broker, a coordinator that runs stores an abort within one interval of its check, and
some slack. After a load or a pause it has as much time again.

A transaction is open if a request that adds to it succeeds, and arrived after the decision about
the previous one of its producer.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from partage.lab.checkers.ledger import Ledger
from partage.lab.checkers.producer_fence import is_accepted
from partage.lab.checkers.wall_clocks import WallClocks
from partage.lab.clients.late_request import producer_of
from partage.lab.history import (
    BrokerDied,
    DecisionAppended,
    DecisionDurable,
    FaultsHealed,
    History,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    ShardAcquired,
    StallEnded,
    TransactionShardDropped,
    TransactionShardLoaded,
)
from partage.lab.options import ABORT_CHECK_INTERVAL_MS
from partage.model.settings import GroupSettings
from partage.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from partage.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from partage.wire.apis.init_producer_id import InitProducerIdRequest
from partage.wire.apis.produce import ProduceRequest
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest

#: The first versions with which a batch or an offset adds to a transaction (KIP-890).
_PRODUCE_VERSION: Final = 12
_OFFSETS_VERSION: Final = 5
_SLACK_MS: Final = 1_500
_GRACE_MAX_MS: Final = 10_000


class _OpenTransaction(NamedTuple):
    """A transaction that had begun at ``began_ms`` at the latest.

    ``difference_ms`` is the largest difference of the wall clock that its begin may have. The
    coordinator that runs counts the timeout from ``counted_ms`` at the latest.
    """

    transactional_id: str
    epoch: int
    began_ms: int
    difference_ms: int
    counted_ms: int


class TransactionTimeoutsChecker:
    """Tracks open transactions, and since when their coordinator runs."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._timeouts: dict[str, int] = {}
        self._open: dict[int, _OpenTransaction] = {}  # by producer id
        self._decided: dict[int, tuple[int, int]] = {}  # time and epoch of the last decision
        self._attempted: set[int] = set()  # decisions of this coordinator that are not durable yet
        self._running_ms: int | None = None  # since then the coordinator runs without a pause
        self._timers_wait_until_ms = 0  # after a pause, also if the coordinator loads then
        self._is_cluster = False
        self._wall_clocks = WallClocks(history)
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(DecisionAppended, self._on_decision)
        history.subscribe(DecisionDurable, self._on_durable)
        history.subscribe(TransactionShardLoaded, self._on_loaded)
        history.subscribe(TransactionShardDropped, self._on_dropped)
        history.subscribe(BrokerDied, self._on_died)
        history.subscribe(StallEnded, self._on_stall)
        history.subscribe(ShardAcquired, self._on_acquired)
        history.subscribe(FaultsHealed, lambda entry: self._judge(entry.at_ms))

    def _on_acquired(self, entry: ShardAcquired) -> None:
        self._is_cluster = True

    def _on_request(self, entry: RequestReceived) -> None:
        match entry.message:
            case InitProducerIdRequest(transactional_id=str(name)) as message:
                self._timeouts[name] = message.transaction_timeout_ms

    def _on_response(self, entry: ResponseSent) -> None:
        self._judge(entry.at_ms)
        name = _added_to(entry.request)
        if name is None or not is_accepted(entry.message):
            return
        producer_id, epoch = producer_of(entry.request.message)
        decided_ms, decided_epoch = self._decided.get(producer_id, (-1, -1))
        if entry.request.at_ms > decided_ms and epoch >= decided_epoch:
            difference_ms = self._wall_clocks.largest_ms(entry.request.at_ms)
            begun = _OpenTransaction(name, epoch, entry.at_ms, difference_ms, entry.at_ms)
            self._open.setdefault(producer_id, begun)

    def _on_decision(self, entry: DecisionAppended) -> None:
        self._judge(entry.at_ms)
        self._attempted.add(entry.producer_id)

    def _on_durable(self, entry: DecisionDurable) -> None:
        self._open.pop(entry.producer_id, None)
        self._attempted.discard(entry.producer_id)
        self._decided[entry.producer_id] = entry.at_ms, entry.epoch

    def _on_loaded(self, entry: TransactionShardLoaded) -> None:
        self._running_ms = max(entry.at_ms, self._timers_wait_until_ms)
        difference_ms = self._wall_clocks.difference_ms(entry.broker)
        for producer_id, transaction in self._open.items():
            late_ms = transaction.difference_ms - difference_ms
            counted_ms = min(transaction.began_ms + late_ms, entry.at_ms)
            self._open[producer_id] = transaction._replace(counted_ms=counted_ms)

    def _on_dropped(self, entry: TransactionShardDropped) -> None:
        self._judge(entry.at_ms)
        self._stop()

    def _on_died(self, entry: BrokerDied) -> None:
        self._timers_wait_until_ms = 0
        self._stop()

    def _stop(self) -> None:
        self._running_ms = None
        self._attempted.clear()

    def _on_stall(self, entry: StallEnded) -> None:
        grace_ms = min(entry.at_ms - entry.began_ms, _GRACE_MAX_MS)
        self._timers_wait_until_ms = max(self._timers_wait_until_ms, entry.at_ms + grace_ms)
        if self._running_ms is not None:
            self._running_ms = max(self._running_ms, self._timers_wait_until_ms)

    def _judge(self, at_ms: int) -> None:
        running_ms = self._running_ms
        if running_ms is None or self._is_cluster:
            return
        for producer_id, transaction in self._open.items():
            due_ms = transaction.counted_ms + self._timeouts[transaction.transactional_id]
            late_ms = at_ms - max(due_ms, running_ms)
            if producer_id not in self._attempted and late_ms > ABORT_CHECK_INTERVAL_MS + _SLACK_MS:
                raise RuleViolationError(
                    "transaction-timeout",
                    f"{transaction} of producer {producer_id} is open {late_ms} ms after its "
                    "timeout, although its coordinator runs",
                )


def _added_to(request: RequestReceived) -> str | None:
    """Return the transactional id if a request adds to its transaction, or begins it."""
    message: Any = request.message
    match message:
        case AddPartitionsToTxnRequest():
            return message.v3_and_below_transactional_id or None
        case AddOffsetsToTxnRequest():
            return str(message.transactional_id)
        case ProduceRequest(transactional_id=str(name)) if request.version >= _PRODUCE_VERSION:
            return name
        case TxnOffsetCommitRequest() if request.version >= _OFFSETS_VERSION:
            return str(message.transactional_id)
    return None
