"""Rule ``admission``: no batch and no offset of an open transaction is refused as late.

A marker of the transaction may refuse those that wait for their admission, with INVALID_TXN_STATE.
With KIP-890, each transaction has a separate epoch. So the marker of the previous transaction must
refuse nothing, also if a coordinator repeats it. The error is right only if the transaction may
have ended: by an EndTxn with its epoch, by another InitProducerId, or by its timeout. It is also
right if the log was opened again, which forgets who waits.
"""

from __future__ import annotations

from typing import Any, Final

from partage.lab.checkers.ledger import Ledger
from partage.lab.clients.late_request import producer_of
from partage.lab.history import (
    History,
    LogOpened,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from partage.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from partage.wire.apis.produce import ProduceRequest, ProduceResponse
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_PRODUCE_VERSION: Final = 12
_OFFSETS_VERSION: Final = 5


class AdmissionsChecker:
    """Tracks the transactions of producers with KIP-890."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        # the request that got a producer id and epoch, and its transactional id
        self._given: dict[tuple[int, int], tuple[RequestReceived, str]] = {}
        self._timeouts: dict[str, int] = {}
        self._reinitialized: dict[str, int] = {}  # number of the last InitProducerId request
        self._ended: set[tuple[int, int]] = set()
        self._opened_ms = 0  # when a log was last opened
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(LogOpened, self._on_opened)

    def _on_request(self, entry: RequestReceived) -> None:
        match entry.message:
            case InitProducerIdRequest(transactional_id=str(name)) as message:
                self._reinitialized[name] = entry.serial
                self._timeouts[name] = message.transaction_timeout_ms
            case EndTxnRequest() as message:
                self._ended.add((message.producer_id, message.producer_epoch))

    def _on_opened(self, entry: LogOpened) -> None:
        self._opened_ms = entry.at_ms

    def _on_response(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        match asked, entry.message:
            case (
                (
                    InitProducerIdRequest(transactional_id=str(name))
                    | EndTxnRequest(transactional_id=str(name))
                ),
                (InitProducerIdResponse(error_code=0) | EndTxnResponse(error_code=0)) as given,
            ):
                identity = given.producer_id, given.producer_epoch
                self._given.setdefault(identity, (entry.request, name))
            case ProduceRequest(transactional_id=str()), ProduceResponse() as sent:
                if entry.request.version >= _PRODUCE_VERSION:
                    codes = {p.error_code for t in sent.responses for p in t.partition_responses}
                    self._judge(entry, codes)
            case TxnOffsetCommitRequest(), TxnOffsetCommitResponse() as sent:
                if entry.request.version >= _OFFSETS_VERSION:
                    self._judge(entry, {p.error_code for t in sent.topics for p in t.partitions})

    def _judge(self, entry: ResponseSent, codes: set[int]) -> None:
        if ErrorCode.INVALID_TXN_STATE not in codes:
            return
        identity = producer_of(entry.request.message)
        if identity not in self._given or identity in self._ended:
            return
        request, name = self._given[identity]
        is_explained = (
            self._reinitialized[name] > request.serial
            or entry.at_ms - request.at_ms >= self._timeouts[name]
            or self._opened_ms >= entry.request.at_ms
        )
        if not is_explained:
            raise RuleViolationError(
                "admission", f"{name} was refused in its open transaction with {identity}"
            )
