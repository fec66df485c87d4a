"""A connection to another broker that does not answer."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.peer_connection import PeerConnection
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


def large_request() -> WriteTxnMarkersRequest:
    """Return a request that is larger than the buffers of the connection."""
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(range(4_000_000)))
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=True,
        topics=[topic],
        coordinator_epoch=0,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def receive_all(accepted: socket.socket) -> None:
    """Receive until the sender closes the connection."""
    while accepted.recv(1 << 20):
        pass


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_request_without_response_does_not_arrive_later(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The sender has given it up, and may have sent it again on another connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        node = BrokerNode(node_id=2, host="127.0.0.1", port=port, cluster_id="c")
        connection = PeerConnection("partage-broker-1", lambda node_id: False)
        request = connection.request(node, WRITE_TXN_MARKERS, 1, large_request())
        not_live = pytest.raises(ConnectionError, match="no longer live")
        with asyncio.Runner(loop_factory=new_loop) as runner, not_live:
            runner.run(request)
        accepted, _ = server.accept()
        accepted.settimeout(10)
        with accepted, pytest.raises(ConnectionResetError):
            receive_all(accepted)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_request_on_reset_connection_raises_reset(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    def reset() -> None:
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        port = server.getsockname()[1]
        node = BrokerNode(node_id=2, host="127.0.0.1", port=port, cluster_id="c")
        connection = PeerConnection("partage-broker-1", lambda node_id: True)
        is_reset = threads.submit(reset)
        with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(ConnectionResetError):
            runner.run(connection.request(node, WRITE_TXN_MARKERS, 1, large_request()))
        is_reset.result()
