"""Parameter sweeps: the same seeds run with each combination of option values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from partage.lab.runner import draw_scenario

#: The most worlds of a sweep; they take hours.
WORLDS_MAX: Final = 1_000_000


def parse_grid(texts: Iterable[str]) -> dict[str, list[str]]:
    """Parse the options of a grid, such as ``members=2,3``.

    Raises:
        ValueError: A text is not NAME=VALUE,VALUE, or a name occurs twice.
    """
    grid: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not all(values.split(",")):
            raise ValueError(f"--grid takes OPTION=VALUE,VALUE, not {text!r}")
        if name in grid:
            raise ValueError(f"{name} is given twice: list its values once, such as {name}=2,3")
        grid[name] = list(dict.fromkeys(values.split(",")))
    return grid


def expand_combinations(
    grid: Mapping[str, Sequence[str]], seeds: Sequence[int], fixed: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return all combinations of a grid. Each value is one value of its option.

    Args:
        grid: The values of each option.
        seeds: The seeds that will run with each combination.
        fixed: Options that are the same in all combinations.

    Raises:
        ValueError: An option is unknown, or a combination is impossible for a seed.
    """
    for name in grid:
        if name in fixed:
            raise ValueError(f"{name} is in --grid and in --set: remove one of them")
    combinations = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    worlds = len(combinations) * len(seeds)
    if worlds > WORLDS_MAX:
        raise ValueError(
            f"{len(combinations):,} combinations with {len(seeds):,} seeds are {worlds:,} worlds; "
            f"the limit is {WORLDS_MAX:,}. Use fewer values or seeds"
        )
    for combination in combinations:
        for seed in seeds:
            _check(seed, {**fixed, **combination})
    return combinations


def _check(seed: int, changes: dict[str, str]) -> None:
    try:
        draw_scenario(seed, None, changes)
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    except ValueError as error:
        raise ValueError(
            f"{format_combination(changes)} is impossible with seed {seed}: {error}. Other options "
            "are drawn from the seed; set them with --set"
        ) from None


def format_combination(combination: Mapping[str, str]) -> str:
    """Return a combination as text, such as ``members=2 steps=0``."""
    return " ".join(f"{name}={value}" for name, value in combination.items())
