"""Safety of leases: worlds of several brokers find each way in which a lease could be wrong.

Brokers pause, are cut off from ZooKeeper, die, and restart, so that two brokers may believe that
they own a shard. A read must never go back, and only the owner may answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partage.broker.cluster.owned_shards import OwnedShards
from partage.broker.cluster.shared_store import SharedStore
from partage.broker.coordination.base_shard_host import BaseShardHost
from partage.lab.runner import draw_scenario, run_scenario

SEEDS = 40
#: The faults after which a broker may believe that it still owns its shards.
CHANGES: dict[str, Any] = {
    "brokers": 3,
    "transactional_producers": 0,
    "consumer_members": 0,
    "cluster_steps": 12,
    "cluster_kinds": (
        "coordinator_is_cut_off_from_zookeeper",
        "coordinator_is_cut_off_with_its_server",
        "coordinator_pauses",
    ),
}


def broken_rule() -> str | None:
    """Return the first rule that a world breaks."""
    for seed in range(SEEDS):
        _, verdict = run_scenario(draw_scenario(seed, changes=CHANGES))
        if verdict.rule is not None:
            return verdict.rule
    return None


def test_correct_leases_break_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.test_lease_safety.SEEDS", 10)
    assert broken_rule() is None


def answer_without_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseShardHost, "_may_send", lambda self: True)


def believe_in_every_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnedShards, "may_answer", lambda self: True)
    monkeypatch.setattr(SharedStore, "may_answer", lambda self: True)


@pytest.mark.parametrize("plant", [answer_without_lease, believe_in_every_lease])
def test_wrong_lease_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert broken_rule() is not None
