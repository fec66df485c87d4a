"""Cells that differ only in their seed, and their medians.

The waits for heartbeats depend on when a phase starts. Each seed starts the phases at another part
of the heartbeat interval, so a median depends less on one start than a single cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from statistics import median_low
from typing import Any

import msgspec

from partage.proposals.comparison.cell import CellResult, PhaseResult, Workload


class SeededResults(msgspec.Struct, frozen=True):
    """The results of one cell with several seeds, in the order of the seeds."""

    results: list[CellResult]

    @property
    def workload(self) -> Workload:
        """The cell with its first seed."""
        return self.results[0].workload

    @property
    def seeds(self) -> list[int]:
        """The seeds."""
        return [each.workload.seed for each in self.results]

    @property
    def broken_rules(self) -> list[str]:
        """The guarantees that did not hold with any of the seeds, each once."""
        rules = (rule for each in self.results for rule in each.broken_rules)
        return list(dict.fromkeys(rules))

    def phases(self) -> list[list[PhaseResult]]:
        """Return the results of each phase, one for each seed."""
        return [
            list(phases) for phases in zip(*(each.phases for each in self.results), strict=True)
        ]

    def median(self) -> CellResult:
        """Return the cell with the first seed and the median of each figure."""
        return CellResult(
            workload=self.workload,
            phases=[median_phase(phases) for phases in self.phases()],
            broken_rules=self.broken_rules,
            double_read_s=median_low(each.double_read_s for each in self.results),
        )


def group_by_seed(results: Iterable[CellResult]) -> list[SeededResults]:
    """Return the cells with all their seeds, in the order in which each cell comes first."""
    groups: dict[Workload, list[CellResult]] = {}
    for each in results:
        groups.setdefault(msgspec.structs.replace(each.workload, seed=0), []).append(each)
    return [
        SeededResults(sorted(group, key=lambda each: each.workload.seed))
        for group in groups.values()
    ]


def median_phase(phases: Sequence[PhaseResult]) -> PhaseResult:
    """Return the median of each figure of a phase; of an even number, the lower middle one.

    The phase is stable if its median time is. The bytes by message are those of the phase with the
    median of all bytes.

    Args:
        phases: The results of one phase, one for each seed.
    """

    def middle(value: Callable[[PhaseResult], Any]) -> Any:
        return median_low(map(value, phases))

    stable_s = middle(stable_seconds)
    by_bytes = sorted(phases, key=lambda each: each.bytes)[(len(phases) - 1) // 2]
    return PhaseResult(
        phase=phases[0].phase,
        is_stable=stable_s < inf,
        stable_after_s=stable_s if stable_s < inf else None,
        counted_s=middle(lambda each: each.counted_s),
        messages=middle(lambda each: each.messages),
        bytes=by_bytes.bytes,
        bytes_by_message=by_bytes.bytes_by_message,
        coordinator_cpu_ms=middle(lambda each: each.coordinator_cpu_ms),
        unread_partition_s=middle(lambda each: each.unread_partition_s),
        moved_partitions=middle(lambda each: each.moved_partitions),
        duplicate_records=middle(lambda each: each.duplicate_records),
        round_trips=middle(lambda each: each.round_trips),
    )


def stable_seconds(phase: PhaseResult) -> float:
    """Return the seconds until a phase was stable; infinite if it never was."""
    return inf if phase.stable_after_s is None else phase.stable_after_s
