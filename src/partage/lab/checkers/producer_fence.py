"""Rule ``producer-fence``: a fenced producer writes nothing, and no producer is fenced for nothing.

- After the response to an InitProducerId, no batch and no offset with an older epoch is written,
  or with an older producer id of the transactional id.
- After the response to an EndTxn v5, which has a new epoch, none with the older epoch begins a
  transaction (KIP-890).
- An InitProducerId with an id and an epoch is accepted only if they are the newest ones, or if it
  repeats the request that got the newest ones (KIP-360). After the transactional id has expired,
  any are accepted, for a new producer id.
- No client gets the last epoch of a producer id, with which only the coordinator can fence it.
- A request is accepted only with a producer id of its transactional id.
- A producer is fenced only if another InitProducerId or EndTxn v5 was received since it got its
  epoch, or if its transaction may have timed out. This may be early if a coordinator loaded it with
  another wall clock. A repetition of its InitProducerId is no other one, also if the coordinator
  has moved or died meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

from partage.lab.checkers.ledger import Ledger
from partage.lab.checkers.wall_clocks import WallClocks
from partage.lab.clients.late_request import producer_of
from partage.lab.history import (
    BatchAppended,
    History,
    RecordsAppended,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    TransactionalIdExpired,
)
from partage.lab.offset_log import PendingOffset
from partage.lab.options import TRANSACTIONAL_ID_EXPIRATION_MS
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from partage.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from partage.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from partage.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from partage.wire.apis.produce import ProduceRequest
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_NEW_EPOCH_VERSION: Final = 5
#: The last epoch of a producer id that a client gets; the coordinator needs one more to fence it.
_LAST_EPOCH: Final = 32_766
_TRANSACTIONAL: Final = (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)


_Identity = tuple[int, int]  # producer id and epoch


class ProducerFenceChecker:
    """Tracks the epochs that producers received."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._logs = ledger.outputs.logs
        # producer id -> the lowest epoch that may write, and the lowest one that may begin
        self._lowest: dict[int, int] = {}
        self._beginning: dict[int, int] = {}
        self._ids: dict[str, set[int]] = {}  # producer ids of a transactional id
        # the request that got an identity, and the transaction timeout
        self._given: dict[_Identity, tuple[RequestReceived, int]] = {}
        self._timeouts: dict[str, int] = {}
        self._reinitialized: dict[str, int] = {}  # number of the last InitProducerId request
        # the same for each identity in such a request
        self._reinitialized_as: dict[str, dict[_Identity, int]] = {}
        self._ended: set[tuple[int, int]] = set()  # with an EndTxn v5
        self._newest_sent: dict[int, int] = {}  # epoch in a request, by producer id
        # the newest identity of a transactional id, and the one in the request that got it
        self._newest: dict[str, tuple[_Identity, _Identity]] = {}
        self._newest_at: dict[int, tuple[_Identity, _Identity]] = {}  # by request
        self._wall_clocks = WallClocks(history)
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(BatchAppended, self._on_batch)
        history.subscribe(TransactionalIdExpired, self._on_expired)
        ledger.on_appended(self._on_records)

    def _on_expired(self, entry: TransactionalIdExpired) -> None:
        if entry.changed_ms is not None:
            unused_ms = entry.wall_ms - entry.changed_ms
            if unused_ms < TRANSACTIONAL_ID_EXPIRATION_MS:
                problem = f"{entry.transactional_id} was removed after {unused_ms} ms without use"
                raise RuleViolationError("producer-fence", problem)
        self._newest.pop(entry.transactional_id, None)

    def _on_request(self, entry: RequestReceived) -> None:
        if isinstance(entry.message, _TRANSACTIONAL) and _transactional_id(entry.message):
            producer_id, epoch = producer_of(entry.message)
            self._newest_sent[producer_id] = max(epoch, self._newest_sent.get(producer_id, -1))
        match entry.message:
            case InitProducerIdRequest(transactional_id=str(name)) as message:
                if name in self._newest:
                    self._newest_at[entry.serial] = self._newest[name]
                self._reinitialized[name] = entry.serial
                identity = message.producer_id, message.producer_epoch
                self._reinitialized_as.setdefault(name, {})[identity] = entry.serial
                self._timeouts[name] = message.transaction_timeout_ms
            case EndTxnRequest() as message if entry.version >= _NEW_EPOCH_VERSION:
                self._ended.add((message.producer_id, message.producer_epoch))

    def _on_response(self, entry: ResponseSent) -> None:
        match entry.request.message, entry.message:
            case InitProducerIdRequest(transactional_id=str(name)), InitProducerIdResponse(
                error_code=0
            ) as given:
                self._judge_recovery(entry)
                known = self._ids.setdefault(name, set())
                for older in known - {given.producer_id}:
                    self._lowest[older] = 1 << 15
                known.add(given.producer_id)
                self._lowest[given.producer_id] = given.producer_epoch
                self._give(given, entry, name)
                asked = entry.request.message
                self._newest[name] = (
                    (given.producer_id, given.producer_epoch),
                    (asked.producer_id, asked.producer_epoch),
                )
            case EndTxnRequest() as asked, EndTxnResponse(error_code=0) as given:
                if entry.request.version >= _NEW_EPOCH_VERSION:
                    self._beginning[asked.producer_id] = (
                        given.producer_epoch if given.producer_id == asked.producer_id else 1 << 15
                    )
                    self._ids.setdefault(asked.transactional_id, set()).add(given.producer_id)
                    self._give(given, entry, asked.transactional_id)
                    self._newest[asked.transactional_id] = (
                        (given.producer_id, given.producer_epoch),
                        (asked.producer_id, asked.producer_epoch),
                    )
        if isinstance(entry.request.message, _TRANSACTIONAL):
            self._judge_identity(entry)
            self._judge_error(entry)
        elif isinstance(entry.request.message, InitProducerIdRequest):
            self._judge_refused_recovery(entry)

    def _give(
        self, given: InitProducerIdResponse | EndTxnResponse, entry: ResponseSent, name: str
    ) -> None:
        identity = given.producer_id, given.producer_epoch
        if given.producer_epoch > _LAST_EPOCH:
            raise RuleViolationError(
                "producer-fence", f"{name} got {identity}: the coordinator cannot fence this epoch"
            )
        self._given.setdefault(identity, (entry.request, self._timeouts[name]))

    def _judge_recovery(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        identity = asked.producer_id, asked.producer_epoch
        newest = self._newest_at.pop(entry.request.serial, None)
        if asked.producer_id >= 0 and newest is not None and identity not in newest:
            raise RuleViolationError(
                "producer-fence", f"{identity} was accepted in {asked}, but {newest[0]} is newer"
            )

    def _judge_refused_recovery(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        name, identity = asked.transactional_id, (asked.producer_id, asked.producer_epoch)
        if not _error_codes(entry.message) & _FENCED or identity not in self._given:
            return
        request, timeout_ms = self._given[identity]
        others = self._reinitialized_as[name].items()
        is_explained = any(
            serial > request.serial for other, serial in others if other != identity
        ) or self._may_have_timed_out(request.at_ms, entry.at_ms, timeout_ms)
        if not is_explained:
            raise RuleViolationError(
                "producer-fence", f"{name} cannot recover with its current epoch {identity}"
            )

    def _judge_error(self, entry: ResponseSent) -> None:
        message: Any = entry.request.message
        name = _transactional_id(message)
        if name is None or not _error_codes(entry.message) & _FENCED:
            return
        identity = producer_of(message)
        request, timeout_ms = self._given.get(identity, (None, 0))
        is_explained = (
            request is None
            or self._reinitialized[name] > request.serial
            or self._is_ended_by_another(entry.request, identity)
            or self._may_have_timed_out(request.at_ms, entry.at_ms, timeout_ms)
        )
        if not is_explained:
            raise RuleViolationError(
                "producer-fence", f"{name} was fenced with its current epoch {identity}"
            )

    def _may_have_timed_out(self, given_ms: int, at_ms: int, timeout_ms: int) -> bool:
        """Return True if a transaction that began after ``given_ms`` may have timed out."""
        if at_ms - given_ms >= timeout_ms:
            return True
        return self._wall_clocks.has_aged(given_ms, at_ms, timeout_ms)

    def _judge_identity(self, entry: ResponseSent) -> None:
        message: Any = entry.request.message
        name = _transactional_id(message)
        if name not in self._ids or not is_accepted(entry.message):
            return
        producer_id, _ = producer_of(message)
        if producer_id not in self._ids[name]:
            raise RuleViolationError(
                "producer-fence", f"{name} never got the id in {message}, which was accepted"
            )

    def _is_ended_by_another(self, request: RequestReceived, identity: _Identity) -> bool:
        """Return True if an EndTxn v5 ended the epoch, other than a request that repeats it."""
        is_end = isinstance(request.message, EndTxnRequest)
        if is_end and self._newest_sent[identity[0]] == identity[1]:
            return False
        return any(
            producer_id == identity[0] and epoch >= identity[1]
            for producer_id, epoch in self._ended
        )

    def _on_batch(self, entry: BatchAppended) -> None:
        if not entry.is_transactional or entry.marker is not None:
            return
        batches = self._logs[entry.partition].open.get(entry.producer_id, [])
        is_first = not batches or batches[0].entry is entry
        self._check(entry.producer_id, entry.producer_epoch, f"{entry}", is_first=is_first)

    def _on_records(self, entry: RecordsAppended) -> None:
        for record in entry.records:
            if isinstance(record, PendingOffset) and record.offset is not None:
                self._check(record.producer_id, record.producer_epoch, f"{record}", is_first=False)

    def _check(self, producer_id: int, epoch: int, what: str, *, is_first: bool) -> None:
        lowest = self._lowest.get(producer_id, 0)
        if is_first:
            lowest = max(lowest, self._beginning.get(producer_id, 0))
        if epoch < lowest:
            raise RuleViolationError(
                "producer-fence", f"a fenced producer wrote {what}; its epoch is below {lowest}"
            )


def _transactional_id(message: Any) -> str | None:
    name = getattr(message, "v3_and_below_transactional_id", "")
    return name or getattr(message, "transactional_id", None)


def is_accepted(message: Any) -> bool:
    """Return True if the request succeeded, for some of its partitions at least."""
    codes = _partition_codes(message)
    return 0 in codes if codes else not message.error_code


def _error_codes(message: Any) -> set[int]:
    return _partition_codes(message) | {getattr(message, "error_code", 0)}


def _partition_codes(message: Any) -> set[int]:
    codes = set[int]()
    for topic in getattr(message, "responses", ()):
        codes |= {p.error_code for p in topic.partition_responses}
    for topic in getattr(message, "topics", ()):
        codes |= {p.error_code for p in topic.partitions}
    for topic in getattr(message, "results_by_topic_v3_and_below", ()):
        codes |= {p.partition_error_code for p in topic.results_by_partition}
    return codes
