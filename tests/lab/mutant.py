"""The definition of a mutant."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A bug: in the source of ``module``, ``original`` is replaced by ``replacement``.

    ``options`` are those of the worlds in which it is searched for; empty for all worlds.
    """

    name: str
    module: str
    original: str
    replacement: str
    options: Mapping[str, Any] = {}

    def apply(self, source: str) -> str:
        """Return the source with the bug.

        Raises:
            LookupError: The original code does not occur exactly once.
        """
        count = source.count(self.original)
        if count != 1:
            raise LookupError(f"{self.name}: {self.module} contains the code {count} times")
        return source.replace(self.original, self.replacement)

    def mutated_source(self) -> str:
        """Return the current source of the module with the bug. Raises like `apply`."""
        spec = importlib.util.find_spec(self.module)
        assert spec is not None
        assert spec.origin is not None
        return self.apply(Path(spec.origin).read_text())
