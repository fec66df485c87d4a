"""Groups as the tools show them: the output of ``--json`` and of the API of ``partage web``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class GroupListing(msgspec.Struct, frozen=True):
    """One group in the output of ``list``. A value that the broker does not provide is null, or
    state Unknown.
    """

    group: str
    protocol_type: str | None
    type: str | None
    state: str
    members: int | None


class Node(msgspec.Struct, frozen=True):
    """A broker."""

    id: int
    host: str
    port: int


class TopicPartitions(msgspec.Struct, frozen=True):
    """Partitions of one topic, in order."""

    topic: str
    partitions: list[int]


class MemberDescription(msgspec.Struct, frozen=True):
    """A member of a group.

    ``subscription`` is null if the metadata is not available or is no consumer's.
    ``metadata_bytes`` and ``assignment_bytes`` are the sizes of the member's metadata and
    assignment. ``rack`` is the one that the member stated to the leader (KIP-881), or null.

    These fields are null in a group with the classic protocol: ``protocol`` of the member, Classic
    or Consumer; its ``epoch``; ``target``, the partitions that it must reach, while ``partitions``
    has those that it owns now; ``subscribed_regex``, also null without a regular expression.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartitions]
    subscription: list[str] | None
    metadata_bytes: int | None
    assignment_bytes: int | None
    rack: str | None = None
    protocol: str | None = None
    epoch: int | None = None
    target: list[TopicPartitions] | None = None
    subscribed_regex: str | None = None


class OffsetDescription(msgspec.Struct, frozen=True):
    """A group's progress in one partition. Fields are null if no offset is committed or the
    partition no longer exists.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    leader_epoch: int | None
    metadata: str | None
    member_id: str | None


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its members and offsets.

    ``group_epoch`` and ``target_epoch`` are null in a group with the classic protocol. The epoch of
    the target assignment is lower than that of the group while an assignment is computed.
    """

    group: str
    protocol_type: str | None
    type: str | None
    protocol: str | None
    state: str
    coordinator: Node | None
    members: list[MemberDescription]
    offsets: list[OffsetDescription]
    total_lag: int
    group_epoch: int | None = None
    target_epoch: int | None = None


def format_partitions(topic: str, partitions: Iterable[int]) -> str:
    """Format the sorted partitions of a topic, such as ``flights(0-3,7)``."""
    spans: list[list[int]] = []
    for number in partitions:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [f"{first}-{last}" if first < last else f"{first}" for first, last in spans]
    return f"{topic}({','.join(shown)})"
