"""Groups as tools tell of them; ``--json`` prints these, and ``partage web`` serves them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class GroupLine(msgspec.Struct, frozen=True):
    """One group as ``list`` gives it; what librdkafka cannot tell is null, a state Unknown."""

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


class MemberState(msgspec.Struct, frozen=True):
    """A member. ``subscription`` is null where its metadata is no consumer's or is not to be had.

    The bytes are the sizes of what the member brought when it joined and of what it was given. The
    rack is the one it told the leader (KIP-881), null where it told none.
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


class OffsetState(msgspec.Struct, frozen=True):
    """How far a group is in a partition; null for what is not committed, or not there any more."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    leader_epoch: int | None
    metadata: str | None
    member_id: str | None


class GroupState(msgspec.Struct, frozen=True):
    """A group, its members, and its offsets."""

    group: str
    protocol_type: str | None
    type: str | None
    protocol: str | None
    state: str
    coordinator: Node | None
    members: list[MemberState]
    offsets: list[OffsetState]
    total_lag: int


def ranges(topic: str, partitions: Iterable[int]) -> str:
    """Partitions of a topic, in order: ``flights(0-3,7)``."""
    spans: list[list[int]] = []
    for number in partitions:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [f"{first}-{last}" if first < last else f"{first}" for first, last in spans]
    return f"{topic}({','.join(shown)})"
