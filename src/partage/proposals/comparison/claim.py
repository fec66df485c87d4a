"""A claim of a document, with our figures and the verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

#: A figure within this share of the stated one reproduces a claim.
TOLERANCE: Final = 0.1


class ClaimVerdict(StrEnum):
    """The result for a claim."""

    REPRODUCED = "reproduced"
    REFUTED = "refuted"
    DEPENDS = "depends"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with our figures.

    Attributes:
        title: The claim in a few words.
        statement: The claim of the document.
        figures: Our figures: a description and a value each.
        verdict: The result.
        explanation: The reason of the verdict.
    """

    title: str
    statement: str
    figures: list[tuple[str, str]]
    verdict: ClaimVerdict
    explanation: str
