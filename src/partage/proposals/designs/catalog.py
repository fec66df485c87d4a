"""All designs and variants by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final

from partage.proposals.designs.broker_side import BrokerSide, BrokerSideClosing
from partage.proposals.designs.consumer_protocol import ConsumerProtocol848
from partage.proposals.designs.multi_assignor import (
    CompressedGroup,
    CompressedMembers,
    CoordinatorMetadata,
    HashedSubscriptions,
    MultiAssignor,
    UncheckedConsistentHashing,
)
from partage.proposals.designs.single_assignor import (
    HighestVersionAssigns,
    LastToJoinAssigns,
    NewestAssigns,
    NextSynchronizer,
    SingleAssignor,
)
from partage.proposals.designs.two_phase import (
    TwoPhaseCooperative,
    TwoPhaseEager,
    TwoPhaseLargestCount,
    TwoPhaseResync,
)
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.design import Design

#: Creates a design with settings.
DesignFactory = Callable[[CoordinatorSettings, DesignMemberSettings], Design]

#: One entry for each design, in the order in which they were proposed.
DESIGNS: Final[Mapping[str, DesignFactory]] = {
    each.name: each
    for each in (
        BrokerSide,
        MultiAssignor,
        SingleAssignor,
        TwoPhaseEager,
        TwoPhaseCooperative,
        ConsumerProtocol848,
    )
}

#: Variants of the designs.
VARIANTS: Final[Mapping[str, DesignFactory]] = {
    each.name: each
    for each in (
        BrokerSideClosing,
        HashedSubscriptions,
        CompressedMembers,
        CompressedGroup,
        CoordinatorMetadata,
        UncheckedConsistentHashing,
        LastToJoinAssigns,
        NewestAssigns,
        HighestVersionAssigns,
        NextSynchronizer,
        TwoPhaseResync,
        TwoPhaseLargestCount,
    )
}


def find_design(name: str) -> DesignFactory:
    """Return a design or variant.

    Raises:
        ValueError: There is no design of this name.
    """
    known = {**DESIGNS, **VARIANTS}
    factory = known.get(name)
    if factory is None:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"no design {name!r}{hint} The designs are: {', '.join(known)}")
    return factory
