"""Tests of ``partage lab diagram``."""

from __future__ import annotations

import json

import pytest
from click.testing import Result
from typer.testing import CliRunner

from partage.console.app import app


def draw(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lab", "diagram", *arguments])


def test_diagram_shows_messages_in_the_order_of_the_coordinator() -> None:
    lines = draw("two-phase-eager").stdout.splitlines()
    assert lines[0].split() == ["A", "coordinator", "B"]
    steps = [
        next(number for number, line in enumerate(lines) if text in line)
        for text in (
            "JoinGroup: MEMBER_ID_REQUIRED",
            "(stores generation 1)",
            "JoinGroup: leader, all metadata",
            "SyncGroup: all shares",
            "(stores shares)",
            "SyncGroup: own share",
            "(reads t-",
            "Heartbeat",
        )
    ]
    assert steps == sorted(steps)


def test_diagram_as_json_has_the_steps() -> None:
    output = draw("broker-side-closing", "--scenario", "join", "--json")
    diagram = json.loads(output.stdout)
    assert diagram["lanes"] == ["A", "coordinator", "B"]
    assert {"at_ms", "kind", "sender", "receiver", "label"} == diagram["steps"][0].keys()
    closes = [each for each in diagram["steps"] if each["kind"] == "close"]
    assert [(each["sender"], each["receiver"]) for each in closes] == [("coordinator", "A")]


@pytest.mark.parametrize("wrong", [("broker-sied",), ("broker-side", "--scenario", "lunch")])
def test_wrong_design_or_scenario_is_a_usage_error(wrong: tuple[str, ...]) -> None:
    assert draw(*wrong).exit_code == 2
