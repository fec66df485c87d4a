"""Runs the assignor that a consumer group asks for, and validates its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from partage.assignors.server_side import ServerSideAssignor, check_target
from partage.coordinator.consumer_group.actions import ComputeTarget
from partage.coordinator.consumer_group.partitions import PartitionSet


class ComputedTarget(NamedTuple):
    """The target assignment, by member id, or the reason why there is none."""

    target: Mapping[str, PartitionSet] | None
    error: str = ""


def compute_target(action: ComputeTarget, assignor: ServerSideAssignor) -> ComputedTarget:
    """Compute and validate the target assignment of a group.

    It uses no shared state, so a shell can call it in any thread.

    Args:
        action: The request of the state machine.
        assignor: The assignor that it names.

    Returns:
        The target of each member. If the assignor raises or its result is invalid, the reason.
    """
    try:
        target = assignor.assign(
            action.members, action.topics, is_homogeneous=action.is_homogeneous
        )
        check_target(action.members, action.topics, target)
        return ComputedTarget(
            {
                member_id: _normalized(share, action.members[member_id].target)
                for member_id, share in target.items()
            }
        )
    except Exception as error:  # an assignor of the operator may raise anything
        return ComputedTarget(None, f"{type(error).__name__}: {error}")


def _normalized(share: PartitionSet, before: PartitionSet) -> PartitionSet:
    """Return a share with sorted partitions; the previous one itself if it is unchanged."""
    if share is before:
        return share
    normalized = {
        topic_id: tuple(sorted(partitions)) for topic_id, partitions in share.items() if partitions
    }
    return before if normalized == before else normalized
