"""Runs of a seed have the same story, whatever the hashes of strings and the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from interpreters import PROJECT, PYTHONS
from partage.testing import PartageWorld

TESTS = Path(__file__).parents[1]

STORIES = """
import tempfile
from pathlib import Path

from testing import cluster_worlds, user_workers as workers


class ToldWorld(workers.PartageWorld):
    def run(self, test):
        super().run(test)
        # The time and the state of a generator at the end depend on each turn of the loop.
        print(*self.story, repr(self.elapsed_s), self._network.latency_s(), sep="\\n")


workers.PartageWorld = cluster_worlds.PartageWorld = ToldWorld
for seed in (1, 2, 3):
    for worker in (workers.saves_with_aiokafka, workers.saves_baskets_late):
        workers.find_lost_orders(worker, seed, Path(tempfile.mkdtemp()))
for seed in (1, 2):
    cluster_worlds.run_cluster_world(seed, Path(tempfile.mkdtemp()))
"""


def run(*command: str | Path, **environment: str) -> str:
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=TESTS,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def environment_of(tmp_path: Path) -> Callable[[str], Path]:
    """Return an interpreter with what worlds need, but with Partage from the source tree."""

    def create(python: str) -> Path:
        if python == sys.executable:
            return Path(python)
        run(python, "-m", "venv", tmp_path / "venv")
        installed = tmp_path / "venv" / "bin" / "python"
        project = PROJECT["project"]
        needed = [*project["dependencies"], *project["optional-dependencies"]["world"]]
        run(
            *(installed, "-m", "pip", "install", "--quiet"),
            *(*needed, f"aiokafka=={version('aiokafka')}"),
        )
        return installed

    return create


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS.values(), ids=PYTHONS)
def test_story_is_the_same_on_any_interpreter(python: str, environment_of) -> None:
    """The running interpreter is compared with another one, and in any case another hash seed."""
    installed = environment_of(python)

    def stories(interpreter: str | Path, hash_seed: str) -> list[str]:
        return run(
            *(interpreter, "-c", STORIES),
            PYTHONPATH=f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}",
            PYTHONHASHSEED=hash_seed,
            PYTHONWARNINGS="ignore",
        ).splitlines()

    first = stories(sys.executable, "1")
    assert sum("worker-2      started" in line for line in first) >= 6
    assert stories(installed, "2") == first


def test_import_in_a_world_does_not_change_its_random_numbers(tmp_path: Path) -> None:
    module = tmp_path / "asks_for_bytes.py"
    module.write_text("import os\nSALT = os.urandom(16)\n")
    drawn = []

    async def test() -> None:
        sys.path.insert(0, str(tmp_path))
        try:
            __import__("asks_for_bytes")
        finally:
            sys.path.remove(str(tmp_path))
        drawn.append(uuid.uuid4())

    for _ in range(2):  # only the first world imports it
        PartageWorld(1, tmp_path / "world").run(test)
    del sys.modules["asks_for_bytes"]
    assert drawn[0] == drawn[1]
