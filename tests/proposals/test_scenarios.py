"""The scenarios of ``scenarios/*/*.txt``; `scenario_runner` describes their format."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenario_text import replay

from .member_scenario_runner import MemberScenarioRunner
from .scenario_runner import ConsumerRunner, JoinGroupRunner, PushRunner, ScenarioRunner
from .two_phase_scenario_runner import TwoPhaseScenarioRunner

RUNNERS: dict[str, type[ScenarioRunner | MemberScenarioRunner]] = {
    "join_group": JoinGroupRunner,
    "members": MemberScenarioRunner,
    "two_phase": TwoPhaseScenarioRunner,
    "broker_side": PushRunner,
    "consumer": ConsumerRunner,
}
SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*/*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    happened = replay(text, RUNNERS[path.parent.name]().run)
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(happened)
    else:
        assert happened == text
