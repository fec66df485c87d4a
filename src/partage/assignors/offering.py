"""Several assignors of one consumer: what it offers the group, and how it rebalances."""

from __future__ import annotations

from collections.abc import Sequence

from partage.assignors.base import Assignor, RebalanceProtocol


class AssignorsDisagree(ValueError):
    """These assignors cannot be offered by one consumer."""


def offered(assignors: Sequence[Assignor]) -> dict[str, Assignor]:
    """By protocol name, in order of preference: of each assignor the newest version first.

    Raises:
        AssignorsDisagree: there is none, or two have the same name.
    """
    by_name: dict[str, Assignor] = {}
    for assignor in assignors:
        for version in assignor.versions[:1] if assignor.probing else assignor.versions:
            speaking = assignor.at(version)
            if speaking.protocol_name in by_name:
                raise AssignorsDisagree(f"two assignors are named {speaking.protocol_name!r}")
            by_name[speaking.protocol_name] = speaking
    if not by_name:
        raise AssignorsDisagree("a consumer that subscribes needs an assignor")
    return by_name


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest that all support (KIP-429): one eager assignor makes the consumer eager.

    Raises:
        AssignorsDisagree: they have none in common.
    """
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common.intersection_update(assignor.rebalance_protocols)
    if not common:
        names = ", ".join(
            f"{assignor.name} ({'/'.join(p.name.lower() for p in assignor.rebalance_protocols)})"
            for assignor in assignors
        )
        raise AssignorsDisagree(f"no rebalance protocol that all of these support: {names}")
    return max(common)
