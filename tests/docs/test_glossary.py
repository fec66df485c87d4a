"""Check docs/glossary.md: its modules exist, and it explains each concept once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "glossary.md"
HEADER = ("concept", "meaning", "term of", "module")
MODULE = re.compile(r"\[`([^`]+)`\]\(([^)]+)\)")


class Concept(NamedTuple):
    """A row of the table."""

    name: str
    meaning: str
    origin: str
    module: str


def table_rows() -> list[Concept]:
    """Return the rows of the table, without header and delimiter."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert tuple(cells[0]) == HEADER
    return [Concept(*row) for row in cells[2:]]


CONCEPTS = table_rows()


def test_module_of_each_concept_exists() -> None:
    for concept in CONCEPTS:
        found = MODULE.fullmatch(concept.module)
        assert found, concept
        name, link = found.groups()
        assert link == f"../src/partage/{name}", concept
        assert (PAGE.parent / link).resolve().is_file(), concept


def test_each_concept_occurs_once() -> None:
    names = [concept.name.lower() for concept in CONCEPTS]
    assert len(names) > 80
    assert sorted(names) == sorted(set(names))


def test_concepts_are_in_alphabetical_order() -> None:
    names = [concept.name.lower() for concept in CONCEPTS]
    assert names == sorted(names)


def test_each_meaning_is_one_sentence() -> None:
    for concept in CONCEPTS:
        assert concept.origin, concept
        assert concept.meaning.endswith("."), concept
        assert ". " not in concept.meaning, concept
