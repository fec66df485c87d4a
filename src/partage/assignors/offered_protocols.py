"""The protocols that one consumer offers for its assignors, and its rebalance protocol."""

from __future__ import annotations

from collections.abc import Sequence

from partage.assignors.base import Assignor
from partage.model.arguments import check_list
from partage.model.rebalance_protocol import RebalanceProtocol


class IncompatibleAssignorsError(ValueError):
    """Raised if one consumer cannot offer these assignors together."""


def protocols_by_name(assignors: Sequence[Assignor]) -> dict[str, Assignor]:
    """Return the assignors by protocol name, in order of preference, newest versions first.

    Raises:
        IncompatibleAssignorsError: There is no assignor, one has no name, or two have the same
            protocol name.
    """
    check_list("assignors", assignors, Assignor, "assignors")
    by_name: dict[str, Assignor] = {}
    for assignor in assignors:
        name: object = getattr(assignor, "name", None)
        if not isinstance(name, str) or not name:
            raise IncompatibleAssignorsError(
                f"{type(assignor).__name__}.name is {name!r}; set it to a name for the protocol"
            )
        for version in assignor.versions[:1] if assignor.has_version_probing else assignor.versions:
            speaking = assignor.at_version(version)
            if speaking.protocol_name in by_name:
                raise IncompatibleAssignorsError(
                    f"two assignors are named {speaking.protocol_name!r}"
                )
            by_name[speaking.protocol_name] = speaking
    if not by_name:
        raise IncompatibleAssignorsError("a consumer that subscribes needs an assignor")
    return by_name


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the highest rebalance protocol that all assignors support (KIP-429).

    One eager assignor makes the consumer eager.

    Raises:
        IncompatibleAssignorsError: They have no protocol in common.
    """
    check_list("assignors", assignors, Assignor, "assignors")
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common.intersection_update(assignor.rebalance_protocols)
    if not common:
        names = ", ".join(
            f"{assignor.name} ({'/'.join(p.name.lower() for p in assignor.rebalance_protocols)})"
            for assignor in assignors
        )
        raise IncompatibleAssignorsError(
            f"no rebalance protocol that all of these support: {names}"
        )
    return max(common)
