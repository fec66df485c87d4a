"""A claim of a document, with our figures and the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class ClaimVerdict(StrEnum):
    """The result for a claim."""

    REPRODUCED = "reproduced"
    REFUTED = "refuted"
    DEPENDS = "depends"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, and its reason in words and figures."""

    verdict: ClaimVerdict
    reason: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with our figures.

    Attributes:
        title: The claim in a few words.
        statement: The claim of the document.
        setup: What was measured, and under which parameters.
        rule: When the claim is reproduced, and when it is refuted.
        figures: Our figures: a description and a value each.
        verdict: The result.
        explanation: The reason of the verdict, from the figures.
    """

    title: str
    statement: str
    setup: str
    rule: str
    figures: list[tuple[str, str]]
    verdict: ClaimVerdict
    explanation: str


def combine(verdicts: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """Return the verdict of several measurements: "depends" if they do not agree.

    Raises:
        ValueError: There is no measurement.
    """
    found = set(verdicts)
    if not found:
        raise ValueError("a verdict needs a measurement")
    return found.pop() if len(found) == 1 else ClaimVerdict.DEPENDS


def combine_holds(holds: Iterable[bool]) -> ClaimVerdict:
    """Return the verdict of a claim that holds, or does not, in several measurements."""
    return combine(ClaimVerdict.REPRODUCED if each else ClaimVerdict.REFUTED for each in holds)


def join_words(words: Iterable[object]) -> str:
    """Return words as an enumeration, such as "a, b and c"; "none" without words."""
    texts = [str(each) for each in words]
    if len(texts) < 2:
        return texts[0] if texts else "none"
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
