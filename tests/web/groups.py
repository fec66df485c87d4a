"""Builders of groups: ``group("g", a="0-1", b="2")`` has members with partitions of topic t."""

from __future__ import annotations

from typing import Any

from partage.model.groups import (
    GroupDescription,
    MemberDescription,
    Node,
    OffsetDescription,
    TopicPartitions,
)


def numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def member(name: str, owned: str = "", **fields: object) -> MemberDescription:
    """Return a member; a name that begins with ``static`` is also its instance id."""
    given: dict[str, Any] = {
        "member_id": f"{name}-id",
        "group_instance_id": name if name.startswith("static") else None,
        "client_id": name,
        "host": "/10.0.0.1",
        "partitions": [TopicPartitions("t", numbers(owned))] if owned else [],
        "subscription": ["t"],
        "metadata_bytes": 20,
        "assignment_bytes": 20,
        **fields,
    }
    return MemberDescription(**given)


def group(name: str = "g", state: str = "", lag: int = 0, **owned: str) -> GroupDescription:
    """Return a group, Stable with members and Empty without; its lag is in t-0."""
    return with_members(name, [member(each, of) for each, of in owned.items()], state, lag)


def with_members(
    name: str, members: list[MemberDescription], state: str = "", lag: int = 0
) -> GroupDescription:
    return GroupDescription(
        group=name,
        protocol_type="consumer",
        type="Classic",
        protocol="range" if members else None,
        state=state or ("Stable" if members else "Empty"),
        coordinator=Node(1, "kafka-1", 9092),
        members=members,
        offsets=[
            OffsetDescription(
                topic="t",
                partition=partition,
                current_offset=10,
                log_end_offset=10 + (lag if partition == 0 else 0),
                lag=lag if partition == 0 else 0,
                leader_epoch=None,
                metadata=None,
                member_id=next(
                    (
                        each.member_id
                        for each in members
                        if any(partition in of.partitions for of in each.partitions)
                    ),
                    None,
                ),
            )
            for partition in range(4)
        ],
        total_lag=lag,
    )
