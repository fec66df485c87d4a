"""Mutants of transactions: the coordinator, its formats, the log, markers and pending offsets."""

from __future__ import annotations

from typing import Any, Final

from .mutant import Mutant

_T, _L, _R = "partage.transactions", "partage.log", "partage.runtime"

#: The worlds in which these mutants are searched for: many transactions, and the faults of brokers
#: and connections besides those of transactions.
_WORLDS: Final[dict[str, Any]] = {
    "brokers": 1,
    "members": 1,
    "transactional_producers": 2,
    "transaction_every_ms": 1,
    "late_markers": 0,
    "wrong_request_share": 0,
    "repeated_request_share": 0,
    "delete_retention_ms": 86_400_000,
    "compactions": 0,
    "output_is_compacted": False,
    "kinds": "broker_is_killed,power_fails,power_fails_in_a_write,broker_pauses,disk_slows_down,"
    "writes_fail,syncs_fail,connection_resets,response_is_lost,network_slows_down,log_is_compacted",
}


#: Those of mutants that concern the members of a group with offsets in transactions.
_GROUP_WORLDS: Final[dict[str, Any]] = {
    **_WORLDS,
    "transactional_producers": 1,
    "transactional_members": 3,
}


#: Those of mutants that need several brokers: coordinators move, and markers and admissions go from
#: broker to broker. With KIP-890, the epochs of producers would protect them, too.
_CLUSTER_WORLDS: Final[dict[str, Any]] = {
    "brokers": 2,
    "output_leaders": 1,
    "link_faults": 0,
    "members": 1,
    "transactional_producers": 2,
    "transactional_members": 2,
    "transaction_every_ms": 1,
    "transaction_protocol": "old",
    "late_markers": 0,
    "wrong_request_share": 0,
    "repeated_request_share": 0,
    "delete_retention_ms": 86_400_000,
    "compactions": 0,
    "output_is_compacted": False,
}


#: Those of mutants that need a transaction with partitions on several brokers.
_SPREAD_WORLDS: Final[dict[str, Any]] = {
    "brokers": 3,
    "members": 1,
    "transactional_producers": 2,
    "transactional_members": 2,
    "transaction_every_ms": 1,
    "link_faults": 6,
    "late_markers": 0,
    "wrong_request_share": 0,
    "repeated_request_share": 0,
    "delete_retention_ms": 86_400_000,
    "compactions": 0,
    "output_is_compacted": False,
}


#: Those of mutants that need markers that arrive again: one broker, or several.
_LATE_MARKER_WORLDS: Final[dict[str, Any]] = {**_WORLDS, "late_markers": 40}
_LATE_CLUSTER_MARKER_WORLDS: Final[dict[str, Any]] = {**_CLUSTER_WORLDS, "late_markers": 40}


#: Those of mutants that need wrong requests, as of clients with bugs.
_WRONG_REQUEST_WORLDS: Final[dict[str, Any]] = {**_WORLDS, "wrong_request_share": 0.3}


#: Those of mutants that need requests that a producer sends over two connections.
_REPEATED_REQUEST_WORLDS: Final[dict[str, Any]] = {**_WORLDS, "repeated_request_share": 0.2}


#: Those of mutants that need admissions that take longer than clients wait.
_SLOW_ADMISSION_WORLDS: Final[dict[str, Any]] = {
    **_REPEATED_REQUEST_WORLDS,
    "transaction_protocol": "old",
    "transaction_kinds": "admissions_are_slow",
}


#: The same with several brokers, which send the markers.
_SLOW_CLUSTER_ADMISSION_WORLDS: Final[dict[str, Any]] = {
    **_CLUSTER_WORLDS,
    "repeated_request_share": 0.2,
    "transaction_kinds": "admissions_are_slow",
}


#: Those of mutants that need offsets that are deleted while they are pending.
_DELETED_OFFSET_WORLDS: Final[dict[str, Any]] = {
    **_WORLDS,
    "transaction_kinds": "offset_is_deleted_beside_transactions,offsets_of_transactions_are_read",
}


#: Those of mutants of compaction: all logs are compacted, and drop markers and tombstones soon.
COMPACTION_WORLDS: Final[dict[str, Any]] = {
    **_WORLDS,
    "compactions": 12,
    "output_is_compacted": True,
    "delete_retention_ms": 3_000,
}


def _mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _WORLDS)


def _compaction_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, COMPACTION_WORLDS)


def _group_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _GROUP_WORLDS)


def _cluster_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _CLUSTER_WORLDS)


