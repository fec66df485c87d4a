"""Requests of transactional producers, and markers, that arrive a second time, much later."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from partage.lab.clients.client_connection import ClientConnection
from partage.lab.context import WorldContext
from partage.lab.history import RequestReceived, SimMarker
from partage.model.topic_partition import TopicPartition
from partage.transactions.events import VERSION_2
from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.apis.end_txn import END_TXN
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from partage.wire.frames import encode_request_frame
from partage.wire.records.batch import parse_header
from partage.wire.types import Message

_MARKERS_VERSION: Final = 2
#: The first versions of KIP-890: each transaction has its own epoch.
_NEW_VERSIONS: Final = {
    PRODUCE.key: 12,
    TXN_OFFSET_COMMIT.key: 5,
    END_TXN.key: 5,
}
_REMEMBERED: Final = 30
_CLIENT_ID: Final = "late"


def send_late_request(world: WorldContext, rng: Random) -> bool:
    """Send a recent request of a transactional producer again, over another connection.

    Before KIP-890, all transactions between two InitProducerId requests have one epoch. There a
    late request can change the next transaction, so only those with an old epoch are sent, and
    Produce requests, which have sequences.
    """
    recent = world.transactional_requests[-_REMEMBERED:]
    requests = [each for each in recent if _is_harmless(world, each)]
    if not requests:
        return False
    late = rng.choice(requests)
    _send(world, late.broker, APIS[late.api_key], late.version, late.message)
    return True


def send_late_marker(
    world: WorldContext, rng: Random, leader_of: Callable[[TopicPartition], int | None]
) -> bool:
    """Send a recent marker again, as a coordinator does that missed the response.

    Before KIP-890, a marker with the current epoch may end the next transaction. There only those
    with an older epoch are sent, and only if all clients are old: the marker of an old client may
    also refuse a batch of its successor that waits for admission.

    Args:
        world: The world.
        rng: Chooses the marker.
        leader_of: Returns the broker of a partition; None if no broker has it.

    Returns:
        False if there is no such marker, or no broker for it.
    """
    recent = world.written_markers[-_REMEMBERED:]
    markers = [
        (place, marker)
        for place, marker in recent
        if marker.version >= VERSION_2
        or (
            world.options.transaction_protocol == "old"
            and marker.producer_epoch < world.newest_epochs.get(marker.producer_id, -1)
        )
    ]
    if not markers:
        return False
    place, marker = rng.choice(markers)
    broker_id = leader_of(place)
    if broker_id is None:
        return False
    _send(world, broker_id, WRITE_TXN_MARKERS, _MARKERS_VERSION, _marker_request(marker, place))
    return True


def _marker_request(marker: SimMarker, where: TopicPartition) -> WriteTxnMarkersRequest:
    """Return the request of one broker to another to write a marker."""
    topic = WritableTxnMarkerTopic(name=where.topic, partition_indexes=[where.partition])
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[topic],
                coordinator_epoch=marker.coordinator_epoch or 0,
                transaction_version=marker.version,
            )
        ]
    )


def _send(world: WorldContext, broker_id: int, api: AnyApi, version: int, message: Message) -> None:
    connection = ClientConnection(world.network, _CLIENT_ID, broker_id, 0, lambda: None)

    def opened(is_open: bool) -> None:
        if is_open:
            body = api.encode_request(version, message)
            frame = encode_request_frame(api, version, 1, _CLIENT_ID, body)
            connection.send_bytes(b"".join(frame))

    connection.open(opened)


def _is_harmless(world: WorldContext, request: RequestReceived) -> bool:
    if request.api_key == PRODUCE.key:
        return True
    if request.version >= _NEW_VERSIONS.get(request.api_key, 99):
        return True
    producer_id, epoch = producer_of(request.message)
    return epoch < world.newest_epochs.get(producer_id, -1)


def producer_of(message: Any) -> tuple[int, int]:
    """Return the producer id and epoch of a transactional request."""
    if hasattr(message, "v3_and_below_producer_id"):
        return message.v3_and_below_producer_id, message.v3_and_below_producer_epoch
    if hasattr(message, "topic_data"):
        header = parse_header(message.topic_data[0].partition_data[0].records[0])
        return header.producer_id, header.producer_epoch
    return message.producer_id, message.producer_epoch
