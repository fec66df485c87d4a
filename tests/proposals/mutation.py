"""Plant bugs in the machines of the proposals, and let checked worlds and properties find them.

cd tests && python -m proposals.mutation "a frozen group rebalances" --seeds 100

Each bug runs in a process that is forked before the modules of the proposals are imported, and
stops at the first broken rule. Scenarios and other tests do not run, so each number says what the
checkers find without knowing the bug. ``--random 100`` plants random changes of the sources too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence

from lab.mutant import Mutant
from lab.mutation import MutantFinder

from .independent_mutants import INDEPENDENT_MUTANTS
from .mutants import MUTANTS
from .random_mutants import random_mutants

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
#: The seed of the random bugs.
_RANDOM_SEED = 5
#: CPU seconds of one world or property; a machine that loops uses more.
_CPU_LIMIT_S = 120


def find(mutant: Mutant, seeds: int, examples: int) -> str:
    """Install a mutant, and return what finds it; an empty text if nothing does.

    Args:
        mutant: The mutant. Its module must not be imported yet.
        seeds: Worlds of each design.
        examples: Examples of each property.
    """
    assert mutant.module not in sys.modules, "the module is already imported"
    sys.meta_path.insert(0, MutantFinder(mutant))
    package = mutant.module.split(".")[2]
    worlds = importlib.import_module("partage.proposals.designs.worlds")
    for seed in range(seeds):
        for name in _DESIGNS[package]:
            signal.setitimer(signal.ITIMER_PROF, _CPU_LIMIT_S)
            try:
                rule = worlds.run_world(name, seed).rule
            except Exception as error:
                rule = type(error).__name__
            if rule is not None:
                return f"world {seed} of {name}: {rule}"
    if examples:
        from hypothesis import HealthCheck, Phase, settings
        from hypothesis.stateful import run_state_machine_as_test

        for path in _PROPERTIES[package]:
            module, _, name = path.partition(".")
            properties = importlib.import_module(f"proposals.{module}")
            signal.setitimer(signal.ITIMER_PROF, _CPU_LIMIT_S)
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
                return f"{name}: {type(error).__name__}"
    return ""


def find_in_fork(mutant: Mutant, seeds: int, examples: int) -> str:
    """Run `find` in a forked process. A world or property that loops counts as found."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        with open(os.devnull, "w") as nothing:
            sys.stdout = sys.stderr = nothing
            try:
                text = find(mutant, seeds, examples)
            except BaseException as error:
                text = f"import: {type(error).__name__}"
        os.write(write_end, text.encode()[:1_000])
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as result:
        text = result.read()
    _, status = os.waitpid(child, 0)
    return text or ("it loops" if status else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one mutant, or all of them, and print a table."""
    parser = argparse.ArgumentParser(description="Plant bugs in the machines of the proposals.")
    parser.add_argument("name", nargs="?", help="title of one mutant; default: all")
    parser.add_argument("--seeds", type=int, default=30, help="worlds of each design")
    parser.add_argument("--examples", type=int, default=150, help="examples of each property")
    parser.add_argument("--random", type=int, default=0, help="number of random bugs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    for name in _SHARED:
        importlib.import_module(name)
    groups = (
        ("chosen", MUTANTS),
        ("independent", INDEPENDENT_MUTANTS),
        ("random", random_mutants(options.random, _RANDOM_SEED)),
    )
    missed = 0
    for title, mutants in groups:
        found = 0
        for mutant in mutants:
            if options.name in (None, mutant.name):
                begin = time.monotonic()
                text = find_in_fork(mutant, options.seeds, options.examples)
                found += bool(text)
                line = [title, mutant.name, text or "not found"]
                shown = json.dumps(line) if options.json else f"| {' | '.join(line)} |"
                print(shown, f"{time.monotonic() - begin:.1f} s", flush=True)
        if options.name is None:
            print(f"{found} of {len(mutants)} {title} bugs found", flush=True)
            # Random changes are often equivalent, so they do not count.
            missed += len(mutants) - found if title != "random" else 0
    sys.exit(1 if missed > (len(MUTANTS) + len(INDEPENDENT_MUTANTS)) // 10 else 0)


if __name__ == "__main__":
    main()
