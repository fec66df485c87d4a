"""Who of a group's members is to be active: a pure function of what they say of themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from partage.client.membership import GenerationMembers


class Candidate(msgspec.Struct, frozen=True):
    """A member's metadata: whether it stands, the token of the term that it has, and who it is.

    A term that is being ended is still had: nobody else may begin one before that is done.
    """

    stands: bool
    priority: int = 0
    token: int | None = None
    identity: Any = None


class ElectionResult(msgspec.Struct, frozen=True):
    """What everybody is told; ``member_id`` None if nobody stands."""

    member_id: str | None
    token: int | None
    identity: Any = None


def elect(meeting: GenerationMembers) -> dict[str, Any]:
    """The result, for each member the same.

    Who is active stays so, whoever comes or goes. Otherwise the highest priority wins, and of equal
    ones the first member id. The token of a new term is the number of the generation, which is
    higher than that of every term before.
    """
    candidates = [(_candidate(peer.metadata), peer.member_id) for peer in meeting.members]
    active = [each for each in candidates if each[0].token is not None]
    standing = [each for each in candidates if each[0].stands]
    result = ElectionResult(None, None)
    if active:
        chosen, member_id = max(active, key=lambda each: each[0].token or 0)
        result = ElectionResult(member_id, chosen.token, chosen.identity)
    elif standing:
        chosen, member_id = min(standing, key=lambda each: (-each[0].priority, each[1]))
        result = ElectionResult(member_id, meeting.generation, chosen.identity)
    told = msgspec.to_builtins(result)
    return {peer.member_id: told for peer in meeting.members}


def _candidate(metadata: Any) -> Candidate:
    """What a member says of itself; one that cannot be read does not stand."""
    try:
        return msgspec.convert(metadata, Candidate)
    except msgspec.ValidationError:
        return Candidate(stands=False)
