"""The election rule: a pure function of the metadata of a group's members."""

from __future__ import annotations

from typing import Any

import msgspec

from partage.client.group.membership_protocol import GenerationMembers


class Candidate(msgspec.Struct, frozen=True):
    """A member's metadata in an election.

    Attributes:
        stands: True if the member is a candidate.
        token: The token of the member's current term, None if it has none. A term that is ending is
            still set: no other member may begin a term before it has ended.
        identity: The data that other members learn about the leader.
        ended_token: The token of the member's last term, None before the end of its first term. The
            coordinator answers a member that joins with unchanged metadata with the same
            generation. A new term needs a new generation, so the end of a term must change the
            metadata.
    """

    stands: bool
    priority: int = 0
    token: int | None = None
    identity: Any = None
    ended_token: int | None = None


class ElectionResult(msgspec.Struct, frozen=True):
    """The result of an election, for all members; ``member_id`` is None without a candidate."""

    member_id: str | None
    token: int | None
    identity: Any = None


def elect(generation_members: GenerationMembers) -> dict[str, Any]:
    """Return the result of the election for each member.

    The active member stays active when members join or leave. Otherwise the highest priority wins,
    and among equal priorities the lowest member id. The token of a new term is the generation,
    which is higher than the token of every earlier term.
    """
    candidates = [
        (_candidate(peer.metadata), peer.member_id) for peer in generation_members.members
    ]
    active = [each for each in candidates if each[0].token is not None]
    eligible = [each for each in candidates if each[0].stands]
    result = ElectionResult(None, None)
    if active:
        chosen, member_id = max(active, key=lambda each: each[0].token or 0)
        result = ElectionResult(member_id, chosen.token, chosen.identity)
    elif eligible:
        chosen, member_id = min(eligible, key=lambda each: (-each[0].priority, each[1]))
        result = ElectionResult(member_id, generation_members.generation, chosen.identity)
    state = msgspec.to_builtins(result)
    return {peer.member_id: state for peer in generation_members.members}


def _candidate(metadata: Any) -> Candidate:
    """Return a member's metadata; a member with invalid metadata is not a candidate."""
    try:
        return msgspec.convert(metadata, Candidate)
    except msgspec.ValidationError:
        return Candidate(stands=False)
