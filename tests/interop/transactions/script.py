"""Runner of scenarios with requests of transactional producers, against a broker.

Each line of a scenario is a request; the lines below it are the response. A client is named by a
letter, and remembers its producer id and epoch. Producer ids are shown as letters, in the order of
their first occurrence. A CONCURRENT_TRANSACTIONS response is repeated until the transaction is
complete, unless the request has the flag ``once``.

==================================  ===============================================================
``init NAME [v=] [timeout=]``       InitProducerId of the transactional id NAME; ``recover`` sends
                                    id and epoch, ``epoch=`` another epoch
``add NAME p ... [v=]``             AddPartitionsToTxn of these partitions; 9 does not exist;
                                    ``internal`` adds one of ``__consumer_offsets``
``verify NAME p ...``               the same as a check, v5; ``join NAME p ...`` without the check
``offsets NAME [v=]``               AddOffsetsToTxn of a group
``commit | abort NAME [v=]``        EndTxn
``raise NAME EPOCH``                InitProducerId until the client has an epoch
``describe NAME``                   DescribeTransactions
``list [v=] [states=] [pattern=]``  ListTransactions of the clients of the scenario
==================================  ===============================================================

Options of all requests: ``as=`` the name of the client whose id and epoch are used, ``stale`` an
epoch that is one too low, ``foreign`` another producer id, ``unknown`` another transactional id.
"""

from __future__ import annotations

from typing import Any

from interop.oracle.connection import Connection
from interop.repeated_request import repeat
from partage.model.errors import ErrorCode
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from partage.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest

TIMEOUT_MS = 60_000
_PIPELINED = 256
_RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS.name,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name,
    ErrorCode.NOT_COORDINATOR.name,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
    ErrorCode.NOT_ENOUGH_REPLICAS.name,
    ErrorCode.UNSTABLE_OFFSET_COMMIT.name,
)


