"""The requests of the transactional sink to brokers that the test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from client.scripted_broker import Answer, Script, ScriptedBroker, ScriptedRequest
from partage.client.cluster import Cluster
from partage.client.options import ClientOptions
from partage.client.retries import RetryPolicy
from partage.spark.sink.batch_decision import SinkName
from partage.spark.sink.transaction_client import TransactionClient
from partage.spark.sink.transaction_flow import AbortOpen
from partage.wire.apis.find_coordinator import FindCoordinatorResponse, FindCoordinatorResult
from partage.wire.apis.init_producer_id import InitProducerIdResponse
from partage.wire.apis.list_transactions import ListedTransaction, ListTransactionsResponse

SINK = SinkName("partage-sink", "query")
OPEN = SINK.task_id("run", 0, 0)
LISTED = ListTransactionsResponse(
    error_code=0,
    unknown_state_filters=[],
    transaction_states=[
        ListedTransaction(transactional_id=OPEN, producer_id=1, transaction_state="Ongoing")
    ],
)


def empty(error: int = 0) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=error, unknown_state_filters=[], transaction_states=[]
    )


def aborted(list_on: Callable[[int], Answer]) -> Sequence[str]:
    """Return the ids that the sink aborts at two brokers, which list by a function of the test."""

    async def main() -> Sequence[str]:
        ids: list[str] = []

        def script_of(broker_id: int) -> Script:
            def script(asked: ScriptedRequest) -> Answer:
                match asked.api.name:
                    case "ListTransactions":
                        return list_on(broker_id)
                    case "FindCoordinator":
                        address = first.address
                        found = FindCoordinatorResult(
                            key=OPEN,
                            node_id=1,
                            host=address.host,
                            port=address.port,
                            error_code=0,
                        )
                        return FindCoordinatorResponse(coordinators=[found])
                    case "InitProducerId":
                        ids.append(asked.message.transactional_id)
                        return InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=1)
                return None

            return script

        async with ScriptedBroker(script_of(1)) as first, ScriptedBroker(script_of(2)) as second:
            second.node_id = 2
            first.peers, second.peers = [second], [first]
            options = ClientOptions(retries=RetryPolicy(backoff_ms=1, backoff_max_ms=1))
            async with Cluster(str(first.address), options) as cluster:
                client = TransactionClient(cluster, SINK, "t", 60_000)
                await client.perform(AbortOpen((SINK.run_prefix("run"),)))
        return ids

    return asyncio.run(main())


@pytest.mark.parametrize("error", [14, 15])
def test_abort_waits_for_coordinator_that_loads(error: int) -> None:
    answers = iter([empty(), empty(error)])
    assert aborted(lambda broker_id: next(answers, LISTED)) == [OPEN]


def test_abort_finds_transaction_whose_coordinator_moves() -> None:
    """The shard moves to the first broker after that one was asked."""
    asked: list[int] = []

    def list_on(broker_id: int) -> Answer:
        asked.append(broker_id)
        return LISTED if len(asked) > 1 and broker_id == asked[0] else empty()

    assert aborted(list_on) == [OPEN]
