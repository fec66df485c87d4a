"""The durable state of a coordinator: generations and committed offsets, without members."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import msgspec


class GenerationRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag="generation"):
    """A generation started. The next coordinator continues to count from here."""

    group_id: str
    generation: int


class CommittedOffsetRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag="offset"):
    """A committed offset."""

    group_id: str
    topic: str
    partition: int
    offset: int


class GroupRemovedRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag="removed"):
    """A group without members was removed with its offsets."""

    group_id: str


Record: TypeAlias = GenerationRecord | CommittedOffsetRecord | GroupRemovedRecord


def record_key(record: Record) -> Hashable | None:
    """Return the key of a record that a later one replaces; None for a removed group."""
    match record:
        case GenerationRecord():
            return record.group_id
        case CommittedOffsetRecord():
            return record.group_id, record.topic, record.partition
    return None