def _spread_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _SPREAD_WORLDS)


def _late_marker_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _LATE_MARKER_WORLDS)


def _late_cluster_marker_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _LATE_CLUSTER_MARKER_WORLDS)


def _wrong_request_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _WRONG_REQUEST_WORLDS)


def _repeated_request_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _REPEATED_REQUEST_WORLDS)


def _slow_admission_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _SLOW_ADMISSION_WORLDS)


def _slow_cluster_admission_mutant(
    name: str, module: str, original: str, replacement: str
) -> Mutant:
    return Mutant(name, module, original, replacement, _SLOW_CLUSTER_ADMISSION_WORLDS)


def _deleted_offset_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _DELETED_OFFSET_WORLDS)


_COORDINATOR_MUTANTS = (
    _mutant(
        "an EndTxn with an older epoch is accepted",
        f"{_T}.end",
        "if event.epoch != record.epoch:",
        "if event.epoch > record.epoch:",
    ),
    _wrong_request_mutant(
        "an EndTxn of another producer id is accepted",
        f"{_T}.end",
        "    if event.producer_id != record.producer_id:\n"
        "        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, False\n",
        "",
    ),
    _mutant(
        "markers are written before their decision is durable",
        f"{_R}.transaction_driver",
        "while self._deferred_markers and self.is_durable(self._deferred_markers[0][0]):",
        "while self._deferred_markers:",
    ),
    _mutant(
        "an aborted transaction gets commit markers",
        f"{_T}.end",
        "is_commit=record.state is TransactionState.PREPARE_COMMIT,",
        "is_commit=True,",
    ),
    _mutant(
        "a transaction is complete after its first marker",
        f"{_T}.end",
        "    if not transaction.unmarked:\n        _complete(context, record)\n\n\ndef _complete",
        "    _complete(context, record)\n\n\ndef _complete",
    ),
    _mutant(
        "markers are not ordered again at a load",
        f"{_T}.shard",
        "                end.write_markers(context, transaction)\n",
        "                pass\n",
    ),
    _mutant(
        "only commit markers are ordered again at a load",
        f"{_T}.shard",
        "            if transaction.record.state in PREPARED:\n                end.write_markers",
        "            if transaction.record.state is TransactionState.PREPARE_COMMIT:\n"
        "                end.write_markers",
    ),
    _mutant(
        "an abort of the coordinator keeps the epoch",
        f"{_T}.end",
        "            epoch=min(record.epoch + 1, EPOCH_MAX),\n"
        "            last_epoch=record.epoch,\n"
        "            state=TransactionState.PREPARE_ABORT,",
        "            epoch=record.epoch,\n            last_epoch=record.epoch,\n"
        "            state=TransactionState.PREPARE_ABORT,",
    ),
    _mutant(
        "an epoch is returned before it is durable",
        f"{_R}.shard_driver",
        "        if self._durable == self._applied:\n            self.ready += outcome.replies\n",
        "        started_ms = [getattr(each, 'started_ms', 0) for each in outcome.records]\n"
        "        if self._durable == self._applied or started_ms == [-1]:\n"
        "            self.ready += outcome.replies\n",
    ),
    _mutant(
        "InitProducerId keeps the epoch",
        f"{_T}.init",
        "_store(context, event, record, record.producer_id, record.epoch + 1, last_epoch)",
        "_store(context, event, record, record.producer_id, record.epoch, last_epoch)",
    ),
    _mutant(
        "a new producer commits the transaction of its predecessor",
        f"{_T}.end",
        "            state=TransactionState.PREPARE_ABORT,\n            updated_ms",
        "            state=TransactionState.PREPARE_COMMIT,\n            updated_ms",
    ),
    _mutant(
        "EndTxn v5 keeps the epoch",
        f"{_T}.end",
        "    bumps = event.version >= VERSION_2\n",
        "    bumps = False\n",
    ),
    _mutant(
        "AddPartitionsToTxn forgets earlier partitions",
        f"{_T}.partitions",
        "            held = () if begins else record.partitions\n",
        "            held = ()\n",
    ),
    _mutant(
        "a verification accepts any partition",
        f"{_T}.partitions",
        "ErrorCode.NONE if each in transaction.partitions else _NOT_ADDED",
        "ErrorCode.NONE if each else _NOT_ADDED",
    ),
    _mutant(
        "partitions are added with an older epoch",
        f"{_T}.partitions",
        "    if event.epoch != transaction.record.epoch:",
        "    if event.epoch > transaction.record.epoch:",
    ),
    _mutant(
        "transactions do not time out",
        f"{_T}.shard",
        "if began_ms + record.timeout_ms < context.at_ms:",
        "if began_ms + record.timeout_ms < 0:",
    ),
    _mutant(
        "transactions time out at the first check",
        f"{_T}.shard",
        "if began_ms + record.timeout_ms < context.at_ms:",
        "if began_ms < context.at_ms:",
    ),
    _mutant(
        "a late report of markers completes the next transaction",
        f"{_T}.end",
        "    if record.state not in PREPARED or not is_current:\n",
        "    if record.state not in PREPARED or (not is_current and not event.partitions):\n",
    ),
    _mutant(
        "an exhausted producer id is used again",
        f"{_T}.end",
        "    if bumps and record.epoch >= LAST_CLIENT_EPOCH:\n",
        "    if bumps and record.epoch >= EPOCH_MAX:\n",
    ),
    _mutant(
        "transactional ids with an open transaction expire",
        f"{_T}.shard",
        "if record.state in ENDED and record.updated_ms <= expired_ms:",
        "if record.updated_ms <= expired_ms:",
    ),
    _mutant(
        "a repeated EndTxn v5 is fenced",
        f"{_T}.end",
        "if event.version >= VERSION_2 and transaction.is_repeated_end(",
        "if event.version > VERSION_2 and transaction.is_repeated_end(",
    ),
    _wrong_request_mutant(
        "a repeated commit of an aborted transaction succeeds",
        f"{_T}.response_table",
        "        _A.PREPARE,\n        _A.CONCURRENT,\n        _A.CONCURRENT,\n"
        "        _A.DONE,\n        _A.INVALID_STATE,\n    ),\n    TransactionCase.ABORT:",
        "        _A.PREPARE,\n        _A.CONCURRENT,\n        _A.CONCURRENT,\n"
        "        _A.DONE,\n        _A.DONE,\n    ),\n    TransactionCase.ABORT:",
    ),
    _mutant(
        "markers of a failed append are written",
        f"{_R}.transaction_driver",
        "        self.markers.clear()\n        self._deferred_markers.clear()\n",
        "        self.markers += [markers for _, markers in self._deferred_markers]\n"
        "        self._deferred_markers.clear()\n",
    ),
    _mutant(
        "a loaded decision awaits no markers",
        f"{_T}.shard",
        "            if transaction.record.state in PREPARED:\n                end.write_markers",
        "            if transaction.record.state in PREPARED:\n"
        "                transaction.unmarked.clear()\n                end.write_markers",
    ),
    _mutant(
        "a loaded open transaction does not time out",
        f"{_T}.shard",
        "                end.write_markers(context, transaction)\n"
        "        self._arm_timers(context)\n",
        "                end.write_markers(context, transaction)\n        self.ongoing.clear()\n",
    ),
    _mutant(
        "a new producer does not abort the open transaction",
        f"{_T}.response_table",
        "INIT_NEW: (\n        _A.CREATE,\n        _A.BUMP,\n        _A.ABORT_OPEN,\n",
        "INIT_NEW: (\n        _A.CREATE,\n        _A.BUMP,\n        _A.BUMP,\n",
    ),
    _mutant(
        "InitProducerId of a fenced producer is accepted",
        f"{_T}.init",
        "    return TransactionCase.INIT_STALE\n",
        "    return TransactionCase.INIT_CURRENT\n",
    ),
    _mutant(
        "a stored transaction loses its last partition",
        "partage.store.transaction_formats",
        "    for topic, partition in partitions:\n",
        "    for topic, partition in partitions[:-1] or partitions:\n",
    ),
    _mutant(
        "a stored transaction loses its start",
        "partage.store.transaction_formats",
        "_TIMES.pack(record.updated_ms, record.started_ms)",
        "_TIMES.pack(record.updated_ms, 1 << 60)",
    ),
    _mutant(
        "a stored transaction loses its last epoch",
        "partage.store.transaction_formats",
        "    if record.last_epoch != NO_EPOCH:\n",
        "    if record.last_epoch != record.last_epoch:\n",
    ),
)

