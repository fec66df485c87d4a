"""Makes a failure small: fewer steps of the plan, a plainer world, the same rule broken.

First steps are left out, halves before quarters before single ones (delta debugging); then options
are set to what is plainest, each if the failure survives it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from partage.lab.options import Scenario
from partage.lab.running import draw, live

#: What is plainest, the largest simplification first.
_PLAIN: Final[tuple[tuple[str, Any], ...]] = (
    ("members", 1),
    ("members", 2),
    ("has_second_group", False),
    ("static_share", 0.0),
    ("splits", 0.0),
    ("delay_max_ms", 0),
    ("disk_delay_ms", 0),
    ("version_cap", 0),
    ("partitions_t", 1),
    ("partitions_u", 1),
    ("initial_rebalance_delay_ms", 0),
    ("members_max", 1_000),
    ("offsets_retention_ms", 604_800_000),
    ("segment_bytes", 1 << 20),
    ("produce_every_ms", 1_500),
    ("assignors", "cooperative-sticky"),
)


class NothingToShrink(ValueError):  # noqa: N818 - it says what is so
    """The scenario breaks no rule."""


def shrink(seed: int, tell: Callable[[str], None] = lambda line: None) -> Scenario:
    """The smallest scenario of a seed that breaks the rule that the whole one breaks.

    Raises:
        NothingToShrink: it breaks none.
    """
    scenario = draw(seed)
    rule = _rule(scenario)
    if rule is None:
        raise NothingToShrink(f"seed {seed} breaks no rule")
    kept = _fewest(seed, rule, tuple(range(len(scenario.plan))), tell)
    changes: dict[str, Any] = {}
    for name, value in _PLAIN:
        if getattr(scenario.options, name) == value or name in changes:
            continue
        tried = {**changes, name: value}
        if _rule(draw(seed, kept, tried)) == rule:
            changes = tried
            tell(f"{name} = {value}")
    kept = _fewest(seed, rule, kept, tell, changes)
    return draw(seed, kept, changes)


def _rule(scenario: Scenario) -> str | None:
    return live(scenario)[1].rule


def _fewest(
    seed: int,
    rule: str,
    kept: tuple[int, ...],
    tell: Callable[[str], None],
    changes: dict[str, Any] | None = None,
) -> tuple[int, ...]:
    size = len(kept)
    while size:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if _rule(draw(seed, fewer, changes)) == rule:
                kept = fewer
                tell(f"{len(kept)} steps are left")
            else:
                at += size
        size //= 2
    return kept
