"""The claims of the documents about their designs, in the order of the report."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import as_completed
from typing import Final

from partage.lab.worker_pool import ProcessPool
from partage.proposals.comparison import (
    rebalance_claims,
    size_claims,
    speed_claims,
    synchronizer_claims,
    upgrade_claims,
)
from partage.proposals.comparison.claim import Claim

#: The measurements of all claims. Each gets the clock that measures CPU time.
CLAIMS: Final[tuple[Callable[[Callable[[], int]], Claim], ...]] = (
    size_claims.measure_consumers_per_coordinator,
    size_claims.measure_metadata_for_all,
    size_claims.measure_growth,
    rebalance_claims.measure_upgrade_with_hashes,
    rebalance_claims.measure_disagreement,
    rebalance_claims.measure_cooperative_savings,
    speed_claims.measure_rebalance_speed,
    upgrade_claims.measure_two_bounces,
    upgrade_claims.measure_resync,
    upgrade_claims.measure_largest_count,
    size_claims.measure_compression,
    rebalance_claims.measure_closing,
    synchronizer_claims.measure_synchronize_timeout,
    synchronizer_claims.measure_synchronizer_choices,
)


def measure_claims(jobs: int) -> Generator[tuple[int, Claim]]:
    """Measure all claims in worker processes; yield each with its number when it is measured.

    Raises:
        concurrent.futures.process.BrokenProcessPool: A worker process was killed.
    """
    with ProcessPool(min(jobs, len(CLAIMS)), _prepare_worker) as pool:
        numbers = {pool.submit(_measure, number): number for number in range(len(CLAIMS))}
        for future in as_completed(numbers):
            yield numbers[future], future.result()


def _prepare_worker() -> None:
    """Freeze the modules, and keep warnings off the terminal.

    On a busy machine, thousands of members warn that their connections take long. The verdict says
    whether the group became stable.
    """
    gc.freeze()
    logging.getLogger("partage.proposals.sockets").setLevel(logging.ERROR)


def _measure(number: int) -> Claim:
    return CLAIMS[number](time.process_time_ns)