_LOG_MUTANTS = (
    _mutant(
        "the last stable offset ignores open transactions",
        f"{_L}.partition",
        "        if unstable is None or unstable >= high_watermark:\n",
        "        if unstable is not None or unstable is None:\n",
    ),
    _mutant(
        "a transaction is stable before its marker is durable",
        f"{_L}.producer_state",
        "        self._undurable.append((first_offset, offset))\n",
        "        self._update_first_unstable()\n",
    ),
    _mutant(
        "only the newest open transaction is unstable",
        f"{_L}.producer_state",
        "first = next(iter(self._ongoing), None)",
        "first = next(reversed(self._ongoing), None)",
    ),
    _mutant(
        "aborted transactions are not in the index",
        f"{_L}.prepared_batches",
        "    if completed is not None and completed.is_aborted:",
        "    if completed is not None and completed.producer_id < 0:",
    ),
    _mutant(
        "a scan does not find aborted transactions",
        f"{_L}.recovery.segment_scan",
        "                segment.add_aborted(AbortedTransaction.from_completed(completed))\n",
        "                pass\n",
    ),
    _mutant(
        "a Fetch lists aborted transactions of one segment only",
        f"{_L}.segments.segment_list",
        "        for segment in self._segments[self._number_of(begin) :]:\n",
        "        for segment in self._segments[self._number_of(begin) :][:1]:\n",
    ),
    _mutant(
        "the list of aborted transactions ends too early",
        f"{_L}.segments.aborted_index",
        "            if transaction.last_stable_offset >= end:\n",
        "            if transaction.last_offset >= begin:\n",
    ),
    _mutant(
        "aborted transactions that began before a Fetch are not listed",
        f"{_L}.segments.aborted_index",
        "            if transaction.first_offset < end:\n",
        "            if begin <= transaction.first_offset < end:\n",
    ),
    _late_marker_mutant(
        "an old marker is accepted",
        f"{_L}.producer_state",
        "            is_old = epoch < producer.epoch\n",
        "            is_old = False\n",
    ),
    _mutant(
        "a transactional batch with an old epoch is accepted",
        f"{_L}.producer_state",
        "        if last is not None and epoch < last.epoch:\n"
        "            return _old_epoch(producer_id, epoch, last.epoch)\n"
        "        if last is not None and last.is_in",
        "        if last is not None and last.is_in",
    ),
    _late_marker_mutant(
        "a marker does not raise the producer's epoch",
        f"{_L}.producer_state",
        "        producer.use_epoch(epoch)\n        producer.coordinator_epoch",
        "        producer.coordinator_epoch",
    ),
    _mutant(
        "a verification survives a marker",
        f"{_L}.producer_state",
        "        if verification is not None and not (\n",
        "        if verification is not None and epoch < 0 and not (\n",
    ),
    _mutant(
        "a transaction opens without a verification",
        f"{_L}.producer_state",
        "if guard is None or verification is None or guard is not verification.guard:",
        "if verification is None:",
    ),
    _wrong_request_mutant(
        "the first sequence of an epoch is not checked",
        f"{_L}.producer_state",
        "expected = _sequence_after(last.sequence, 1) if batch.producer_epoch == last.epoch else 0",
        "expected = _sequence_after(last.sequence, 1)\n"
        "    if batch.producer_epoch != last.epoch:\n        expected = batch.base_sequence",
    ),
    _mutant(
        "a later batch may open the transaction",
        f"{_L}.producer_state",
        "        if first > verification.lowest_sequence:\n",
        "        if first > SEQUENCE_MAX:\n",
    ),
    _mutant(
        "a snapshot loses open transactions",
        f"{_L}.producer_state",
        "                _NO_TRANSACTION if one.transaction_start is None else "
        "one.transaction_start,\n                len(one.batches),",
        "                _NO_TRANSACTION,\n                len(one.batches),",
    ),
    _mutant(
        "sequences survive a new epoch",
        f"{_L}.producer_state",
        "            self.epoch = epoch\n            self.batches.clear()\n",
        "            self.epoch = epoch\n",
    ),
    _compaction_mutant(
        "compaction drops all markers",
        f"{_L}.compaction.cleaner",
        "            return self.transactions.rewrite_marker(batch)\n",
        '            return b""\n',
    ),
    _compaction_mutant(
        "compaction keeps records of aborted transactions",
        f"{_L}.compaction.cleaner",
        "            return self._without_records(header, [])\n        try:",
        "            return batch.content\n        try:",
    ),
    _compaction_mutant(
        "a segment with an open transaction is compacted",
        f"{_L}.partition",
        "pair for pair in self._segments.durable_closed() if pair[1] <= stable]",
        "pair for pair in self._segments.durable_closed() if stable >= 0]",
    ),
)

