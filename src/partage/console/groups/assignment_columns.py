"""The last columns of tables of members: what a member owns, and what it must reach."""

from __future__ import annotations

from collections.abc import Iterable

from partage.console.common.output import format_partitions
from partage.model.groups import MemberDescription, TopicPartitions


def assignment_columns(*, has_epochs: bool) -> list[str]:
    """Return the headers. Only groups with the consumer protocol have epochs and targets."""
    if not has_epochs:
        return ["ASSIGNMENT"]
    return ["CURRENT-EPOCH", "ASSIGNMENT", "TARGET-ASSIGNMENT"]


def assignment_cells(member: MemberDescription, *, has_epochs: bool) -> list[object]:
    """Return the cells of a member."""
    current = format_assignment(member.partitions)
    if not has_epochs:
        return [current]
    return [member.epoch, current, format_assignment(member.target or ())]


def format_assignment(assignment: Iterable[TopicPartitions]) -> str | None:
    """Format partitions of several topics; None if there are none."""
    return " ".join(format_partitions(each.topic, each.partitions) for each in assignment) or None
