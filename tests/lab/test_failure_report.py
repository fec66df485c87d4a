"""Output of ``partage lab`` for failing worlds, with an installed mutant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from partage.lab.runner import draw_scenario

#: A mutant that one broker shows, and a seed that detects it with three; the previous seed does
#: not.
BUG, SEED = "a member delivers after its session expired", 5
BREAKS = f"seed {SEED} breaks invariant: "

pytestmark = pytest.mark.timeout(600)


class CommandOutput(NamedTuple):
    code: int
    lines: list[str]

    def after(self, words: str) -> str:
        """Return the rest of the only line that starts with these words."""
        (line,) = (line for line in self.lines if line.startswith(words))
        return line.removeprefix(words)

    @property
    def broken(self) -> str:
        """The rule, its description, and its location."""
        at = next(at for at, line in enumerate(self.lines) if line.startswith(BREAKS))
        return "\n".join(self.lines[at : at + 2])


def partage(words: str) -> CommandOutput:
    """Run a printed command with the mutant installed."""
    program, *args = words.split()
    assert program == "partage"
    done = planted(BUG, *args)
    assert "Traceback" not in done.stderr, done.stderr
    return CommandOutput(done.returncode, done.stdout.splitlines())


def planted(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.run_mutant", *args]
    here = Path(__file__).parents[1]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)


@pytest.fixture(scope="module")
def found() -> CommandOutput:
    """Return the output for two worlds, one of which breaks a rule."""
    return partage(f"partage lab run --seed-from {SEED - 1} --seeds 2 --jobs 1")


@pytest.fixture(scope="module")
def small(found: CommandOutput) -> CommandOutput:
    """Return the output of the printed shrink command."""
    return partage(found.after("  shrink: "))


def test_failure_prints_exit_code_and_commands(found: CommandOutput) -> None:
    assert found.code == 1
    assert any(line.endswith("; 1 broke a rule") for line in found.lines)
    assert found.after("  run again: ") == f"partage lab run --seed-from {SEED} --seeds 1"
    assert found.after("  trace: ") == f"partage lab trace {SEED}"
    assert found.after("  shrink: ") == f"partage lab shrink {SEED}"


def test_failure_prints_options_and_end_of_trace(found: CommandOutput) -> None:
    scenario = draw_scenario(SEED)
    assert scenario.options.brokers == 3
    shown = found.after(f"seed {SEED}: ").split(", ")
    kinds = ("kinds", "cluster_kinds", "transaction_kinds", "consumer_kinds", "migration_kinds")
    shown += [f"{name}=" + found.after(f"{name}=") for name in kinds]
    texts = dict(each.split("=") for each in shown)
    assert texts == scenario.option_texts()
    assert draw_scenario(SEED, None, texts).plan == scenario.plan
    trace = partage(found.after("  trace: ")).lines
    end = next(at for at, line in enumerate(trace) if line.startswith(BREAKS))
    assert found.lines[-25:] == trace[end - 25 : end]


def test_rerun_command_reproduces_failure(found: CommandOutput) -> None:
    again = partage(found.after("  run again: "))
    assert (again.code, again.broken) == (1, found.broken)
    for words in ("  run again: ", "  trace: ", "  shrink: "):
        assert again.after(words) == found.after(words)


@pytest.mark.slow
def test_shrunk_scenario_reproduces_failure(small: CommandOutput) -> None:
    assert small.code == 0
    assert any("m1 -> 1: JoinGroup" in line for line in small.lines[:5]), "it starts with the trace"
    steps = small.after("steps: ").split(", ")
    assert len(steps) < len(draw_scenario(SEED).plan) // 4
    command = small.after("  run again: ")
    assert " --set brokers=1 " in command
    again = partage(command)
    assert (again.code, again.broken) == (1, small.broken)
    assert again.after("  run again: ") == command


@pytest.mark.slow
def test_commands_include_keep_and_set(small: CommandOutput) -> None:
    given = small.after("  run again: ").partition(" --seeds 1 ")[2]
    again = partage(small.after("  run again: "))
    assert again.after("  trace: ") == f"partage lab trace {SEED} {given}"
    assert again.after("  shrink: ") == f"partage lab shrink {SEED} {given}"
    assert partage(again.after("  shrink: ")).after("  run again: ") == small.after("  run again: ")


def test_json_contains_failure(found: CommandOutput) -> None:
    printed = partage(found.after("  run again: ") + " --json")
    (failure,) = json.loads("\n".join(printed.lines))["failures"]
    assert (printed.code, failure["seed"], failure["rule"]) == (1, SEED, "invariant")
    assert f"{BREAKS}{failure['description']}" == found.broken
    assert failure["command"] == found.after("  run again: ")


@pytest.mark.slow
def test_mutant_applies_to_worker_processes() -> None:
    printed = partage(f"partage lab run --seed-from {SEED - 5} --seeds 20 --jobs 2 --json")
    failures = json.loads("\n".join(printed.lines))["failures"]
    assert (printed.code, SEED in [failure["seed"] for failure in failures]) == (1, True)


def test_unknown_mutant_is_rejected_with_list() -> None:
    wrong = planted("a zombie sleeps", "lab", "run")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("unknown mutant 'a zombie sleeps'; mutants are\n  ")
    assert f"\n  {BUG}\n" in wrong.stderr
    nothing = planted()
    assert (nothing.returncode, nothing.stderr[:32]) == (1, "usage: python -m lab.run_mutant ")
    spread = planted(BUG, "lab", "run", "--spark")
    assert spread.stderr.endswith("remove --spark\n")


def test_shrink_json_has_steps_history_and_rule(small: CommandOutput) -> None:
    again = small.after("  run again: ")
    shrink = again.replace("run --seed-from", "shrink").replace(" --seeds 1", "")
    ran = partage(f"{shrink} --json")
    assert ran.code == 0
    found = json.loads("\n".join(ran.lines))
    assert (found["seed"], found["command"]) == (SEED, again)
    assert small.broken.startswith(f"seed {SEED} breaks {found['rule']}: ")
    kept = [each for each in found["steps"] if each["kept"]]
    steps = [f"{each['kind']} at {each['at_ms'] / 1000:.3f}" for each in kept]
    assert small.after("steps: ") == ", ".join(steps)
    assert found["history"][-1]["text"] in small.lines[len(found["history"]) - 1]
