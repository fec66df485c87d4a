"""The definition of a mutant."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A bug: in ``module``, ``words`` are replaced by ``by``."""

    name: str
    module: str
    words: str
    by: str
