"""Fetch other projects' clients and brokers into ``.peers/``; run it as a script.

It fetches Apache Kafka's archives with Maven, kcat and Chromium with apt, and kafkajs with npm.
Then it compiles the Java peers, Kafka's plugins, and the Go peer, for which Go fetches franz-go. It
installs nothing on the machine, and skips parts that are up to date. A missing prerequisite is an
error with advice. It uses the standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from interop.peers import debs, jars, paths, tools

JAVA_SOURCES = paths.SOURCES / "clients" / "java"
PLUGIN_SOURCES = paths.SOURCES / "plugins"
GO_SOURCES = paths.SOURCES / "clients" / "go"
KFAKE_SOURCES = paths.REPOSITORY / "bench" / "kfake"
NODE_FILES = [paths.SOURCES / "node" / name for name in ("package.json", "package-lock.json")]


def main(steps: Sequence[Step] | None = None) -> int:
    """Fetch everything that tests need, or run the given steps only.

    Return 0 on success; print a message for each missing part and return 1 otherwise.
    """
    paths.PEERS.mkdir(exist_ok=True)
    with (paths.PEERS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [said for step in steps or STEPS if (said := _run_unless_fresh(step))]
    for said in missing:
        print(f"missing: {said}", file=sys.stderr)
    return 1 if missing else 0


def fetch_node() -> None:
    """Fetch kafkajs in the versions of the lock file."""
    paths.tool("node", "install Node.js 18 or later (Debian: nodejs)")
    npm = paths.tool("npm", "install npm (Debian: npm)")
    paths.NODE.mkdir(exist_ok=True)
    for path in NODE_FILES:
        shutil.copy(path, paths.NODE)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    said = subprocess.run(command, cwd=paths.NODE, capture_output=True, text=True)
    if said.returncode != 0:
        raise paths.MissingToolError(f"npm ci failed: {said.stderr.strip()[-800:]}")


def compile_java() -> None:
    """Compile the Java peers."""
    _compile(_JAVA, paths.JAVA_PEER)


def compile_plugins() -> None:
    """Compile the classes that Apache Kafka loads."""
    _compile(_PLUGINS, paths.KAFKA_PLUGINS)


def _compile(sources: Sequence[Path], made: Path) -> None:
    """Make a jar, with a compiler that needs no JDK."""
    libraries = os.pathsep.join(jars.class_path(use) for use in ("broker", "streams"))
    command = [paths.java(), "-cp", jars.class_path("compiler")]
    command += ["org.eclipse.jdt.internal.compiler.batch.Main", "-source", "17", "-target", "17"]
    command += ["-proc:none", "-cp", libraries]
    command += [str(path) for path in sources]
    with tempfile.TemporaryDirectory(prefix="partage-java-") as classes:
        said = subprocess.run([*command, "-d", classes], capture_output=True, text=True)
        if said.returncode != 0:
            raise paths.MissingToolError(f"{made.name} does not compile:\n{said.stderr[-2000:]}")
        # A jar, because class data archives do not support directories. It replaces the former one
        # at once, because running programs load classes from that.
        new = made.with_suffix(".new")
        with zipfile.ZipFile(new, "w") as archive:
            for path in sorted(Path(classes).glob("*.class")):
                archive.write(path, path.name)
        new.replace(made)


def build_go() -> None:
    """Build the peer with franz-go; ``go.sum`` has the digests of its modules."""
    _build_go(GO_SOURCES, paths.GO_PEER)


def build_kfake() -> None:
    """Build kfake, franz-go's broker for tests, as a program."""
    _build_go(KFAKE_SOURCES, paths.KFAKE)


def _build_go(sources: Path, program: Path) -> None:
    go = paths.tool("go", "install Go 1.21 or later (Debian backports: golang-go, or go.dev)")
    command = [go, "build", "-trimpath", "-o", str(program), "."]
    said = subprocess.run(command, cwd=sources, capture_output=True, text=True)
    if said.returncode != 0:
        raise paths.MissingToolError(f"{program.name} does not build:\n{said.stderr[-2000:]}")


def archive_classes() -> None:
    """Create class data archives, with which the Java peer and the tools start in half the time."""
    paths.ARCHIVES.mkdir(exist_ok=True)
    for use in ("tools", "peer"):
        (paths.ARCHIVES / f"{use}.jsa").unlink(missing_ok=True)
    nowhere = "127.0.0.1:1"
    peer = [paths.java(), *tools.JVM, tools.QUIET]
    peer += ["-cp", jars.class_path("broker", first=paths.JAVA_PEER), "KafkaPeer"]
    peer += ["load", "--bootstrap", nowhere]
    # The tool finds no broker, but it loads its classes before it fails.
    asking = tools.command("consumer-groups", nowhere, "--list", "--timeout", "100")
    for use, command in (("tools", asking), ("peer", peer)):
        archive = paths.ARCHIVES / f"{use}.jsa"
        command[1:1] = [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable"]
        said = subprocess.run(command, capture_output=True, text=True)
        if not archive.exists():
            raise paths.MissingToolError(f"Java wrote no archive of classes: {said.stderr[-2000:]}")


class Step(NamedTuple):
    """A step and its source files. It reruns if a source has changed or its output is missing."""

    name: str
    run: Callable[[], None]
    sources: list[Path]
    made: Path


_POMS = sorted(jars.POMS.iterdir())
_JAVA = sorted(JAVA_SOURCES.glob("*.java"))
_PLUGINS = sorted(PLUGIN_SOURCES.glob("*.java"))
STEPS = [
    Step("Apache Kafka's archives (Maven)", jars.fetch, _POMS, paths.JARS),
    Step("kcat (apt)", debs.fetch, [Path(debs.__file__)], debs.KCAT.made),
    Step("Chromium (apt)", debs.fetch_chromium, [Path(debs.__file__)], debs.CHROMIUM.made),
    Step("kafkajs (npm)", fetch_node, NODE_FILES, paths.NODE / "node_modules"),
    Step("the Java peer (compiled)", compile_java, _POMS + _JAVA, paths.JAVA_PEER),
    Step("Kafka's plugins (compiled)", compile_plugins, _POMS + _PLUGINS, paths.KAFKA_PLUGINS),
    Step("the Go peer (franz-go)", build_go, sorted(GO_SOURCES.iterdir()), paths.GO_PEER),
    Step("archives of Java classes", archive_classes, _POMS + _JAVA, paths.ARCHIVES),
]
#: Needed by benchmarks only, not by tests.
KFAKE = Step("kfake", build_kfake, sorted(KFAKE_SOURCES.glob("*")), paths.KFAKE)
#: Needed by `bench.spark` only, not by tests.
CONNECTOR = Step("Spark's connector (Maven)", jars.fetch_connector, _POMS, paths.JARS)


def _run_unless_fresh(step: Step) -> str | None:
    """Run a step unless its stamp is fresh; return an error message, or None."""
    digest = hashlib.sha256()
    for path in step.sources:
        digest.update(path.read_bytes())
    stamp = paths.PEERS / "stamps" / f"{step.run.__module__}.{step.run.__name__}"
    if step.made.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
        return None
    stamp.parent.mkdir(exist_ok=True)
    stamp.unlink(missing_ok=True)
    print(f"peers: {step.name} ", end="", flush=True)
    began = time.monotonic()
    try:
        step.run()
    except paths.MissingToolError as missing:
        print(" failed", flush=True)
        return str(missing)
    print(f" {time.monotonic() - began:.1f} s", flush=True)
    stamp.write_text(digest.hexdigest())
    return None


if __name__ == "__main__":
    sys.exit(main())
