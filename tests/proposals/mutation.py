"""Plant bugs in the machines of the proposals, and let checked worlds and properties find them.

cd tests && python -m proposals.mutation "a frozen group rebalances" --seeds 100

Each bug runs in a process that is forked before the modules of the proposals are imported, and
stops at the first broken rule. Scenarios and other tests do not run, so each number says what the
checkers find without knowing the bug. Without a name, the command checks that the bugs that
`mutants.json` records as found are still found. ``--random 100`` plants random changes of the
sources instead.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lab.mutant import Mutant
from lab.mutant_records import (
    MutantRecord,
    MutantSearchError,
    RunOptions,
    read_records,
    run_mutants,
    totals_table,
)
from lab.mutation import MutantFinder, add_run_options
from lab.random_mutants import random_mutants

from .independent_mutants import INDEPENDENT_MUTANTS
from .mutants import MUTANTS

#: Modules that all bugs share; they are imported before the processes are forked.
_SHARED = (
    "hypothesis.stateful",
    "partage.assignors",
    "partage.bridge",
    "partage.coordinator.shard",
    "partage.lab.environment.clock",
    "partage.member.ownership",
    "partage.proposals.machine",
    "partage.wire.apis.offset_commit",
)
#: The worlds and properties that run a package.
_DESIGNS = {
    "broker_side": ("broker-side", "broker-side-closing"),
    "join_group": ("multi-assignor", "single-assignor"),
    "consumer_protocol": ("consumer-protocol",),
    "multi_assignor": ("multi-assignor", "multi-assignor-hashes"),
    "product": ("two-phase-cooperative", "consumer-protocol"),
    "single_assignor": ("single-assignor",),
    "two_phase": ("two-phase-cooperative", "two-phase-resync", "two-phase-largest-count"),
}
_MULTI = (
    "coordinator_properties.MultiAssignorMachine",
    "multi_member_properties.MultiMemberMachine",
)
_SINGLE = ("coordinator_properties.SingleAssignorMachine", "member_properties.SingleMemberMachine")
_PROPERTIES: dict[str, tuple[str, ...]] = {
    "broker_side": (
        "push_properties.PushMachine",
        "consumer_properties.PushConsumerMachine",
        "elector_properties.ElectorMachine",
    ),
    "join_group": (*_SINGLE, *_MULTI),
    "multi_assignor": _MULTI,
    "single_assignor": _SINGLE,
    "consumer_protocol": (),
    "product": (),
    "two_phase": (
        "two_phase_properties.EagerMachine",
        "two_phase_properties.ResyncMachine",
        "two_phase_properties.LargestCountMachine",
    ),
}
#: The modules of the machines, without checkers, messages, settings and tables, for random bugs.
MACHINE_MODULES: Final = tuple(
    f"partage.proposals.{name}"
    for name in (
        "broker_side.consumer",
        "broker_side.coordinator",
        "broker_side.elector",
        "broker_side.handlers",
        "broker_side.purgatory",
        "broker_side.rebalance",
        "broker_side.registry",
        "broker_side.scheduler",
        "consumer_protocol.member",
        "join_group.coordinator",
        "join_group.group",
        "join_group.member",
        "multi_assignor.computation",
        "multi_assignor.coordinator",
        "multi_assignor.member",
        "multi_assignor.metadata",
        "product.coordinator",
        "product.member",
        "single_assignor.coordinator",
        "single_assignor.member",
        "two_phase.member",
        "two_phase.reported_counts",
        "two_phase.resync",
    )
)
#: The seed of the random bugs.
_RANDOM_SEED = 5
#: CPU seconds of one world, and of a property for each example; a machine that loops uses more.
_WORLD_CPU_S = 20
_EXAMPLE_CPU_S = 0.4
#: A property that no longer finds a mutant is tried with this many times more examples, because its
#: examples change with its source code.
_MORE_EXAMPLES = 4
#: All mutants by the title of their list.
MUTANT_LISTS: Final = {"chosen": MUTANTS, "independent": INDEPENDENT_MUTANTS}
#: The records of all mutants.
RECORDS_PATH = Path(__file__).with_name("mutants.json")
#: The rule of a world or property that does not end.
_LOOPS = "it loops"


class Attempt(msgspec.Struct, frozen=True):
    """A world or property that may find a mutant.

    Attributes:
        finder: The name of a design, or the path of a property in this package.
        seed: The seed of the world; None for a property.
        examples: The number of examples of the property; None for a world.
    """

    finder: str
    seed: int | None = None
    examples: int | None = None


def attempts(package: str, seeds: int, examples: int) -> Iterator[Attempt]:
    """Yield all attempts to find a mutant of a package: first the worlds, then the properties."""
    for seed in range(seeds):
        for name in _DESIGNS[package]:
            yield Attempt(name, seed)
    if examples:
        for path in _PROPERTIES[package]:
            yield Attempt(path, examples=examples)


def run_attempt(attempt: Attempt) -> str | None:
    """Run a world or a property, and return the rule that it breaks; None if none."""
    examples = attempt.examples or 0
    signal.setitimer(signal.ITIMER_PROF, max(_WORLD_CPU_S, _EXAMPLE_CPU_S * examples))
    if attempt.examples is not None:
        return _run_property(attempt.finder, attempt.examples)
    assert attempt.seed is not None
    try:
        worlds = importlib.import_module("partage.proposals.designs.worlds")
        rule: str | None = worlds.run_world(attempt.finder, attempt.seed).rule
    except Exception as error:
        return type(error).__name__
    return rule


def _run_property(path: str, examples: int) -> str | None:
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    module, _, name = path.partition(".")
    properties = importlib.import_module(f"proposals.{module}")
    try:
        run_state_machine_as_test(
            getattr(properties, name),
            settings=settings(
                max_examples=examples,
                stateful_step_count=30,
                deadline=None,
                derandomize=True,
                database=None,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
                print_blob=False,
            ),
        )
    except BaseException as error:
        return type(error).__name__
    return None


def find_in_fork(mutant: Mutant | None, planned: Sequence[Attempt]) -> tuple[Attempt, str] | None:
    """Run attempts in a forked process until one breaks a rule.

    Args:
        mutant: The mutant, whose module must not be imported yet; None for the correct code.
        planned: The attempts.

    Returns:
        The attempt and its rule, or None. An attempt that loops counts as one that breaks a rule.

    Raises:
        MutantSearchError: The process ended without a result.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        with open(os.devnull, "w") as nothing:
            sys.stdout = sys.stderr = nothing
            try:
                _report_attempts(mutant, planned, write_end)
            finally:
                os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end) as results:
        # A line with the number of each attempt before it, and one with the result.
        lines = results.read().splitlines()
    _, status = os.waitpid(child, 0)
    last = lines[-1] if lines else "nothing"
    if last == "end":
        return None
    number, _, rule = last.partition(" ")
    if not number.isdigit():
        raise MutantSearchError(f"the process ended with status {status}: {last}")
    if not rule and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        rule = _LOOPS
    if not rule:
        raise MutantSearchError(f"attempt {planned[int(number)]} ended with status {status}")
    return planned[int(number)], rule


