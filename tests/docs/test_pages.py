"""Pages that are made from the code say what it says now."""

from __future__ import annotations

from pathlib import Path

from interop.oracle import differences

DOCS = Path(__file__).parents[2] / "docs"


def test_the_differences_are_those_that_interop_checks():
    assert differences.as_markdown() in (DOCS / "differences.md").read_text()
