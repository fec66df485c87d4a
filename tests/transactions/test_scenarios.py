"""The scenarios of ``scenarios/*.txt``; `scenario_runner` describes their format."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.transactions.states import PREDECESSORS
from scenario_text import replay

from .harness import Edge
from .scenario_runner import ScenarioRunner

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    actual = replay(text, ScenarioRunner().run)
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(actual)
    else:
        assert actual == text


def test_scenarios_cover_every_transition() -> None:
    taken: set[Edge] = set()
    for path in SCENARIOS:
        runner = ScenarioRunner()
        replay(path.read_text(), runner.run)
        taken |= runner.harness.edges
    allowed = {(before, after) for after, befores in PREDECESSORS.items() for before in befores}
    assert taken == allowed
