"""Test runs that do not use the plugin's fixtures do not import the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TEST = """
import sys


def test_imports(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("partage.testing.plugin")
    ours = sorted(name for name in sys.modules if name.partition(".")[0] == "partage")
    print("imported:", *ours)
"""
#: Without the other plugins of this environment, which take seconds.
OPTIONS = [
    *("-q", "-s", "-c", "/dev/null", "--rootdir", "."),
    *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:xdist"),
]
SCRIPT = """
import sys

import partage.testing

for use in (dir, lambda testing: testing.BrokerProcess, lambda testing: testing.ThreadedBroker):
    use(partage.testing)
    print("partage.broker.broker" in sys.modules)
print("partage.client" in sys.modules)
"""


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_plugin_imports_only_itself_in_runs_without_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(TEST)
    shown = run("-m", "pytest", *OPTIONS, "test_unused.py", cwd=tmp_path)
    (line,) = [line for line in shown.splitlines() if line.startswith("imported: ")]
    assert line.split()[1:] == [
        "partage",
        "partage.model",
        "partage.model.version",
        "partage.testing",
        "partage.testing.plugin",
    ]


def test_broker_is_imported_on_first_use_and_without_client(tmp_path: Path) -> None:
    assert run("-c", SCRIPT, cwd=tmp_path).split() == ["False", "False", "True", "False"]
