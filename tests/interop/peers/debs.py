"""kcat and Chromium from Debian packages, unpacked into ``.peers`` without installation.

apt checks the signatures. On other systems, programs on PATH are used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from interop.peers import paths


class Deb(NamedTuple):
    """A package, its target directory, its program there, and the program's version option."""

    package: str
    place: Path
    program: str
    asked: str

    @property
    def made(self) -> Path:
        """A file that exists once the program can be used."""
        return self.place / "ready"

    @property
    def advice(self) -> str:
        """Advice if the program is not available."""
        return (
            f"install {self.package} (on Debian this needs apt-get and dpkg-deb, elsewhere "
            f"{self.package} on the PATH)"
        )

    def fetch(self) -> None:
        """Unpack the package and its missing dependencies.

        Raises:
            MissingToolError: The package cannot be fetched or does not run.
        """
        if shutil.which("apt-get") is None and shutil.which(self.package) is not None:
            self.place.mkdir(exist_ok=True)
            self.made.touch()
            return
        paths.tool("apt-get", self.advice)
        paths.tool("dpkg-deb", self.advice)
        try:
            self._unpack([])
        except paths.MissingToolError:
            # The machine's package lists are missing or too old; separate lists need no root.
            self._unpack(_package_lists_of_our_own())
        command = [*self.command(), self.asked]
        said = subprocess.run(command, env=self.environment(), capture_output=True, text=True)
        if said.returncode != 0:
            raise paths.MissingToolError(f"{self.package} does not run: {said.stderr.strip()}")
        self.made.touch()

    def command(self) -> list[str]:
        """Return the command; run it with `environment`."""
        unpacked = self.place / self.program
        return [str(unpacked) if unpacked.exists() else paths.tool(self.package, self.advice)]

    def environment(self) -> dict[str, str]:
        """Return an environment with the library path of the unpacked package."""
        found = sorted({path.parent for path in self.place.glob("usr/lib/*-linux-*/**/lib*.so*")})
        libraries = [str(path) for path in found]
        libraries += [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path]
        return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}

    def _unpack(self, options: list[str]) -> None:
        packages = self._packages(options)
        if not packages:  # it is installed
            self.place.mkdir(exist_ok=True)
            return
        with tempfile.TemporaryDirectory(prefix=f"partage-{self.package}-") as scratch:
            _run(["apt-get", *options, "download", *packages], Path(scratch))
            shutil.rmtree(self.place, ignore_errors=True)
            for package in Path(scratch).glob("*.deb"):
                _run(["dpkg-deb", "-x", str(package), str(self.place)], Path(scratch))

    def _packages(self, options: list[str]) -> list[str]:
        """Return the package and its dependencies that are not installed."""
        command = ["apt-get", *options, "install", "--simulate", "--no-install-recommends"]
        said = subprocess.run([*command, self.package], capture_output=True, text=True)
        if said.returncode != 0:
            raise paths.MissingToolError(f"apt knows no package {self.package}: {self.advice}")
        return re.findall(r"^Inst (\S+)", said.stdout, re.MULTILINE)


KCAT = Deb("kcat", paths.KCAT, "usr/bin/kcat", "-V")
#: The program itself: the script on PATH expects it in ``/usr``.
CHROMIUM = Deb("chromium", paths.CHROMIUM, "usr/lib/chromium/chromium", "--version")

command = KCAT.command
environment = KCAT.environment


def fetch() -> None:
    """Fetch kcat; raise `MissingToolError` if that fails."""
    KCAT.fetch()


def fetch_chromium() -> None:
    """Fetch Chromium; raise `MissingToolError` if that fails."""
    CHROMIUM.fetch()


def _package_lists_of_our_own() -> list[str]:
    """Fetch package lists below ``.peers``, which needs no root; return apt's options for them."""
    state = paths.PEERS / "apt"
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
        raise paths.MissingToolError(
            f"{' '.join(command[:2])} failed with status {said.returncode}"
        )
    print(".", end="", flush=True)