_ADMISSION_MUTANTS = (
    _repeated_request_mutant(
        "later batches do not wait for the admission of earlier ones",
        f"{_R}.transaction_admission",
        "        if earlier is not None:\n            earlier.append(decide)\n",
        "        if earlier is not None:\n            decide(ErrorCode.NONE)\n",
    ),
    _mutant(
        "a refused batch is appended",
        f"{_R}.transaction_admission",
        "        if error:\n            waiting.refuse(_refusal(error, request))\n",
        "        if error is ErrorCode.INVALID_REQUEST:\n"
        "            waiting.refuse(_refusal(error, request))\n",
    ),
    _slow_admission_mutant(
        "offsets are committed after the marker of their transaction",
        f"{_R}.offset_admission",
        "        return ErrorCode.NONE if now in (None, self._guard) else "
        "ErrorCode.INVALID_TXN_STATE\n",
        "        return ErrorCode.NONE\n",
    ),
    _mutant(
        "offsets are committed without admission",
        f"{_R}.offset_admission",
        "        return _shown_error(error, self._version) or self._late_error()\n",
        "        return self._late_error()\n",
    ),
    _mutant(
        "a fenced producer may commit offsets",
        f"{_R}.offset_admission",
        "        return isinstance(self._guard, Refusal)\n",
        "        return False\n",
    ),
)

