"""Planted bugs in a user's workers: a simulated world finds each one within 100 seeds."""

from __future__ import annotations

import pytest

from testing import user_workers
from testing.user_workers import Worker, find_lost_orders

BUGS = [
    user_workers.saves_in_the_background,
    user_workers.commits_before_it_saves,
    user_workers.commits_before_it_saves_with_aiokafka,
    user_workers.commits_on_a_timer,
    user_workers.commits_the_whole_batch,
    user_workers.drops_its_queue_on_a_rebalance,
    user_workers.ignores_errors,
    user_workers.keeps_baskets_of_lost_partitions,
    user_workers.saves_baskets_late,
    user_workers.starts_at_the_end,
]
CORRECT = [
    user_workers.saves_before_the_next_poll,
    user_workers.saves_unchanged_baskets,
    user_workers.saves_with_aiokafka,
]


def name_of(worker: Worker) -> str:
    return worker.__name__


@pytest.mark.slow
@pytest.mark.parametrize("worker", BUGS, ids=name_of)
def test_bug_of_a_worker_is_found_within_100_seeds(worker: Worker, tmp_path) -> None:
    assert any(find_lost_orders(worker, seed, tmp_path / str(seed)) for seed in range(1, 101))


@pytest.mark.slow
@pytest.mark.parametrize("worker", CORRECT, ids=name_of)
def test_correct_worker_loses_no_order(worker: Worker, tmp_path) -> None:
    for seed in range(1, 31):
        assert not find_lost_orders(worker, seed, tmp_path / str(seed)), f"seed {seed}"
