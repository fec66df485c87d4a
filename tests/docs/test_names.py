"""The check of names finds gerunds, shared class names and exceptions without "Error"."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import check_names


def test_each_violation_of_the_names_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, source in {
        "gathering/__init__.py": "class Lost(other.LossError): ...\nclass _Wrong(KeyError): ...\n",
        "sharing.py": "class Segment: ...\n",
        "segment.py": "class Segment: ...\nclass _Row: ...\n",
        "rows.py": "class _Row: ...\nclass RightError(Exception): ...\n",
        "testing/__init__.py": "",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
    monkeypatch.setattr(check_names, "SOURCE", tmp_path)
    monkeypatch.setattr(check_names, "SHARED_NAMES", {"Broker": "real and simulated"})
    assert check_names.findings() == [
        "gathering: the module is named by a gerund; use a noun",
        "gathering/__init__.py: exception Lost does not end in Error",
        "gathering/__init__.py: exception _Wrong does not end in Error",
        "sharing.py: the module is named by a gerund; use a noun",
        "class Segment is defined in segment.py, sharing.py",
        "SHARED_NAMES lists Broker, which is defined only once",
    ]
