"""The scenarios of ``scenarios/*.txt``; `scenario_runner` describes their format."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.coordinator.states import PREDECESSORS

from .harness import Edge
from .scenario_runner import ScenarioRunner

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
RULE = "----"


def played(text: str, story: ScenarioRunner) -> str:
    """Return the scenario's text with the actual results instead of the expected ones."""
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        said = lines[: lines.index(RULE)] if RULE in lines else lines
        commands = [line for line in said if not line.startswith("#")]
        happened = [line for command in commands for line in story.run(command)]
        blocks.append([*said, RULE, *(happened or ["nothing"])] if commands else said)
    story.finish()
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    happened = played(text, ScenarioRunner())
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(happened)
    else:
        assert happened == text


def test_scenarios_cover_every_transition() -> None:
    taken: set[Edge] = set()
    for path in SCENARIOS:
        story = ScenarioRunner()
        played(path.read_text(), story)
        taken |= story.harness.edges
    allowed = {(before, after) for after, befores in PREDECESSORS.items() for before in befores}
    assert taken == allowed
