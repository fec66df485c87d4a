"""Regular expressions that select topics, with RE2 and with the subset that needs no package."""

from __future__ import annotations

import pytest

from partage.bridge import topic_regex
from partage.bridge.topic_regex import check_regex, is_quick_match, matching_topics

TOPICS = ("orders", "orders-eu", "Payments", "p.1", "__consumer_offsets")


@pytest.fixture(params=["re2", "subset"])
def engine(request, monkeypatch) -> str:
    if request.param == "subset":
        monkeypatch.setattr(topic_regex, "_re2", lambda: None)
    return request.param


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("orders", {"orders"}),
        ("^orders.*$", {"orders", "orders-eu"}),
        ("orders|Pay.*", {"orders", "Payments"}),
        (r"p\.\d", {"p.1"}),
        (r"[a-z]+(-[a-z]{2})?", {"orders", "orders-eu"}),
        (".*", set(TOPICS)),
        ("rder", set()),
    ],
)
def test_regex_matches_whole_names(engine, regex, expected):
    assert matching_topics([regex], TOPICS) == {regex: frozenset(expected)}


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("(?i)payments", {"Payments"}),
        (r"\pL+", {"orders", "Payments"}),
        (r"[[:alpha:]]+\z", {"orders", "Payments"}),
        (r"(?P<name>orders)\b-?.*", {"orders", "orders-eu"}),
    ],
)
def test_regex_with_syntax_of_re2(regex, expected):
    assert matching_topics([regex], TOPICS) == {regex: frozenset(expected)}


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(a", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("*a", "missing argument to repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(?=a)b", "invalid or unsupported Perl syntax"),
        (r"(a)\1", "invalid escape sequence"),
        ("[z-a]", "invalid character class range"),
        ("a\\", "trailing backslash at end of expression"),
        ("(?P<n", "invalid named capture"),
    ],
)
def test_invalid_regex_gets_reason_of_kafka(regex, reason):
    """RE2/J's descriptions, which Kafka puts into its error message."""
    assert check_regex(regex) == reason


def test_invalid_regex_is_refused_by_both_engines(engine):
    for regex in ("(a", "[a", "*a", r"(a)\1", "(?=a)b", "a\\"):
        assert check_regex(regex), regex
    assert check_regex("(a|b)*c") is None


def test_subset_refusal_names_the_extra(monkeypatch):
    monkeypatch.setattr(topic_regex, "_re2", lambda: None)
    assert "partage[re2]" in check_regex("(?i)a")


def test_expensive_regex_is_bounded():
    """Backtracking would take years, and the expansion of the second one would take 1 GB."""
    names = ["a" * 249]
    assert matching_topics(["(a+)+b"], names) == {"(a+)+b": frozenset()}
    assert check_regex("((a{100}){100}){100}")
    assert check_regex("(a?b?c?d?e?){1000}" * 4).startswith("pattern too large")
    assert check_regex("a" * 8_192) is None
    assert check_regex("a" * 8_193) == "the expression is too large"
    # Its compilation would block the event loop for a second.
    assert check_regex(r"\pL" * 10_000) == "the expression is too large"


def test_quick_match_is_bounded_by_the_size_of_the_compiled_regexes(engine):
    names = [f"{number:030}" for number in range(600)]
    assert is_quick_match(["0.*"], names)
    assert is_quick_match(["("], names), "it matches nothing"
    assert is_quick_match(["(a?.?){20}"], names[:10])
    assert not is_quick_match(["(a?.?){20}"], names)
    assert not is_quick_match(["0.*"] * 6, names[:1])
    assert not is_quick_match(["0.*", "a" * 500], names[:1])
    assert not is_quick_match(["0.*"], names * 1_000)


def test_match_stops_when_its_time_is_over(engine):
    checks = iter([False, False, True])
    names = [str(number) for number in range(100)]
    with pytest.raises(TimeoutError, match="time for regular expressions is over"):
        matching_topics(["1.*"], names, lambda: next(checks))
    assert next(checks, None) is None


def test_invalid_stored_regex_matches_no_topic(engine):
    assert matching_topics(["(", "orders"], TOPICS) == {
        "(": frozenset(),
        "orders": frozenset({"orders"}),
    }
