"""The table of tasks in docs/contributing.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing.md"


def task_rows() -> list[tuple[str, list[str]]]:
    """Return each task with the files named for it."""
    table = PAGE.read_text().split("## Where is it?")[1]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return [(row[0].strip(), re.findall(r"`([^`]+)`", row[1])) for row in rows[1:]]


def test_task_files_exist() -> None:
    rows = task_rows()
    assert len(rows) == 20
    for task, files in rows:
        assert files, task
        for file in files:
            assert (ROOT / "src" / "partage" / file).is_file(), (task, file)
