"""Measure which random changes of the product its tests and the simulator find.

cd tests && python -m lab.sampled_mutation --count 6 --seed "$(git rev-parse HEAD)" --output FILE

No list of bugs is involved, so nothing could be tuned to one. Each change is made in a copy of the
working tree. There the tests of its package run, and the worlds of `make lab`, one kind after the
other, each until the first failure. Before, all of them run on the unchanged copy. With
``--tests-only`` no worlds run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pkgutil
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from .mutant import Mutant
from .random_mutants import random_mutants

_ROOT: Final = Path(__file__).parents[2]
#: For each package, the folders of the tests that import it, the nearest ones first. Those that run
#: worlds are absent: they count for the simulator.
PACKAGES: Final[dict[str, tuple[str, ...]]] = {
    "bridge": ("bridge", "coordinator", "member", "runtime", "client", "broker"),
    "broker": ("broker", "cluster", "client"),
    "client": ("client", "recipes"),
    "coordinator": ("coordinator", "runtime", "bridge", "store", "broker"),
    "log": ("log", "broker"),
    "member": ("member", "client", "recipes"),
    "runtime": ("runtime", "coordinator", "transactions", "broker"),
    "store": ("store", "runtime", "broker", "cluster"),
    "transactions": ("transactions", "broker"),
}
#: The options of one world after the other; the simulator draws all others.
_WORLD_OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"brokers": 1, "consumer_members": 3},
    {"brokers": 1, "transactional_producers": 2},
    {"brokers": 3},
    {"brokers": 1, "consumer_members": 2, "classic_members": 2},
)
#: The number of worlds for each change, by their kind: that of `partage lab run`, and those of
#: `partage lab shells`.
_WORLDS: Final = {"lab": 40, "consumers": 10, "topics": 10, "recipes": 10}
_TEST_MARKS: Final = "not interop and not soak and not slow and not spark"
#: Limits for one search: a change may cause an endless loop.
_TESTS_S: Final = 1_500
_WORLD_CPU_S: Final = 30
_MEMORY_MAX_BYTES: Final = 4 << 30
_NOT_COPIED: Final = (".git", ".venv", "build", "site", "__pycache__", ".*_cache")


class SampledResult(msgspec.Struct, kw_only=True, frozen=True):
    """The findings about one mutant.

    Attributes:
        package: The package that was changed.
        mutant: The name of the mutant.
        tests: The failed test; None if none failed.
        worlds: For each kind of worlds in which a rule was broken: the seed and the rule.
    """

    package: str
    mutant: str
    tests: str | None
    worlds: dict[str, str]

    @property
    def is_found(self) -> bool:
        """True if a test fails, or a world breaks a rule."""
        return self.tests is not None or bool(self.worlds)


class SearchError(Exception):
    """The unchanged code fails, so that a failure would prove nothing."""


def draw_mutants(count: int, seed: str) -> list[tuple[str, Mutant]]:
    """Draw mutants of each package, in turns.

    Args:
        count: The number of mutants of each package.
        seed: The seed of the draws.

    Returns:
        Each mutant with the name of its package.
    """
    drawn = {
        package: random_mutants(list(_modules(package)), count, f"{seed} {package}")
        for package in PACKAGES
    }
    return [(package, drawn[package][turn]) for turn in range(count) for package in PACKAGES]


def _modules(package: str) -> Iterator[str]:
    spec = importlib.util.find_spec(f"partage.{package}")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = pkgutil.walk_packages(spec.submodule_search_locations, f"partage.{package}.")
    yield from (each.name for each in found if not each.ispkg)


class MutableCopy:
    """A copy of the working tree, for one mutant at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        shutil.copytree(
            _ROOT, directory, ignore=shutil.ignore_patterns(*_NOT_COPIED), dirs_exist_ok=True
        )

    def search(self, package: str, mutant: Mutant, worlds: Mapping[str, int]) -> SampledResult:
        """Search for a mutant with these numbers of worlds of each kind."""
        path = self._directory / "src" / f"{mutant.module.replace('.', '/')}.py"
        original = path.read_text()
        path.write_text(mutant.apply(original))
        try:
            return self._run_all(package, mutant.name, PACKAGES[package], worlds)
        finally:
            path.write_text(original)

    def check_unchanged(self, worlds: Mapping[str, int]) -> None:
        """Run all tests and worlds once.

        Raises:
            SearchError: one of them fails.
        """
        folders = list(dict.fromkeys(each for some in PACKAGES.values() for each in some))
        found = self._run_all("", "", folders, worlds)
        if found.is_found:
            raise SearchError(f"the unchanged code fails: {found}")

    def _run_all(
        self, package: str, name: str, folders: Sequence[str], worlds: Mapping[str, int]
    ) -> SampledResult:
        return SampledResult(
            package=package,
            mutant=name,
            tests=self._run_tests(folders),
            worlds={
                kind: found
                for kind, count in worlds.items()
                if (found := self._run_worlds(kind, count)) is not None
            },
        )

    def _run_tests(self, folders: Sequence[str]) -> str | None:
        command = [*("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", _TEST_MARKS)]
        command += [f"tests/{each}" for each in folders]
        status, output = self._run(command, self._directory, _TESTS_S)
        if status == 0:
            return None
        failed = [each for each in output.splitlines() if each.startswith(("FAILED", "ERROR"))]
        return failed[-1] if failed else f"exit status {status}"

    def _run_worlds(self, kind: str, count: int) -> str | None:
        command = ["-m", "lab.sampled_mutation", "--here", kind, f"--{kind}", str(count)]
        status, output = self._run(command, self._directory / "tests", _WORLD_CPU_S * count)
        if status:
            return f"exit status {status}"
        found: str | None = json.loads(output)
        return found

    def _run(self, command: Sequence[str], directory: Path, limit_s: float) -> tuple[int, str]:
        """Run Python with the copy; return the exit status and the output."""
        environment = {**os.environ, "PYTHONPATH": str(self._directory / "src")}
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            output = "ERROR it hangs"
        finally:
            _kill_group(process)
        return process.returncode, output


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process with all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def find_with_worlds(kind: str, count: int) -> str | None:
    """Run worlds in this process until one breaks a rule; return its seed and the rule."""
    run = _run_lab_world if kind == "lab" else partial(_run_shell_world, kind)
    for seed in range(count):
        rule = run(seed)
        if rule is not None:
            return f"{seed} {rule}"
    return None


