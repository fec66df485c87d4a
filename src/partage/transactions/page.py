"""Generator of the page ``docs/transactions.md`` from the coordinator's tables.

``python -m partage.transactions.page`` prints the page.
"""

from __future__ import annotations

from partage.model.settings import KAFKA_NAMES, TransactionSettings
from partage.statemachine.pages import (
    differences_section,
    join_blocks,
    section,
    state_diagram,
    state_table,
    table,
    timer_table,
)
from partage.transactions.response_table import (
    RESPONSES,
    STATE_COLUMNS,
    VALIDATIONS,
)
from partage.transactions.states import (
    PREDECESSORS,
    STATE_DESCRIPTIONS,
    TRANSITION_CAUSES,
    TransactionState,
)
from partage.transactions.timers import TIMERS, TransactionTimerKey

_HEAD = """\
# Transactions

This page shows the response of the transaction coordinator to each request in each state, and its
timers. It is generated from the tables that the coordinator uses
(`python -m partage.transactions.page`). The scenarios in `tests/transactions/scenarios` show the
same step by step.

The behaviour is that of Apache Kafka 4.4 with `transaction.version` 2 (KIP-890), except for the
differences in [the last section](#where-we-differ-from-apache-kafka). Clients from before KIP-890
use the older versions of each API.
"""

_STORED = """\
A transactional id is stored in the topic `__transaction_state`, in Kafka's format, with each change
of its state. Its partition follows from Java's hash of the id. The broker creates the topic when
the first client looks for its transaction coordinator. [A cluster](cluster.md#transactions) stores
the same records in ZooKeeper.

Every response waits until all records written before it are durable. The markers wait, too: a
transaction is decided by its record in state PrepareCommit or PrepareAbort. EndTxn is answered
then. A client may begin its next transaction before the last marker. Its first request then waits
for the marker, for at most 500 ms; after that it gets CONCURRENT_TRANSACTIONS.

A coordinator that loads a decided transaction writes all its markers again. An open transaction
continues. The marker for a partition that was deleted is not needed. The marker for a partition
whose log has failed, or whose broker is down, is tried again until it is durable.
"""

#: The deliberate differences from Apache Kafka 4, each with the reason.
DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "No request gets CONCURRENT_TRANSACTIONS only because an earlier record of its "
        "transactional id is on its way to the log.",
        "The state changes at once, and the responses wait for the log. Kafka changes the state "
        "when the record is durable, and rejects other requests until then.",
    ),
    (
        "AddPartitionsToTxn, AddOffsetsToTxn and the first write of a transaction wait for the "
        "markers of the last transaction, for at most 500 ms.",
        "Kafka waits in the first write with `transaction.version` 2 only, for at most 100 ms "
        "(`add.partitions.to.txn.retry.backoff.max.ms`). Older clients get "
        "CONCURRENT_TRANSACTIONS.",
    ),
    (
        "The last epoch of a producer is stored, in a tagged field of its record (10002).",
        "A producer that repeats InitProducerId after a failover gets its epoch. Kafka forgets the "
        "last epoch and fences the producer.",
    ),
    (
        "The states Dead and PrepareEpochFence do not exist. ListTransactions accepts their names.",
        "In Kafka they exist in memory only, while a record is on its way to the log.",
    ),
    (
        "A marker that the leader rejects because of its epoch counts as written.",
        "The coordinator wrote it before it failed. Kafka drops the transaction from its queue of "
        "markers, and completes it only after the next start.",
    ),
    (
        "A marker from before transaction version 2 refuses the first batch of a transaction with "
        "the same epoch that still waits for the coordinator.",
        "A client that mixes the versions has sent EndTxn before the batch was written. Kafka "
        "writes the batch after the marker, and the transaction hangs.",
    ),
    (
        "No client gets epoch 32767. After a timeout at epoch 32766, EndTxn v5 gets "
        "PRODUCER_FENCED, and InitProducerId returns another producer id.",
        "Only the coordinator uses epoch 32767, to fence. Kafka returns it to a repeated EndTxn, "
        "and fails to handle the InitProducerId.",
    ),
    (
        "After InitProducerId has fenced a transaction at epoch 32766, the next one returns epoch "
        "0 of another producer id.",
        "Kafka stores that producer id with epoch 0 when it aborts the transaction, and then "
        "returns epoch 1.",
    ),
    (
        "A change of the system time and a suspended machine abort no open transaction, unless its "
        "coordinator loads it afterwards. The time of a transaction's begin, and the age of unused "
        "ids, follow the system time.",
        "The timeout counts with the monotonic clock. In Kafka, timeouts follow the system time.",
    ),
)


def page() -> str:
    """Return the page."""
    return join_blocks(
        _HEAD,
        section(
            "States",
            state_table(STATE_DESCRIPTIONS, PREDECESSORS),
            state_diagram({TransactionState.EMPTY: "InitProducerId"}, TRANSITION_CAUSES),
        ),
        section("Responses", "Before the table, in this order:", _validations(), _responses()),
        section("Timers", timer_table(TIMERS, _timer_name, TransactionSettings())),
        section("Settings", _settings()),
        section("Storage", _STORED),
        differences_section(DIFFERENCES),
    )


def _validations() -> str:
    return "\n".join(
        f"- {request}: {'; then '.join(checks)}" for request, checks in VALIDATIONS.items()
    )


def _responses() -> str:
    head = ("request", *("unknown id" if state is None else state for state in STATE_COLUMNS))
    rows = (
        (case, *(responses[state].value for state in STATE_COLUMNS))
        for case, responses in RESPONSES.items()
    )
    return table(head, rows)


def _timer_name(key: type[TransactionTimerKey]) -> str:
    return key.__name__.removesuffix("Timer")


def _settings() -> str:
    defaults = TransactionSettings()
    return table(
        ("setting", "default"),
        (
            (f"`{name}`", f"{getattr(defaults, field):,}")
            for name, (part, field) in KAFKA_NAMES.items()
            if part == "transactions"
        ),
        numbers={"default"},
    )


if __name__ == "__main__":
    print(page(), end="")
