"""The interpreters of this machine in which tests run programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())


def find_python(version: str) -> str | None:
    """Return the interpreter of a version on PATH that can create environments, or None."""
    # The variable makes pyenv's commands run this version; others ignore it.
    environment = {**os.environ, "PYENV_VERSION": version}
    code = "import ensurepip, sys, venv; print(sys.executable)"
    if shutil.which(f"python{version}") is None:
        return None
    found = subprocess.run(
        [f"python{version}", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else None


def find_pythons() -> dict[str, str]:
    """Return the running interpreter, and one of each other supported version, by version.

    If there is no other one, the key says so.
    """
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    supported = re.findall(r":: Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    found = {version: find_python(version) for version in supported if version != running}
    others = {version: python for version, python in found.items() if python is not None}
    return {running if others else f"only-{running}": sys.executable, **others}


#: Interpreters by the ids of their tests.
PYTHONS = find_pythons()