_OFFSET_MUTANTS = (
    _mutant(
        "an abort commits pending offsets",
        "partage.coordinator.pending_offsets",
        "            if is_commit and not pending.is_superseded:\n",
        "            if not pending.is_superseded:\n",
    ),
    _mutant(
        "pending offsets are visible at once",
        "partage.coordinator.shard",
        "                self.pending_offsets.add(record.producer_id, record.offset)\n",
        "                self.pending_offsets.add(record.producer_id, record.offset)\n"
        "                self._store_offset(record.offset)\n",
    ),
    _mutant(
        "a later commit does not supersede a pending offset",
        "partage.coordinator.pending_offsets",
        "            if is_commit and not pending.is_superseded:\n",
        "            if is_commit:\n",
    ),
    _mutant(
        "a marker ends only the first pending offset",
        "partage.coordinator.pending_offsets",
        "in list(self._by_producer.get(producer_id, {}).items()):",
        "in list(self._by_producer.get(producer_id, {}).items())[:1]:",
    ),
    _mutant(
        "require_stable is ignored",
        "partage.coordinator.shard",
        "        if event.requires_stable:\n",
        "        if event.requires_stable and not event.group_id:\n",
    ),
    _mutant(
        "a load commits pending offsets",
        "partage.store.shard_log",
        "                if not header.is_transactional:\n",
        "                if header.producer_id >= NO_PRODUCER:\n",
    ),
    _mutant(
        "a load loses pending offsets",
        "partage.store.shard_log",
        "                elif isinstance(record, OffsetRecord):\n",
        "                elif isinstance(record, OffsetRecord) and header.producer_id < 0:\n",
    ),
    _deleted_offset_mutant(
        "a deleted offset stays pending",
        "partage.coordinator.shard",
        "                self.pending_offsets.discard(record.group_id, record.topic, "
        "record.partition)\n",
        "                pass\n",
    ),
    _mutant(
        "the first offset of a transaction counts, not the last",
        "partage.coordinator.pending_offsets",
        "        self._by_producer.setdefault(producer_id, {})[key] = "
        "_PendingOffset(record, self._position)\n",
        "        self._by_producer.setdefault(producer_id, {}).setdefault(\n"
        "            key, _PendingOffset(record, self._position)\n        )\n",
    ),
)

_GROUP_MUTANTS = (
    _group_mutant(
        "a TxnOffsetCommit of an earlier generation is accepted",
        "partage.coordinator.commit",
        "            if isinstance(found, ErrorCode):\n"
        "                _reject(context, group, event, found)\n"
        "                return\n"
        "    answer = RESPONSES[row]",
        "            if isinstance(found, ErrorCode) and found is not "
        "ErrorCode.ILLEGAL_GENERATION:\n"
        "                _reject(context, group, event, found)\n"
        "                return\n"
        "    answer = RESPONSES[row]",
    ),
    _group_mutant(
        "a TxnOffsetCommit of a former member is accepted",
        "partage.coordinator.commit",
        "            if isinstance(found, ErrorCode):\n"
        "                _reject(context, group, event, found)\n"
        "                return\n"
        "    answer = RESPONSES[row]",
        "            if isinstance(found, ErrorCode) and found is not "
        "ErrorCode.UNKNOWN_MEMBER_ID:\n"
        "                _reject(context, group, event, found)\n"
        "                return\n"
        "    answer = RESPONSES[row]",
    ),
    _group_mutant(
        "the member and its generation in a TxnOffsetCommit are ignored",
        "partage.bridge.txn_offset_commit",
        "            generation=request.generation_id,\n            member_id=request.member_id,\n",
        '            generation=-1,\n            member_id="",\n',
    ),
    _group_mutant(
        "a new member sees the offsets before those of an open transaction",
        "partage.coordinator.shard",
        "        if event.requires_stable:\n",
        '        if event.requires_stable and event.group_id != "flow":\n',
    ),
)

