"""The check of the kill tests that no partition has two readers."""

from __future__ import annotations

import pytest

from proposals.sockets.push_cluster import overlaps, tenures_of

LOG = "2026-01-02 03:04:{} INFO reading {}\n"


@pytest.mark.parametrize(
    ("taken", "is_overlap"), [("07,000", False), ("06,999", False), ("06,900", True)]
)
def test_partition_read_by_two_consumers_is_found(taken: str, is_overlap: bool) -> None:
    first = LOG.format("05,000", "t-0, t-1") + "other\n" + LOG.format("07,000", "t-1")
    second = LOG.format(taken, "t-0")
    tenures = tenures_of("a", first) + tenures_of("b", second)
    assert [(a.partition, a.consumer, b.consumer) for a, b in overlaps(tenures)] == (
        [("t-0", "a", "b")] if is_overlap else []
    )


def test_killed_consumer_reads_until_its_end() -> None:
    log = LOG.format("05,000", "t-0")
    (killed,) = tenures_of("a", log, killed_s=float("inf"))
    (later,) = tenures_of("b", LOG.format("06,000", "t-0"))
    assert overlaps([killed, later]) == [(killed, later)]
    assert not overlaps([killed._replace(until_s=later.since_s), later])
