"""The release: the sdist is complete, its README works on an index, and the wheel runs alone."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from page_examples import all_examples

from interpreters import PYTHONS, find_pythons
from polled_conditions import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
#: Where a release would be; nothing connects to it.
REPOSITORY = "https://git.example/partage/partage"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    ended = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def program(name: str) -> Path:
    return Path(sys.executable).parent / name


def test_without_other_interpreters_only_the_running_one_is_tested(monkeypatch):
    monkeypatch.setenv("PATH", "")
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert find_pythons() == {f"only-{running}": sys.executable}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a built sdist and wheel; `build_release` checks them with twine."""
    folder = tmp_path_factory.mktemp("dist")
    tool = ROOT / "tools" / "build_release.py"
    options = ["--repository", REPOSITORY, "--no-isolation", "--output", folder]
    run(sys.executable, tool, *options)
    return folder


@pytest.fixture(scope="module")
def sdist(release: Path) -> Path:
    return next(release.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    return next(release.glob("*.whl"))


def metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        return archive.read(name).decode()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("release")
class TestDistributions:
    def test_sdist_has_sources_tests_and_docs(self, sdist):
        top = f"partage-{VERSION}/"
        with tarfile.open(sdist) as archive:
            names = {name.removeprefix(top) for name in archive.getnames()}
        tracked = run("git", "ls-files", "src", "tests", "docs", "examples", "tools", cwd=ROOT)
        assert set(tracked.splitlines()) - names == set()
        assert not [name for name in names if name.endswith((".so", ".pyc", ".c"))]
        assert {"LICENSE", "CHANGELOG.md", "Makefile", "requirements/dev.txt"} <= names

    def test_wheel_has_compiled_modules_and_data(self, wheel):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        for module in ("_native", "_checksum"):
            pattern = rf"records/{module}\.[\w-]+\.so$"
            assert any(re.search(pattern, name) for name in names)
        assert "partage/py.typed" in names
        assert any(name.startswith("partage/web/static/") for name in names)
        assert not [name for name in names if name.startswith(("tests", "bench"))]

    def test_metadata_has_version_and_urls(self, wheel):
        text = metadata(wheel)
        assert f"\nVersion: {VERSION}\n" in text
        for name in ("Homepage", "Documentation", "Changelog", "Issues"):
            assert f"\nProject-URL: {name}, {REPOSITORY}" in text

    def test_readme_links_work_on_an_index(self, wheel):
        """Each link is absolute, or an anchor; those to the repository name existing files."""
        text = metadata(wheel).partition("\n\n")[2]
        links = LINK.findall(text)
        assert len(links) > 20
        base = f"{REPOSITORY}/blob/v{VERSION}/"
        for link in links:
            assert link.startswith(("https://", "#")), link
            if link.startswith(REPOSITORY):
                assert (ROOT / link.removeprefix(base).partition("#")[0]).exists(), link

    @pytest.mark.parametrize("python", PYTHONS.values(), ids=PYTHONS)
    def test_installed_wheel_runs_quick_start(self, python, sdist, wheel, tmp_path):
        """README's consumer and a broker, in a fresh environment with the base install only.

        The release has a wheel for this version of Python. Others build theirs from the sdist.
        """
        environment = tmp_path / "venv"
        run(python, "-m", "venv", environment)
        installed = environment / "bin" / "python"
        if python != sys.executable:
            run(installed, "-m", "pip", "wheel", "--quiet", "--no-deps", sdist, cwd=tmp_path)
            (wheel,) = tmp_path.glob("*.whl")
        run(installed, "-m", "pip", "install", "--quiet", wheel)
        assert "the wheel is complete" in run(installed, ROOT / "tools" / "check_wheel.py")
        code = next(
            example.code
            for example in all_examples()
            if example.page == "README.md" and "partage.sync" in example.code
        )
        with running_broker(installed, tmp_path) as servers:
            produce(servers)
            script = tmp_path / "quick_start.py"
            script.write_text(code.replace("127.0.0.1:9092", servers))
            assert first_line(installed, script) == "b'EWR' b'hello'\n"


@contextmanager
def running_broker(python: Path, directory: Path) -> Iterator[str]:
    """Run the broker of an environment; yield its address. It must end cleanly."""
    command = [python, "-m", "partage.broker", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=directory) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0


def first_line(python: Path, script: Path) -> str:
    """Run a script until it has printed a line, because README's consumer reads forever."""
    command = [python, "-u", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=script.parent) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            return process.stdout.readline()
        finally:
            watchdog.cancel()
            process.kill()


def produce(servers: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    producer.produce("flights", b"hello", b"EWR")
    producer.flush()


def test_relative_links_become_absolute():
    absolute_links = runpy.run_path(str(ROOT / "tools" / "build_release.py"))["absolute_links"]
    text = "[a](docs/a.md#b) ![p](docs/p.png) [w](https://w) [h](#h)"
    assert absolute_links(text, "https://h/o/n/blob/v1") == (
        "[a](https://h/o/n/blob/v1/docs/a.md#b) ![p](https://h/o/n/raw/v1/docs/p.png) "
        "[w](https://w) [h](#h)"
    )


def test_version_is_equal_everywhere():
    from partage import __version__

    assert __version__ == VERSION
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == VERSION


@pytest.mark.parametrize("name", ["tests.yml", "release.yml"])
def test_workflow_is_valid(name):
    workflow = ROOT / ".github" / "workflows" / name
    run(program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", workflow)
    run(program("zizmor"), "--offline", "--no-progress", workflow)


def test_workflows_use_existing_targets_and_tools():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        assert set(re.findall(r"\bmake (\w+)", text)) <= targets
        for tool in re.findall(r"python (tools/\w+\.py)", text):
            assert (ROOT / tool).exists()
        for job in yaml.safe_load(text)["jobs"].values():
            assert "timeout-minutes" in job


@pytest.mark.parametrize("path", [".ci/run", ".github/workflows/tests.yml"])
def test_ci_runs_all_checks(path):
    targets = re.findall(r"\bmake (\w+)(?= [A-Z_]+=\d+|$)", (ROOT / path).read_text(), re.MULTILINE)
    assert {"check", "site", "unit", "test", "slow", "lab", "interop"} <= set(targets)


#: Runners that GitHub offers, of those that actionlint 1.7.12 knows.
RUNNERS = {
    "macos-15-intel",
    "macos-latest",
    "ubuntu-24.04-arm",
    "ubuntu-latest",
    "windows-latest",
}


def test_workflows_use_existing_runners():
    used = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            systems = job.get("strategy", {}).get("matrix", {}).get("os", [])
            used |= {*systems, job["runs-on"]} - {"${{ matrix.os }}"}
    assert used == RUNNERS


def test_dockerfile_is_valid():
    run(program("hadolint"), ROOT / "Dockerfile")


def test_compose_file_is_valid():
    run(
        program("check-jsonschema"),
        "--builtin-schema",
        "vendor.compose-spec",
        ROOT / "compose.yaml",
    )


def test_dockerfile_copies_what_the_build_needs():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert {"pyproject.toml", "README.md", "src", "LICENSE"} <= kept
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.parametrize(
    ("platform", "libraries"),
    [("linux", ("manylinux", "musllinux")), ("macos", ("macosx",)), ("windows", ("win",))],
)
def test_wheels_are_configured_for_each_python(platform, libraries):
    listed = run(program("cibuildwheel"), "--print-build-identifiers", "--platform", platform, ROOT)
    for library in libraries:
        for python in ("cp311", "cp312", "cp313", "cp314", "cp314t"):
            assert re.search(rf"^{python}-{library}", listed, re.MULTILINE), (python, library)
