"""Every example in the documentation is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from partage.testing import ThreadedBroker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: The address that the examples use; each run puts its own broker's there.
ADDRESS = "127.0.0.1:9092"
#: Commands that other tests run: installation in interop, the main job in CI, the
#: start of broker and web page in tests of the console.
ELSEWHERE = re.compile(
    r"^(make|pip install|git clone|partage (broker|web)|source|python -m bench)\b"
)

#: Examples with brokers that are separate: see spark/test_docs, pipelines/test_docs and
#: client/test_security_docs.
RUN_APART = re.compile("spark|security_protocol|pipeline (archive|join)")

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[pytest.param]:
    return [
        pytest.param(text, id=f"{page.name}-{number}")
        for page in PAGES
        for number, (found, text) in enumerate(BLOCK.findall(page.read_text()), start=1)
        if found == language and not RUN_APART.search(text)
    ]


@pytest.fixture(scope="module")
def address():
    with ThreadedBroker({"partage.group.events.enable": "true"}) as broker:
        create = f"topics create --topic flights --partitions 12 -b {broker.bootstrap_servers}"
        command = [sys.executable, "-m", "partage", *create.split()]
        subprocess.run(command, check=True, capture_output=True)
        yield broker.bootstrap_servers


@pytest.mark.parametrize("text", blocks("python"))
def test_python_example_runs(text, address, tmp_path):
    script = tmp_path / "test_example.py"
    script.write_text(text.replace(ADDRESS, address))
    command = [sys.executable, str(script)]
    if "def test_" in text:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks("console"))
def test_console_example_runs(text, address, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in re.findall(r"^\$ (.*?)(?:\s+#.*)?$", text, re.MULTILINE):
        if ELSEWHERE.match(command):
            continue
        # The fixture has made the topic, so that each example runs whichever came before it.
        command = command.replace("topics create", "topics create --if-not-exists")
        reaching = r"\bpartage (?!search\b|lab (?:run|trace)\b)(\w+)( \w[\w-]*)?"
        command = re.sub(reaching, rf"\g<0> -b {address}", command, count=0)
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            capture_output=True,
            text=True,
            timeout=150,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
