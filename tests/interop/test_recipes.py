"""The examples of docs/recipes.md against Apache Kafka, from memberships to indexes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from interop.peers.kafka import ApacheKafka

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.interop
def test_they_run_there_too(peers: None, tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 6
    with ApacheKafka() as kafka:
        for number, text in enumerate(EXAMPLES):
            script = tmp_path / f"example_{number}.py"
            script.write_text(text.replace("127.0.0.1:9092", kafka.bootstrap))
            ran = subprocess.run(
                [sys.executable, script], capture_output=True, text=True, timeout=90, cwd=tmp_path
            )
            assert ran.returncode == 0, f"{text}\n{ran.stdout}{ran.stderr}"
