"""The drawn faults of a world."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

_KINDS: Final = ("kill", "pause", "cut", "slow")
_KINDS_IN_CLUSTER: Final = (*_KINDS, "expire")


@dataclass(frozen=True)
class Fault:
    """A drawn fault: ``kind`` strikes ``target`` at a time, for a duration in virtual seconds."""

    at_s: float
    kind: str
    target: str
    other: str
    for_s: float

    def __str__(self) -> str:
        match self.kind:
            case "cut":
                return (
                    f"at {self.at_s:.1f} s: cut {self.target} from {self.other}, {self.for_s:.1f} s"
                )
            case "slow":
                return f"at {self.at_s:.1f} s: slow network, {self.for_s:.1f} s"
            case "expire":
                return f"at {self.at_s:.1f} s: expire the ZooKeeper session of {self.target}"
        return f"at {self.at_s:.1f} s: {self.kind} {self.target}, {self.for_s:.1f} s"


def draw_fault(
    rng: Random,
    now_s: float,
    within_s: float,
    target: str,
    other: str,
    *,
    has_session: bool = False,
) -> Fault:
    """Draw a fault of a process.

    Args:
        rng: the generator.
        now_s: the current virtual time in seconds.
        within_s: the time in which the fault begins, in virtual seconds.
        target: the process.
        other: the process from which a cut separates it.
        has_session: True for a broker with a ZooKeeper session, which may expire.
    """
    return Fault(
        at_s=now_s + rng.uniform(0, within_s),
        kind=rng.choice(_KINDS_IN_CLUSTER if has_session else _KINDS),
        target=target,
        other=other,
        for_s=rng.choice((0.1, 1, 5, 20, 60)) * rng.uniform(0.5, 1.5),
    )
