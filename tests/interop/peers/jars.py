"""Java archives of Apache Kafka, pinned by SHA-256 in ``java/jars.txt``.

Maven resolves and downloads them (``java/*.pom.xml``), from the repositories in its settings. The
list has the expected files. Without Maven, MAVEN_REPOSITORY can name a repository's address; the
list is then sufficient.

The broker has another release than the command-line tools and Kafka Streams, because these are not
in Maven's repository in the broker's release. So they have separate class paths. Spark's Kafka
connector is for benchmarks only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from interop.peers import paths

POMS = paths.SOURCES / "java"
LIST = POMS / "jars.txt"
USES = ("broker", "tools", "streams", "compiler")
CONNECTOR = "connector"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class Jar(NamedTuple):
    """One archive: its use, its digest, and its path in a Maven repository."""

    use: str
    sha256: str
    path: str


def listed(use: str | None = None) -> list[Jar]:
    """Return the pinned archives, all or those for one use."""
    lines = LIST.read_text().splitlines()
    jars = [Jar(*line.split()) for line in lines if line and not line.startswith("#")]
    return [jar for jar in jars if use in (None, jar.use)]


def class_path(use: str, *, first: Path | None = None) -> str:
    """Return the class path for one use."""
    entries = [str(first)] if first else []
    return os.pathsep.join(entries + [str(paths.JARS / jar.path) for jar in listed(use)])


def quick_start(use: str) -> list[str]:
    """Return JVM options that load the classes of one use from a class data archive.

    This halves the start time. Java silently ignores an archive of another Java version.
    """
    archive = paths.ARCHIVES / f"{use}.jsa"
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


def fetch() -> None:
    """Fetch missing archives for tests, and check all digests.

    Raises:
        MissingToolError: An archive cannot be fetched, or its digest differs.
    """
    _fetch(USES)


def fetch_connector() -> None:
    """Fetch Spark's Kafka connector in the same way."""
    _fetch((CONNECTOR,))


def _fetch(uses: Sequence[str]) -> None:
    wanted = [jar for jar in listed() if jar.use in uses]
    absent = [jar for jar in wanted if not (paths.JARS / jar.path).exists()]
    if absent:
        paths.JARS.mkdir(parents=True, exist_ok=True)
        repository = os.environ.get("MAVEN_REPOSITORY")
        if repository:
            _download(absent, repository)
        elif shutil.which("mvn"):
            for use in uses:
                if any(jar.use == use for jar in absent):
                    _resolve(use, paths.JARS)
        else:
            raise paths.MissingToolError(
                "Java's archives need Maven: install it (Debian: maven), or set "
                "MAVEN_REPOSITORY to the address of a Maven repository."
            )
    _check(wanted)


def pin() -> None:
    """Rewrite the list from Maven's resolution."""
    lines = ["# What Maven resolves for the poms beside this list: use, SHA-256, path."]
    with tempfile.TemporaryDirectory() as scratch:
        for use in (*USES, CONNECTOR):
            target = Path(scratch, use)
            _resolve(use, target)
            lines += [
                f"{use} {_digest(path)} {path.relative_to(target).as_posix()}"
                for path in sorted(target.rglob("*.jar"))
            ]
    LIST.write_text("\n".join(lines) + "\n")


def _resolve(use: str, target: Path) -> None:
    command = [
        paths.tool("mvn", "install Maven (Debian: maven)"),
        *("-B", "-f", str(POMS / f"{use}.pom.xml"), COPY),
        f"-DoutputDirectory={target}",
        "-Dmdep.useRepositoryLayout=true",
    ]
    for attempt in (1, 2):
        said = []
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as maven:
            for count, line in enumerate(maven.stdout or ()):
                said.append(line)
                if count % 25 == 0:
                    print(".", end="", flush=True)
        if maven.returncode == 0:
            return
        print(f" Maven failed (attempt {attempt})", flush=True)
    errors = [line for line in said if "ERROR" in line] or said
    raise paths.MissingToolError(
        f"Maven could not fetch the {use} archives:\n{''.join(errors[-12:])}"
    )


def _download(jars: list[Jar], repository: str) -> None:
    for jar in jars:
        target = paths.JARS / jar.path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".part")
        address = f"{repository.rstrip('/')}/{jar.path}"
        try:
            with urllib.request.urlopen(address, timeout=120) as source, partial.open("wb") as out:
                shutil.copyfileobj(source, out)
        except OSError as error:
            raise paths.MissingToolError(
                f"MAVEN_REPOSITORY did not give {jar.path}: {error}"
            ) from error
        partial.replace(target)
        print(".", end="", flush=True)


def _check(jars: list[Jar]) -> None:
    for jar in jars:
        path = paths.JARS / jar.path
        if not path.exists():
            raise paths.MissingToolError(f"{jar.path} is listed, but Maven did not fetch it")
        if _digest(path) != jar.sha256:
            path.unlink()
            raise paths.MissingToolError(
                f"{jar.path} does not have the listed SHA-256; it was deleted"
            )


def _digest(path: Path) -> str:
    with path.open("rb") as archive:
        return hashlib.file_digest(archive, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(pin())
