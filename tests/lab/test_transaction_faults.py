"""The faults of transactional producers take effect, and concern both of their groups."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from partage.lab import history
from partage.lab.brokers.shell import MARKER_PAUSE
from partage.lab.faults.transactions import (
    CRASH_POINTS,
    offset_is_committed_beside_transactions,
    offset_is_deleted_beside_transactions,
    offsets_of_transactions_are_read,
)
from partage.lab.names import LOOP_GROUP, TRANSACTIONAL_GROUP
from partage.lab.runner import draw_scenario, run_scenario
from partage.lab.world import World
from partage.model.errors import ErrorCode
from partage.wire.apis.init_producer_id import InitProducerIdRequest
from partage.wire.apis.offset_commit import OffsetCommitRequest
from partage.wire.apis.offset_delete import OffsetDeleteRequest
from partage.wire.apis.write_txn_markers import WriteTxnMarkersResponse


def requests(world: World, kind: type[Any]) -> list[Any]:
    return [
        each.message
        for each in world.history.entries
        if isinstance(each, history.RequestReceived) and isinstance(each.message, kind)
    ]


def test_rogue_requests_concern_both_groups_of_producers() -> None:
    changes = {"brokers": 1, "transactional_producers": 1, "transactional_members": 1}
    world = World(draw_scenario(1, changes=changes))
    world.start()
    world.clock.run(5_000)
    for draw in range(10):
        assert offset_is_committed_beside_transactions(world, Random(draw))
        assert offset_is_deleted_beside_transactions(world, Random(draw))
        assert offsets_of_transactions_are_read(world, Random(draw))
    world.clock.run(5_000)
    groups = {TRANSACTIONAL_GROUP, LOOP_GROUP}
    assert groups <= {each.group_id for each in requests(world, OffsetCommitRequest)}
    assert groups == {each.group_id for each in requests(world, OffsetDeleteRequest)}


def test_markers_of_deposed_coordinators_are_refused() -> None:
    """A coordinator pauses before it sends a marker, and sends it when another one has taken over.

    Before KIP-890 only the epoch of the coordinator protects the next transaction.
    """
    changes = {
        "brokers": 2,
        "members": 1,
        "transactional_producers": 2,
        "transactional_members": 0,
        "transaction_protocol": "old",
        "transaction_every_ms": 1,
        "transaction_kinds": MARKER_PAUSE,
    }
    for seed in range(2_000, 2_020):
        world, verdict = run_scenario(draw_scenario(seed, changes=changes))
        assert verdict.rule is None, verdict.description
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in marker_results(world):
            assert verdict.faults[MARKER_PAUSE] > 0
            return
    raise AssertionError("no world refused a marker")


@pytest.mark.parametrize(
    "kind", [each.kind for each in CRASH_POINTS if "epoch" in each.kind or "awaited" in each.kind]
)
def test_broker_dies_at_step_of_init_producer_id(kind: str) -> None:
    """The producer got no epoch, and repeats its request."""
    changes = {
        "brokers": 1,
        "members": 1,
        "transactional_producers": 2,
        "transactional_members": 0,
        "transaction_every_ms": 1,
        "transaction_kinds": f"transactional_producer_is_replaced,{kind}",
    }
    for seed in range(30, 40):
        world, verdict = run_scenario(draw_scenario(seed, changes=changes))
        assert verdict.rule is None, verdict.description
        if verdict.faults.get(kind):
            cause = kind.replace("_", " ")
            assert initializations_before_death(world, cause)
            return
    raise AssertionError("no world reached the crash point")


def initializations_before_death(world: World, cause: str) -> int:
    """Return the number of InitProducerId requests without an epoch when a broker died."""
    without_epoch = set[int]()
    for each in world.history.entries:
        match each:
            case history.RequestReceived(message=InitProducerIdRequest()):
                without_epoch.add(each.serial)
            case history.ResponseSent(message=message) if not getattr(message, "error_code", 0):
                without_epoch.discard(each.request.serial)
            case history.BrokerDied() if each.cause == cause:
                return len(without_epoch)
    raise AssertionError("no broker died")


def marker_results(world: World) -> set[int]:
    """Return the error codes in the responses to WriteTxnMarkers."""
    return {
        partition.error_code
        for each in world.history.entries
        if isinstance(each, history.ResponseSent)
        and isinstance(each.message, WriteTxnMarkersResponse)
        for marker in each.message.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
