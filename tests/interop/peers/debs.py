"""kcat from Debian's packages, unpacked into ``.peers/kcat`` without being installed.

apt checks the packages' signatures. Elsewhere than on Debian a kcat on the PATH is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from interop.peers import where

MADE = where.KCAT / "ready"
ADVICE = "install kcat (on Debian this needs apt-get and dpkg-deb, elsewhere kcat on the PATH)"


def fetch() -> None:
    """Unpack kcat and the libraries it needs that are not installed; raises `Missing`."""
    if shutil.which("apt-get") is None and shutil.which("kcat") is not None:
        where.KCAT.mkdir(exist_ok=True)
        MADE.touch()
        return
    where.tool("apt-get", ADVICE)
    where.tool("dpkg-deb", ADVICE)
    try:
        _unpack([])
    except where.Missing:
        # The machine's package lists are missing or too old; ours need no root.
        _unpack(_package_lists_of_our_own())
    said = subprocess.run([*command(), "-V"], env=environment(), capture_output=True, text=True)
    if said.returncode != 0:
        raise where.Missing(f"kcat was unpacked but does not run: {said.stderr.strip()}")
    MADE.touch()


def _unpack(options: list[str]) -> None:
    packages = _packages(options)
    if not packages:
        raise where.Missing(f"apt knows no package kcat: {ADVICE}")
    with tempfile.TemporaryDirectory(prefix="partage-kcat-") as scratch:
        _run(["apt-get", *options, "download", *packages], Path(scratch))
        shutil.rmtree(where.KCAT, ignore_errors=True)
        for package in Path(scratch).glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(where.KCAT)], Path(scratch))


def command() -> list[str]:
    """How to call kcat, with `environment`."""
    unpacked = where.KCAT / "usr/bin/kcat"
    return [str(unpacked) if unpacked.exists() else where.tool("kcat", ADVICE)]


def environment() -> dict[str, str]:
    """The environment in which kcat finds its libraries."""
    libraries = [str(path) for path in where.KCAT.glob("usr/lib/*-linux-*") if path.is_dir()]
    libraries += [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def _packages(options: list[str]) -> list[str]:
    """kcat and those packages below it that are not installed."""
    quiet = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks")]
    quiet += ["--no-replaces", "--no-enhances", "--no-pre-depends"]
    said = subprocess.run(
        ["apt-cache", *options, "depends", "--recurse", *quiet, "kcat"],
        capture_output=True,
        text=True,
    )
    names = [line for line in said.stdout.splitlines() if line and line[0].isalnum()]
    return [name for name in names if not _installed(name)]


def _installed(package: str) -> bool:
    said = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True
    )
    return said.stdout == "installed" and package != "kcat"


def _package_lists_of_our_own() -> list[str]:
    """apt's options for package lists below ``.peers``: fetching them needs no root there."""
    state = where.PEERS / "apt"
    (state / "lists/partial").mkdir(parents=True, exist_ok=True)
    (state / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State::lists={state / 'lists'}", "-o", f"Dir::Cache={state / 'cache'}"]
    _run(["apt-get", *options, "update"], state)
    return options


def _run(command: list[str], directory: Path) -> None:
    said = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if said.returncode != 0:
        sys.stdout.write(said.stdout)
        raise where.Missing(f"{' '.join(command[:2])} failed with status {said.returncode}")
    print(".", end="", flush=True)
