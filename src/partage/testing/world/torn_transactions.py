"""Finds transactions of a program that took effect in part, from the requests to the brokers.

A program that reads records and writes its results in transactions must commit the offsets of
these records in the same transaction. With a separate commit, an abort withdraws the results and
keeps the offsets, or a crash keeps the results and not the offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from partage.broker.net.inbound_request import InboundRequest
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from partage.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from partage.wire.apis.end_txn import END_TXN
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT

#: A group and a record that one of its members has processed.
_Mark = tuple[str, TopicPartition, int]
_Observe = Callable[[InboundRequest, Callable[[Any], None]], None]
_NO_ERROR: Final = 0


class _Transaction(msgspec.Struct):
    """An open transaction.

    Attributes:
        process: The process of its producer.
        has_offsets: It has offsets of a group.
        separate_commits: What the process committed meanwhile outside the transaction, as text.
    """

    process: str
    has_offsets: bool = False
    separate_commits: dict[str, None] = {}


class TornTransactions:
    """Follows the transactions of all processes of a world.

    Args:
        report: called with a description of each torn transaction.
        committed_offset: returns the committed offset of a group and a partition.
        observe: calls a function with the response of a request.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        committed_offset: Callable[[str, TopicPartition], int],
        observe: _Observe,
    ) -> None:
        self._report, self._committed_offset, self._observe = report, committed_offset, observe
        self._open: dict[str, _Transaction] = {}  # by transactional id
        self._ids: dict[str, dict[str, None]] = defaultdict(dict)  # by process
        #: The records that a process has processed since it last ended a transaction.
        self._processed: dict[str, dict[_Mark, None]] = defaultdict(dict)
        #: Records whose results were committed without their offset, and by which transactional id.
        self._without_offset: dict[_Mark, str] = {}

    def on_processed(
        self, process: str, group: str, partition: TopicPartition, offset: int
    ) -> None:
        """Note that a process has processed a record for a group."""
        mark = group, partition, offset
        transactional_id = self._without_offset.pop(mark, None)
        if transactional_id is not None and self._committed_offset(group, partition) <= offset:
            self._report(
                f"{process} processed offset {offset} of {partition.topic}-{partition.partition} "
                f"again: a transaction of {transactional_id} committed its results without its "
                "offset"
            )
        self._processed[process][mark] = None

    def on_offset_committed(
        self, process: str, group: str, partition: TopicPartition, offset: int
    ) -> None:
        """Note that a process has committed an offset outside a transaction."""
        text = f"{offset} of {partition.topic}-{partition.partition} for group {group}"
        for transaction in self._open.values():
            if transaction.process == process:
                transaction.separate_commits[text] = None

    def on_process_end(self, process: str) -> None:
        """Forget the unfinished work of a process that was killed, failed or ended.

        Its open transaction remains, until its successor or the coordinator aborts it.
        """
        self._processed.pop(process, None)
        self._ids.pop(process, None)

    def on_request(self, process: str, inbound: InboundRequest) -> None:
        """Follow a request that may begin or end a transaction."""
        key, message = inbound.api.key, inbound.message
        if key == PRODUCE.key:
            if message.transactional_id and message.acks:  # without acks, it has no response
                self._begin_if(process, message.transactional_id, inbound, _has_produced)
        elif key == ADD_PARTITIONS_TO_TXN.key:
            if message.v3_and_below_transactional_id:
                self._begin_if(
                    process, message.v3_and_below_transactional_id, inbound, _has_added_partitions
                )
        elif key == ADD_OFFSETS_TO_TXN.key:
            self._begin_if(process, message.transactional_id, inbound, _has_added_offsets)
        elif key == TXN_OFFSET_COMMIT.key:
            self._begin_if(
                process, message.transactional_id, inbound, _has_committed, has_offsets=True
            )
        elif key == END_TXN.key:
            self._on_end(process, inbound)
        elif key == INIT_PRODUCER_ID.key and message.transactional_id:
            self._on_producer_starts(message.transactional_id, inbound)

    def _begin_if(
        self,
        process: str,
        transactional_id: str,
        inbound: InboundRequest,
        has_succeeded: Callable[[Any], bool],
        *,
        has_offsets: bool = False,
    ) -> None:
        def answered(response: Any) -> None:
            if has_succeeded(response):
                self._ids[process][transactional_id] = None
                transaction = self._open.setdefault(transactional_id, _Transaction(process))
                transaction.has_offsets |= has_offsets

        self._observe(inbound, answered)

    def _on_end(self, process: str, inbound: InboundRequest) -> None:
        message = inbound.message
        name = message.transactional_id
        # If the response to a commit is lost, the result is unknown. So it is not open then.
        transaction = self._open.pop(name, None) if message.committed else self._open.get(name)
        processed = list(self._processed.get(process, ()))

        def answered(response: Any) -> None:
            if transaction is None:
                return
            if response.error_code != _NO_ERROR:
                self._open.setdefault(name, transaction)
                return
            self._open.pop(name, None)
            for mark in processed:
                self._processed[process].pop(mark, None)
            if not message.committed:
                self._on_aborted(name, transaction)
            elif not transaction.has_offsets and len(self._ids[process]) == 1:
                self._without_offset.update(dict.fromkeys(processed, name))

        self._observe(inbound, answered)

    def _on_producer_starts(self, name: str, inbound: InboundRequest) -> None:
        transaction = self._open.get(name)

        def answered(response: Any) -> None:
            if response.error_code == _NO_ERROR and transaction is not None:
                if self._open.get(name) is transaction:
                    del self._open[name]
                self._on_aborted(name, transaction)

        self._observe(inbound, answered)

    def _on_aborted(self, name: str, transaction: _Transaction) -> None:
        if transaction.separate_commits:
            commits = ", ".join(transaction.separate_commits)
            self._report(
                f"{transaction.process} committed {commits} outside a transaction of {name} that "
                "was aborted: the offsets stay, the results do not"
            )
            transaction.separate_commits.clear()


def _has_produced(response: Any) -> bool:
    return any(
        each.error_code == _NO_ERROR
        for topic in response.responses
        for each in topic.partition_responses
    )


def _has_added_partitions(response: Any) -> bool:
    return any(
        each.partition_error_code == _NO_ERROR
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    )


def _has_added_offsets(response: Any) -> bool:
    return bool(response.error_code == _NO_ERROR)


def _has_committed(response: Any) -> bool:
    return any(
        each.error_code == _NO_ERROR for topic in response.topics for each in topic.partitions
    )
