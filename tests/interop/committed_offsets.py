"""Committed offsets of a group, read by a client outside the group."""

from __future__ import annotations

from collections.abc import Iterable

from group_descriptions import describe_group, fetch_committed
from interop.checker import Partition


def committed_offsets(
    bootstrap: str, group: str, partitions: Iterable[Partition]
) -> dict[Partition, int]:
    """Return the committed offset of each partition that has one."""
    wanted = set(partitions)
    found = fetch_committed(bootstrap, group)
    return {tuple(partition): each for partition, each in found.items() if partition in wanted}


def protocol_of(bootstrap: str, group: str) -> str:
    """Return the assignor that the group has selected."""
    return describe_group(bootstrap, group).protocol or ""