def _run_lab_world(seed: int) -> str | None:
    from partage.lab.runner import draw_scenario, run_scenario

    options = dict(_WORLD_OPTIONS[seed % len(_WORLD_OPTIONS)])
    _, verdict = run_scenario(draw_scenario(seed, None, options))
    return verdict.rule


def _run_shell_world(kind: str, seed: int) -> str | None:
    from partage.testing.world_kind import WorldKind
    from partage.testing.world_swarm import run_shell_seed

    return run_shell_seed(seed, WorldKind(kind)).rule


def score_table(results: Sequence[SampledResult]) -> str:
    """Return a table in Markdown: how many mutants of each package are found by what."""
    lines = ["| package | changes | tests | simulator | both |", "|---|---|---|---|---|"]
    for package in sorted({each.package for each in results}):
        counts = _counts([each for each in results if each.package == package])
        lines.append(f"| `{package}` | {' | '.join(map(str, counts))} |")
    total, *found = _counts(results)
    shares = [f"{count} ({100 * count / total:.0f} %)" for count in found]
    return "\n".join([*lines, f"| **all** | {total} | {' | '.join(shares)} |"])


def _counts(results: Sequence[SampledResult]) -> tuple[int, int, int, int]:
    return (
        len(results),
        sum(each.tests is not None for each in results),
        sum(bool(each.worlds) for each in results),
        sum(each.is_found for each in results),
    )


def _search_all(
    options: argparse.Namespace, worlds: Mapping[str, int], results: list[SampledResult]
) -> None:
    """Search for the mutants without a result, and append each result to the file."""
    known = {(each.package, each.mutant) for each in results}
    wanted = [
        (package, mutant)
        for package, mutant in draw_mutants(options.count, options.seed)
        if (package, mutant.name) not in known
    ]
    with tempfile.TemporaryDirectory(prefix="partage-mutants-") as directory:
        copies: SimpleQueue[MutableCopy] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(MutableCopy(Path(directory) / str(number)))

        def search(package: str, mutant: Mutant) -> SampledResult:
            copy = copies.get()
            try:
                return copy.search(package, mutant, worlds)
            finally:
                copies.put(copy)

        if not results:  # the first run of this output
            copy = copies.get()
            copy.check_unchanged(worlds)
            copies.put(copy)
        with ThreadPoolExecutor(options.jobs) as pool, options.output.open("ab") as file:
            for found in pool.map(lambda each: search(*each), wanted):
                results.append(found)
                file.write(msgspec.json.encode(found) + b"\n")
                file.flush()
                print(found, flush=True)


def main() -> None:
    """Search for random mutants, and print the scores."""
    parser = argparse.ArgumentParser(description="Find random changes of the product.")
    parser.add_argument("--count", type=int, default=6, help="number of changes of each package")
    parser.add_argument("--seed", default="", help="seed of the draws, such as a commit")
    for kind, count in _WORLDS.items():
        text = f"worlds of the kind {kind} for each change"
        parser.add_argument(f"--{kind}", type=int, default=count, help=text)
    parser.add_argument("--tests-only", action="store_true", help="run no worlds")
    parser.add_argument("--jobs", type=int, default=2, help="number of changes at the same time")
    parser.add_argument(
        "--output", type=Path, default=Path("sampled_mutants.jsonl"), help="file of the results"
    )
    parser.add_argument("--here", choices=_WORLDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    worlds = {kind: getattr(options, kind) for kind in _WORLDS}
    if options.here:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, resource.RLIM_INFINITY))
        print(json.dumps(find_with_worlds(options.here, worlds[options.here])))
        return
    if options.tests_only:
        worlds = {}
    results = []
    if options.output.exists():
        lines = options.output.read_bytes().splitlines()
        results = [msgspec.json.decode(line, type=SampledResult) for line in lines]
    _search_all(options, worlds, results)
    print(score_table(results))


if __name__ == "__main__":
    main()