def _report_attempts(mutant: Mutant | None, planned: Sequence[Attempt], pipe: int) -> None:
    if mutant is not None:
        assert mutant.module not in sys.modules, "the module is already imported"
        sys.meta_path.insert(0, MutantFinder(mutant))
    for number, attempt in enumerate(planned):
        os.write(pipe, f"{number}\n".encode())
        rule = run_attempt(attempt)
        if rule is not None:
            os.write(pipe, f"{number} {rule}\n".encode())
            os._exit(0)
    os.write(pipe, b"end\n")
    os._exit(0)


class DesignSearch:
    """Searches for mutants of the designs. The correct code runs each attempt that finds one, too.

    Args:
        seeds: Worlds of each design.
        examples: Examples of each property.
    """

    def __init__(self, seeds: int, examples: int) -> None:
        self._seeds = seeds
        self._examples = examples
        self._correct: dict[Attempt, str | None] = {}

    def find(self, mutant: Mutant, record: MutantRecord) -> MutantRecord:
        """Search for a mutant, first with the world or property of its record.

        Raises:
            MutantSearchError: The process failed, or the correct code breaks the rule, too.
        """
        package = mutant.module.split(".")[2]
        planned = list(attempts(package, self._seeds, self._examples))
        if record.is_found:
            recorded = Attempt(record.finder, record.seed, record.examples)
            planned.insert(0, recorded)
            if recorded.examples is not None:
                more = _MORE_EXAMPLES * self._examples
                planned.append(Attempt(recorded.finder, examples=more))
        found = find_in_fork(mutant, planned)
        if found is None:
            return MutantRecord(not_found_in=self._seeds)
        attempt, rule = found
        if attempt not in self._correct:
            broken = find_in_fork(None, [attempt])
            self._correct[attempt] = broken[1] if broken else None
        correct = self._correct[attempt]
        if correct is not None:
            raise MutantSearchError(
                f"{attempt} breaks the rule {correct} without the bug: correct this first"
            )
        return MutantRecord(
            finder=attempt.finder, seed=attempt.seed, examples=attempt.examples, rule=rule
        )


def _run_one(mutant: Mutant, search: DesignSearch) -> bool:
    begin = time.monotonic()
    try:
        result = search.find(mutant, MutantRecord())
        text = result.describe()
    except MutantSearchError as error:
        result, text = MutantRecord(), str(error)
    print(f"| {mutant.name} | {text} | {time.monotonic() - begin:.1f} s", flush=True)
    return result.is_found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one mutant or random ones, or check those that are recorded."""
    parser = argparse.ArgumentParser(description="Plant bugs in the machines of the proposals.")
    parser.add_argument("name", nargs="?", help="title of one mutant; default: the recorded ones")
    parser.add_argument("--seeds", type=int, default=30, help="worlds of each design")
    parser.add_argument("--examples", type=int, default=150, help="examples of each property")
    parser.add_argument("--random", type=int, default=0, help="number of random bugs")
    add_run_options(parser)
    options = parser.parse_args(arguments)
    if options.totals:
        print(totals_table(MUTANT_LISTS, read_records(RECORDS_PATH)))
        return
    for name in _SHARED:
        importlib.import_module(name)
    search = DesignSearch(options.seeds, options.examples)
    if options.name or options.random:
        mutants = [
            mutant for mutant in (*MUTANTS, *INDEPENDENT_MUTANTS) if mutant.name == options.name
        ]
        mutants += random_mutants(MACHINE_MODULES, options.random, _RANDOM_SEED)
        # Random changes are often equivalent, so a missed one is no failure.
        found = sum(_run_one(mutant, search) for mutant in mutants)
        print(f"{found} of {len(mutants)} found")
        return
    sys.exit(
        run_mutants(
            MUTANT_LISTS,
            RECORDS_PATH,
            search.find,
            RunOptions(missed=options.missed, unmeasured=options.unmeasured, write=options.write),
        )
    )


if __name__ == "__main__":
    main()
