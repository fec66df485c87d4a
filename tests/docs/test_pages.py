"""Pages that are made from the code say what it says now."""

from __future__ import annotations

import re
from pathlib import Path

from tools import build_site

from interop.oracle import differences
from partage.assignors.page import page as assignors_page
from partage.proposals.page import fill_designs

DOCS = Path(__file__).parents[2] / "docs"


def test_differences_page_matches_interop_table():
    assert differences.as_markdown() in (DOCS / "differences.md").read_text()


def test_assignor_pictures_match_assignors():
    """To update: ``python tools/generate_pages.py``."""
    assert (DOCS / "assignors.md").read_text() == assignors_page()


def test_diagrams_and_state_tables_of_designs_are_up_to_date():
    """To update: ``python tools/generate_pages.py``."""
    text = (DOCS / "designs.md").read_text()
    assert fill_designs(text) == text


def test_site_has_the_target_of_each_link():
    root = DOCS.parent
    missing = [
        (page.name, target)
        for page in [*root.glob("*.md"), *DOCS.rglob("*.md")]
        for target in re.findall(
            r"\]\((?![a-z]+:|#)([^)#\s]+)", build_site.SOURCE_LINK.sub(r"\1", page.read_text())
        )
        if (file := (page.parent / target).resolve()).parent != root and DOCS not in file.parents
    ]
    assert missing == []
