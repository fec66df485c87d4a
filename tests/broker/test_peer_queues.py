"""Markers for partitions of other brokers, and questions to other transaction coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from partage.broker.clock import Clock
from partage.broker.cluster import peer_connection
from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import SingleBrokerView
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.transactions import admission_client, cluster_markers, waiting_requests
from partage.broker.transactions.admission_client import AdmissionClient, AdmissionRequest
from partage.broker.transactions.cluster_markers import ClusterMarkers
from partage.broker.transactions.cluster_transaction_coordinator import (
    ClusterTransactionCoordinator,
)
from partage.broker.transactions.local_markers import LocalMarkers, PartitionMarker
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.log.catalogue.topic_catalogue import TopicDefinition
from partage.model.errors import ErrorCode
from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.api import AnyApi
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from partage.wire.frames import FRAME_LENGTH, parse_request_header, parse_request_prefix
from polled_conditions import eventually_async

from .transactional_world import NONE, World, run

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
MARKER = PartitionMarker(7, 1, 3, True, 2)
APIS: Mapping[int, AnyApi] = {api.key: api for api in (WRITE_TXN_MARKERS, ADD_PARTITIONS_TO_TXN)}


class TwoBrokers(SingleBrokerView):
    """This broker, and broker 2 with partition 1 of each topic and all shards."""

    def __init__(self, port: int) -> None:
        super().__init__(BrokerNode(node_id=1, host="h", port=1, cluster_id="c"))
        self.port = port
        self.is_peer_up = True
        self.has_owners = True

    def brokers(self) -> Sequence[BrokerNode]:
        peer = BrokerNode(node_id=2, host="127.0.0.1", port=self.port, cluster_id="c")
        return [self.node, peer] if self.is_peer_up else [self.node]

    def broker_of(self, topic: TopicDefinition, index: int) -> int:
        return 1 + index

    def is_up(self, node_id: int) -> bool:
        return node_id == 1 or self.is_peer_up

    def group_shard_owner(self, shard: int) -> int | None:
        return 2 if self.has_owners else None

    def has_all_transaction_coordinators(self) -> bool:
        return self.has_owners

    def transaction_coordinator(self, transactional_id: str) -> BrokerNode | None:
        return self.brokers()[-1] if self.has_owners else None


class Closing:
    """A response of `Peer`: close the connection, after a response if there is one."""

    def __init__(self, response: Any = None) -> None:
        self.response = response


class Peer:
    """Broker 2, whose responses the test gives; without one it stays silent."""

    def __init__(self, respond: Callable[[Any], Any]) -> None:
        self.requests: list[Any] = []
        self._respond = respond

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = FRAME_LENGTH.unpack(await reader.readexactly(FRAME_LENGTH.size))
                frame = await reader.readexactly(size)
                prefix = parse_request_prefix(frame)
                api = APIS[prefix.api_key]
                _, pos = parse_request_header(api, prefix.api_version, frame)
                request = api.decode_request(prefix.api_version, frame, pos)
                self.requests.append(request)
                response = self._respond(request)
                closes = isinstance(response, Closing)
                if closes:
                    response = response.response
                if response is None:
                    if closes:
                        break
                    continue
                body = b"".join(api.encode_response(prefix.api_version, response))
                head = prefix.correlation_id.to_bytes(4, "big") + b"\0"  # no tags
                writer.write(FRAME_LENGTH.pack(len(head) + len(body)) + head + body)
                if closes:
                    break
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()


def markers_response(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Return UNKNOWN_TOPIC_OR_PARTITION for topics other than ``t``."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=0 if topic.name == "t" else 3
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def admissions_response(
    request: AddPartitionsToTxnRequest, error: ErrorCode = ErrorCode.TRANSACTION_ABORTABLE
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=error
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


class Fixture:
    """Broker 1 with topic ``t``, and its peer."""

    def __init__(self, log_manager: LogManager, view: TwoBrokers, peer: Peer) -> None:
        self.log_manager = log_manager
        self.view = view
        self.peer = peer
        self.existing_topics: set[str] = set()
        local = LocalMarkers(log_manager, Clock(), [])
        self.markers = ClusterMarkers(local, log_manager, view, self._topic_exists)
        self.admissions = AdmissionClient(view)

    async def _topic_exists(self, name: str) -> bool:
        return name in self.existing_topics

    def append(
        self, where: TopicPartition, marker: PartitionMarker = MARKER
    ) -> asyncio.Future[ErrorCode]:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.markers.append(marker, where, done.set_result)
        return done

    def admit(
        self, transactional_id: str = "x", *, adds: bool = True
    ) -> asyncio.Future[Mapping[TopicPartition, ErrorCode]]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = loop.create_future()
        request = AdmissionRequest(transactional_id, 7, 1, (HERE, THERE), adds, done.set_result)
        self.admissions.submit(request)
        return done


def run_with_peer(
    scenario: Callable[[Fixture], Coroutine[Any, Any, None]],
    respond: Callable[[Any], Any] = markers_response,
) -> None:
    async def story(world: World) -> None:
        peer = Peer(respond)
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
        async with server:
            view = TwoBrokers(server.sockets[0].getsockname()[1])
            fixture = Fixture(world.log_manager, view, peer)
            await scenario(fixture)
            fixture.markers.close()
            fixture.admissions.close()

    run(story)


def test_markers_of_one_turn_share_a_request() -> None:
    async def scenario(its: Fixture) -> None:
        other = MARKER._replace(producer_id=8)
        sent = [
            its.append(HERE),
            its.append(THERE),
            its.append(THERE, other),
            its.append(TopicPartition(OFFSETS_TOPIC, 0)),
        ]
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER  # that broker may be behind
        assert await asyncio.gather(*sent) == [NONE, NONE, NONE, not_leader]
        (request,) = its.peer.requests
        assert [
            (marker.producer_id, marker.coordinator_epoch, marker.transaction_version)
            for marker in request.markers
        ] == [(7, 3, 2), (8, 3, 2)]

    run_with_peer(scenario)


def test_markers_of_one_producer_and_partition_are_sent_one_after_the_other() -> None:
    async def scenario(its: Fixture) -> None:
        later = MARKER._replace(producer_epoch=2)
        assert await asyncio.gather(its.append(THERE), its.append(THERE, later)) == [NONE, NONE]
        epochs = [[each.producer_epoch for each in one.markers] for one in its.peer.requests]
        assert epochs == [[1], [2]]

    run_with_peer(scenario)


def test_many_markers_are_split_into_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_markers, "_MARKERS_PER_REQUEST", 2)

    async def scenario(its: Fixture) -> None:
        sent = [its.append(THERE, MARKER._replace(producer_id=each)) for each in range(5)]
        assert await asyncio.gather(*sent) == [NONE] * 5
        assert [len(each.markers) for each in its.peer.requests] == [2, 2, 1]

    run_with_peer(scenario)


def test_marker_of_unknown_topic_needs_the_answer_of_zookeeper() -> None:
    """This broker may not have applied the creation of the topic yet."""

    async def scenario(its: Fixture) -> None:
        its.existing_topics.add("new")
        found = await its.append(TopicPartition("new", 0))
        assert found is ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = await its.append(TopicPartition("deleted", 0))
        assert found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await its.append(TopicPartition("t", 9)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_with_peer(scenario)


def test_marker_without_reachable_broker_is_not_written() -> None:
    async def scenario(its: Fixture) -> None:
        its.view.is_peer_up = False
        assert await its.append(THERE) is ErrorCode.LEADER_NOT_AVAILABLE
        its.view.is_peer_up, its.view.port = True, 1
        assert await its.append(THERE) is ErrorCode.LEADER_NOT_AVAILABLE
        its.view.has_owners = False
        offsets = TopicPartition(OFFSETS_TOPIC, 0)
        assert await its.append(offsets) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_with_peer(scenario)


def test_marker_for_stopped_broker_fails_when_the_broker_is_no_longer_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_connection, "_LIVENESS_INTERVAL_S", 0.001)

    async def scenario(its: Fixture) -> None:
        sent = its.append(THERE)
        await eventually_async(lambda: its.peer.requests)
        assert not sent.done()
        its.view.is_peer_up = False
        assert await sent is ErrorCode.LEADER_NOT_AVAILABLE

    run_with_peer(scenario, lambda request: None)


def test_marker_after_close_of_idle_connection_is_sent_on_new_one() -> None:
    """The other broker closes a connection after ``connections.max.idle.ms``."""

    async def scenario(its: Fixture) -> None:
        for producer_id in range(3):
            assert await its.append(THERE, MARKER._replace(producer_id=producer_id)) is NONE
        assert [one.markers[0].producer_id for one in its.peer.requests] == [0, 1, 2]

    run_with_peer(scenario, lambda request: Closing(markers_response(request)))


def test_request_that_meets_the_close_of_its_connection_is_repeated_once() -> None:
    """The request and the close of an idle connection cross each other."""
    closes = iter([False, True, False, True, True])

    def respond(request: WriteTxnMarkersRequest) -> Any:
        return Closing() if next(closes) else markers_response(request)

    async def scenario(its: Fixture) -> None:
        assert await its.append(THERE) is NONE
        assert await its.append(THERE) is NONE
        assert len(its.peer.requests) == 3
        # A new connection that is closed, too, is a failure.
        assert await its.append(THERE) is ErrorCode.LEADER_NOT_AVAILABLE
        assert len(its.peer.requests) == 5

    run_with_peer(scenario, respond)


def test_listing_fails_while_a_shard_has_no_owner() -> None:
    """A partial list would look as if the transactions of the shard had ended."""

    async def scenario(its: Fixture) -> None:
        with ThreadPoolExecutor(1) as loaders:
            coordinator = ClusterTransactionCoordinator(
                [],
                TransactionSettings(),
                Clock(),
                ProducerIdManager.without_block(),
                MarkerWriter(its.markers),
                its.admissions,
                loaders,
            )
            every = frozenset[str](), frozenset[int](), -1, None
            its.view.has_owners = False
            reply = await coordinator.list_transactions(*every)
            assert reply.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            its.view.has_owners = True
            reply = await coordinator.list_transactions(*every)
            assert reply.error is NONE

    run_with_peer(scenario)


@pytest.mark.parametrize("adds", [True, False])
def test_coordinator_on_other_broker_is_asked(adds: bool) -> None:
    async def scenario(its: Fixture) -> None:
        one, two = await asyncio.gather(its.admit(adds=adds), its.admit("y", adds=adds))
        assert one == two == dict.fromkeys((HERE, THERE), ErrorCode.TRANSACTION_ABORTABLE)
        (request,) = its.peer.requests
        assert [each.transactional_id for each in request.transactions] == ["x", "y"]
        assert {each.verify_only for each in request.transactions} == {not adds}
        assert not its.admissions.is_local("x")

    run_with_peer(scenario, admissions_response)


@pytest.mark.parametrize(("adds", "wait_s"), [(True, 60), (True, 0), (False, 60)])
def test_first_write_waits_for_markers_of_last_transaction(
    adds: bool, wait_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator refuses at once, so that other producers need not wait."""
    monkeypatch.setattr(waiting_requests, "WAIT_MAX_S", wait_s)
    monkeypatch.setattr(admission_client, "_RETRY_AFTER_S", 0.001)
    errors = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, NONE]
    waits = adds and wait_s > 0

    async def scenario(its: Fixture) -> None:
        found = await its.admit(adds=adds)
        expected = NONE if waits else ErrorCode.CONCURRENT_TRANSACTIONS
        assert found == dict.fromkeys((HERE, THERE), expected)
        assert len(its.peer.requests) == (3 if waits else 1)

    run_with_peer(scenario, lambda request: admissions_response(request, errors.pop(0)))


def test_questions_about_many_partitions_are_split_into_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission_client, "_PARTITIONS_PER_REQUEST", 3)

    async def scenario(its: Fixture) -> None:
        await asyncio.gather(*(its.admit(f"x{number}") for number in range(5)))
        assert [len(each.transactions) for each in its.peer.requests] == [2, 2, 1]

    run_with_peer(scenario, admissions_response)


@pytest.mark.parametrize(
    "respond",
    [
        lambda request: AddPartitionsToTxnResponse(error_code=31),
        lambda request: AddPartitionsToTxnResponse(),
        lambda request: AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=request.transactions[0].transactional_id, topic_results=[]
                )
            ]
        ),
    ],
    ids=["refused", "no transaction", "no partition"],
)
def test_unusable_answer_means_no_coordinator(respond: Callable[[Any], Any]) -> None:
    async def scenario(its: Fixture) -> None:
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert set((await its.admit()).values()) == {unavailable}
        its.view.has_owners = False
        assert set((await its.admit()).values()) == {unavailable}

    run_with_peer(scenario, respond)
