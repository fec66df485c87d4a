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
