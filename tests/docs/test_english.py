"""tools/check_english.py finds what docs/contributing.md forbids."""

from __future__ import annotations

import pytest
from tools import check_english

NVD = "https://nvd.nist.gov/vuln/detail/"


@pytest.mark.parametrize(
    "text",
    [
        "Counts are checked (CVE-2018-1288).",
        f"[CVE-2018-1288]({NVD}CVE-2018-1289)",
        "https://example.org/CVE-2018-1288",
    ],
)
def test_cve_without_link_is_found(text):
    (found,) = check_english.unlinked_cves(f"\n{text}")
    assert found.startswith("2: CVE-2018-1288 has no link")


def test_cve_with_link_is_accepted():
    text = f"[CVE-2018-1288]({NVD}CVE-2018-1288), {NVD}CVE-2017-12610."
    assert list(check_english.unlinked_cves(text)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A note stands right of its process.", "stands right"),
        ("The query stood still.", "stood still"),
        ("It has the assignment computed; heartbeats continue.", "has the assignment computed"),
        ("Have it done by a thread.", "Have it done"),
    ],
)
def test_banned_phrase_is_found(text, words):
    assert words in {
        found[0] for pattern, _ in check_english.PHRASES for found in pattern.finditer(text)
    }


@pytest.mark.parametrize(
    "text",
    [
        "None stands for a missing field, and stand by.",
        "It has the last committed offset, and `stands`, stop_ms.",
        "It has a smaller squared sine.",
    ],
)
def test_similar_phrase_is_accepted(text):
    assert [pattern for pattern, _ in check_english.PHRASES if pattern.search(text)] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("scenarios/26_nobody_rejoins.txt", ""),
        ("test_a.py", "def test_error_disturbs_nobody(): ..."),
        ("test_a.py", "class TestWhoAsks: ..."),
        ("a.py", "async def start_anew(): ..."),
        ("test_a.py", f"def test_{'x' * 71}(): ..."),
    ],
)
def test_bad_name_is_found(path, source):
    assert len(list(check_english.name_findings(path, source))) == 1


def test_good_name_is_accepted():
    source = f"def test_{'x' * 70}(): ...\nclass TestWholeBatchWhoseOwnerLeft: ..."
    assert list(check_english.name_findings("26_no_member_rejoins.txt", source)) == []