_CLUSTER_MUTANTS = (
    _cluster_mutant(
        "a marker of a former transaction coordinator is accepted",
        f"{_L}.producer_state",
        "        if coordinator_epoch < producer.coordinator_epoch:\n",
        "        if coordinator_epoch < 0:\n",
    ),
    _late_cluster_marker_mutant(
        "the next owner of a group shard does not know its producers",
        f"{_R}.shard_producers",
        "        self.state = ProducerStateManager()\n        self.apply(blobs)\n",
        "        self.state = ProducerStateManager()\n",
    ),
    _late_cluster_marker_mutant(
        "markers in a group shard do not fence their producers",
        f"{_R}.shard_producers",
        "                if marker is not None:\n",
        "                if marker is not None and header.producer_id < 0:\n",
    ),
    _cluster_mutant(
        "a merge of a shared log loses pending offsets",
        "partage.store.log_merge",
        "                elif isinstance(decode_record(key, value), OffsetRecord):\n",
        "                elif isinstance(decode_record(key, value), OffsetRecord) and not value:\n",
    ),
    _slow_cluster_admission_mutant(
        "offsets are committed after a marker from another broker",
        f"{_R}.offset_admission",
        "        return ErrorCode.NONE if now in (None, self._guard) else "
        "ErrorCode.INVALID_TXN_STATE\n",
        '        return ErrorCode.NONE if now != b"" else ErrorCode.INVALID_TXN_STATE\n',
    ),
    _cluster_mutant(
        "a former owner of a transaction shard writes its markers",
        f"{_R}.transaction_driver",
        "        super().fail(error)\n        self.markers.clear()\n"
        "        self._deferred_markers.clear()\n",
        "        super().fail(error)\n"
        "        self.markers += [markers for _, markers in self._deferred_markers]\n",
    ),
)

_MARKER_MUTANTS = (
    _mutant(
        "a failed marker counts as written",
        f"{_R}.transaction_markers",
        "    return error in _SETTLED\n",
        "    return error is not ErrorCode.UNKNOWN_SERVER_ERROR\n",
    ),
)

_SPREAD_MUTANTS = (
    _spread_mutant(
        "a marker for a broker that does not respond counts as written",
        f"{_R}.transaction_markers",
        "    return error in _SETTLED\n",
        "    return error in _SETTLED or error is ErrorCode.LEADER_NOT_AVAILABLE\n",
    ),
    _spread_mutant(
        "a marker that a partition or group could not take counts as written",
        f"{_R}.transaction_markers",
        "    return error in _SETTLED\n",
        "    return error in _SETTLED or error is ErrorCode.NOT_LEADER_OR_FOLLOWER\n",
    ),
    _spread_mutant(
        "a repeated marker ends the verification of the next transaction",
        f"{_L}.producer_state",
        "            verification.raises_epochs and verification.epoch >= epoch\n",
        "            verification.raises_epochs\n            and verification.epoch >= epoch\n"
        '            and epoch > getattr(self._producers.get(producer_id), "epoch", 0)\n',
    ),
    _spread_mutant(
        "markers are ordered for the partitions that were added last",
        f"{_T}.end",
        "            partitions=record.partitions,\n",
        "            partitions=record.partitions[-2:],\n",
    ),
    _spread_mutant(
        "a report of markers of one broker completes the transaction",
        f"{_T}.end",
        "    if not transaction.unmarked:\n        _complete(context, record)\n\n\n",
        "    if event.partitions:\n        _complete(context, record)\n\n\n",
    ),
)

TRANSACTION_MUTANTS = (
    *_COORDINATOR_MUTANTS,
    *_LOG_MUTANTS,
    *_ADMISSION_MUTANTS,
    *_OFFSET_MUTANTS,
    *_GROUP_MUTANTS,
    *_MARKER_MUTANTS,
    *_CLUSTER_MUTANTS,
    *_SPREAD_MUTANTS,
)