class TransactionScript:
    """The run of one scenario.

    Args:
        connection: a connection to the coordinator.
        topic: a topic with partitions 0 to 2.
        prefix: begins the transactional ids.
    """

    def __init__(self, connection: Connection, topic: str, prefix: str) -> None:
        self._connection = connection
        self._topic = topic
        self._prefix = prefix
        self._identities: dict[str, tuple[int, int]] = {}
        self._letters: dict[int, str] = {}

    def run(self, line: str) -> list[str]:
        """Send the request of a line, and return its response."""
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]

        def ask() -> list[str]:
            response: list[str] = getattr(self, f"_{verb}")(names, options)
            return response

        return repeat(
            ask,
            lambda found: "once" in names or not any(name in found[0] for name in _RETRIED),
        )

    def _ask(self, api: Any, request: Any, options: dict[str, str], version: int) -> Any:
        return self._connection.ask(api, request, int(options.get("v", version)))

    def _identity(self, names: list[str], options: dict[str, str]) -> tuple[str, int, int]:
        name = names[0]
        producer_id, epoch = self._identities.get(options.get("as", name), (-1, -1))
        if "stale" in names:
            epoch -= 1
        if "foreign" in names:
            producer_id += 100_000
        transactional_id = self._prefix + ("unknown" if "unknown" in names else name)
        return transactional_id, producer_id, int(options.get("epoch", epoch))

    def _group_id(self, options: dict[str, str]) -> str:
        return options.get("group", f"{self._prefix}group")

    def _letter(self, producer_id: int) -> str:
        if producer_id < 0:
            return "none"
        return self._letters.setdefault(producer_id, chr(ord("A") + len(self._letters)))

    def _init(self, names: list[str], options: dict[str, str]) -> list[str]:
        transactional_id, producer_id, epoch = self._identity(names, options)
        is_recovery = "recover" in names
        request = InitProducerIdRequest(
            transactional_id="" if "empty" in names else transactional_id,
            transaction_timeout_ms=int(options.get("timeout", TIMEOUT_MS)),
            producer_id=producer_id if is_recovery else -1,
            producer_epoch=epoch if is_recovery or "epoch" in options else -1,
        )
        response = self._ask(INIT_PRODUCER_ID, request, options, 5)
        if not response.error_code:
            self._identities[names[0]] = (response.producer_id, response.producer_epoch)
        return [
            f"{ErrorCode(response.error_code).name} "
            f"id {self._letter(response.producer_id)} epoch {response.producer_epoch}"
        ]

    def _raise(self, names: list[str], options: dict[str, str]) -> list[str]:
        """Send many requests before reading their responses: each one waits for the disk."""
        last = int(names[1])
        while (begun := self._identities.get(names[0], (-1, -1))[1]) < last:
            request = InitProducerIdRequest(
                transactional_id=self._identity(names, options)[0],
                transaction_timeout_ms=TIMEOUT_MS,
            )
            sent = [
                self._connection.begin(INIT_PRODUCER_ID, request, 5)
                for _ in range(min(last - begun, _PIPELINED))
            ]
            responses = [each.result() for each in sent]
            response = responses[-1]
            assert not response.error_code, ErrorCode(response.error_code).name
            self._identities[names[0]] = (response.producer_id, response.producer_epoch)
        producer_id, epoch = self._identities[names[0]]
        return [f"id {self._letter(producer_id)} epoch {epoch}"]

    def _topics(self, names: list[str]) -> list[AddPartitionsToTxnTopic]:
        indexes = [int(word) for word in names[1:] if word.isdigit()]
        topics = [AddPartitionsToTxnTopic(name=self._topic, partitions=indexes)]
        if "internal" in names:
            topics.append(AddPartitionsToTxnTopic(name=OFFSETS_TOPIC, partitions=[0]))
        return topics

    def _add(self, names: list[str], options: dict[str, str]) -> list[str]:
        transactional_id, producer_id, epoch = self._identity(names, options)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=self._topics(names),
        )
        response = self._ask(ADD_PARTITIONS_TO_TXN, request, options, 3)
        return [_format_topics(response.results_by_topic_v3_and_below)]

    def _verify(
        self, names: list[str], options: dict[str, str], *, adds: bool = False
    ) -> list[str]:
        transactional_id, producer_id, epoch = self._identity(names, options)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not adds,
            topics=self._topics(names),
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        response = self._ask(ADD_PARTITIONS_TO_TXN, request, options, 5)
        results = [_format_topics(one.topic_results) for one in response.results_by_transaction]
        return [" ".join((ErrorCode(response.error_code).name, *results))]

    def _join(self, names: list[str], options: dict[str, str]) -> list[str]:
        return self._verify(names, options, adds=True)

    def _offsets(self, names: list[str], options: dict[str, str]) -> list[str]:
        transactional_id, producer_id, epoch = self._identity(names, options)
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=self._group_id(options),
        )
        response = self._ask(ADD_OFFSETS_TO_TXN, request, options, 4)
        return [ErrorCode(response.error_code).name]

    def _commit(
        self, names: list[str], options: dict[str, str], *, is_commit: bool = True
    ) -> list[str]:
        transactional_id, producer_id, epoch = self._identity(names, options)
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=is_commit,
        )
        response = self._ask(END_TXN, request, options, 5)
        if not response.error_code and response.producer_id >= 0 and "lost" not in names:
            self._identities[names[0]] = (response.producer_id, response.producer_epoch)
        return [
            f"{ErrorCode(response.error_code).name} "
            f"id {self._letter(response.producer_id)} epoch {response.producer_epoch}"
        ]

    def _abort(self, names: list[str], options: dict[str, str]) -> list[str]:
        return self._commit(names, options, is_commit=False)

    def _describe(self, names: list[str], options: dict[str, str]) -> list[str]:
        request = DescribeTransactionsRequest(
            transactional_ids=["" if "empty" in names else self._identity(names, options)[0]]
        )
        one = repeat(
            lambda: self._ask(DESCRIBE_TRANSACTIONS, request, options, 0).transaction_states[0],
            lambda found: not found.transaction_state.startswith("Prepare"),
        )
        indexes = [i for topic in one.topics for i in sorted(topic.partitions)]
        topics = ["offsets" if topic.topic != self._topic else "topic" for topic in one.topics]
        began = "began" if one.transaction_start_time_ms > 0 else one.transaction_start_time_ms
        if one.error_code:
            return [ErrorCode(one.error_code).name]
        return [
            f"{ErrorCode(one.error_code).name} {one.transaction_state} "
            f"id {self._letter(one.producer_id)} epoch {one.producer_epoch} "
            f"timeout {one.transaction_timeout_ms} {began} {sorted(topics)} "
            f"{indexes if topics == ['topic'] else len(indexes)}"
        ]

    def _list(self, names: list[str], options: dict[str, str]) -> list[str]:
        producers = [self._identities[name][0] for name in names if name in self._identities]
        request = ListTransactionsRequest(
            state_filters=options["states"].split(",") if "states" in options else [],
            producer_id_filters=producers,
            duration_filter=int(options.get("duration", -1)),
            transactional_id_pattern=options.get("pattern", "").replace("PREFIX", self._prefix)
            if "pattern" in options
            else None,
        )
        response = self._ask(LIST_TRANSACTIONS, request, options, 2)
        found = [
            f"{one.transactional_id.removeprefix(self._prefix)} {one.transaction_state}"
            for one in response.transaction_states
            if one.transactional_id.startswith(self._prefix)
        ]
        unknown = response.unknown_state_filters
        first = ErrorCode(response.error_code).name
        return [first + (f" unknown {unknown}" if unknown else ""), *sorted(found)]


def _format_topics(topics: Any) -> str:
    return " ".join(
        sorted(
            f"{result.partition_index}:{ErrorCode(result.partition_error_code).name}"
            for topic in topics
            for result in topic.results_by_partition
        )
    )
