"""Patterns of topic names: the results of ``re``, in bounded time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.proposals.topic_pattern import TopicPattern
from partage.statemachine.linear_pattern import PATTERN_LENGTH_MAX

NAMES = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "abab",
    "a.b",
    "a-b",
    "A_1",
    "clicks",
    "clicks-7",
    "ba",
    "-",
    "]",
]
PATTERNS = [
    "",
    "a",
    "^a$",
    "a|b|",
    "a*b",
    "(ab)+",
    "(?:ab){2}",
    "a{1,2}b?",
    "a{0}b",
    "a{2,}b",
    ".*",
    "a.b",
    r"a\.b",
    "[a-c]+",
    "[^a-c]+",
    "[]a]",
    r"[\d\w]+",
    r"\w+\W\d",
    "clicks(-[0-9]+)?",
    "(a|ab)(c|bab)?",
    "a+?b",
    "[a-]*b",
    "(a*)*b",
    "(|a)+",
    "()",
]


@pytest.mark.parametrize("text", PATTERNS)
def test_pattern_matches_what_re_matches(text: str) -> None:
    pattern, expected = TopicPattern(text), re.compile(text)
    for name in NAMES:
        assert pattern.matches(name) is (expected.fullmatch(name) is not None), name


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w"])
trees = st.recursive(
    atoms,
    lambda part: st.one_of(
        st.lists(part, max_size=3).map("".join),
        st.lists(part, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(part, st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(trees, st.lists(st.text("abc", max_size=6), max_size=8))
@settings(max_examples=200)
def test_any_pattern_matches_what_re_matches(text: str, names: list[str]) -> None:
    pattern, expected = TopicPattern(text), re.compile(text)
    for name in names:
        assert pattern.matches(name) is (expected.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "ends too early"),
        ("a)", r"unexpected '\)'"),
        ("*a", r"unexpected '\*'"),
        ("a**", "second quantifier"),
        ("a{1", r"expected \{m\}"),
        ("a{x}", r"expected \{m\}"),
        ("a{2,1}", "counts must rise"),
        ("a{999}", "at most 250"),
        ("[b-a]", "rise within ASCII"),
        (r"[\d-z]", "two characters"),
        ("[a", "ends too early"),
        ("a\\", "ends too early"),
        (r"(a)\1", "not supported"),
        (r"\bword", "not supported"),
        ("(?=a)", "look-arounds"),
        ("(?i)a", "look-arounds and flags"),
        ("a$b", r"unexpected '\$'"),
        ("a^b", r"unexpected '\^'"),
        ("(" * 21 + ")" * 21, "nested more than 20 deep"),
        ("a" * (PATTERN_LENGTH_MAX + 1), "has 257 characters"),
        ("((a{9}){9}){9}", "more than 250 characters"),
        ("(((){200}){200}){200}", "more than 250 characters"),
    ],
)
def test_unsupported_pattern_is_rejected_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TopicPattern(text)


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*a){30}b", "(a|b)*a(a|b){100}", "(a?){125}a{125}"]
)
def test_hostile_pattern_takes_little_time(text: str) -> None:
    begin = time.process_time()
    pattern = TopicPattern(text)
    for number in range(100):
        pattern.matches("a" * (149 + number))
    assert time.process_time() - begin < 5


def test_results_are_forgotten_before_they_fill_the_memory() -> None:
    pattern = TopicPattern("t[0-9]+")
    assert all(pattern.matches(f"t{number}") for number in range(5_000))
    assert not pattern.matches("u1")
