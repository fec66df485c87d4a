"""The scenarios of ``scenarios/*.txt``; `scenario_runner` describes the format."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.member.states import ACTIVE_STATES, TRANSITION_CAUSES, MemberState
from scenario_text import replay

from .scenario_runner import Edge, ScenarioRunner

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def played(text: str, story: ScenarioRunner) -> str:
    """Return the scenario's text with the actual effects."""
    return replay(text, story.play)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    happened = played(text, ScenarioRunner())
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(happened)
    else:
        assert happened == text


#: Commands that lead to each of the active states.
JOINED = "member eager polled healthy\nsubscribe t\npoll\nfound\njoin\nsync t0\ntold"
WAYS_IN = {
    MemberState.UNJOINED: "member polled healthy\nsubscribe t\npoll",
    MemberState.PREPARING: f"{JOINED}\nrejoin for fun",
    MemberState.JOINING: f"{JOINED}\nrejoin for fun\ntold",
    MemberState.ASSIGNING: f"{JOINED}\nrejoin for fun\ntold\njoin leader=a",
    MemberState.SYNCING: f"{JOINED}\nrejoin for fun\ntold\njoin",
    MemberState.RECONCILING: f"{JOINED}\nrejoin for fun\ntold\njoin\nsync t0",
    MemberState.STABLE: JOINED,
}
#: A fatal error in each of them.
FINAL = {
    MemberState.UNJOINED: "not-found GROUP_AUTHORIZATION_FAILED",
    MemberState.JOINING: "join FENCED_INSTANCE_ID",
    MemberState.SYNCING: "sync FENCED_INSTANCE_ID",
}


def story_in(state: MemberState) -> ScenarioRunner:
    story = ScenarioRunner()
    for command in WAYS_IN[state].split("\n"):
        story.play(command)
    assert story.core.membership.state is state
    return story


def end_of_callbacks(story: ScenarioRunner) -> None:
    while story.core.open_callback is not None:
        story.play("told")


@pytest.mark.parametrize("state", WAYS_IN, ids=str)
def test_poll_timeout_in_every_active_state(state: MemberState) -> None:
    story = story_in(state)
    story.play("polled")
    said = story.play("tick 60000")
    assert story.core.membership.state is MemberState.STALE
    says_goodbye = any(line.startswith("LeaveGroup id=a") for line in said)
    assert says_goodbye == (state is not MemberState.UNJOINED)
    end_of_callbacks(story)
    assert not story.core.owned


@pytest.mark.parametrize("state", WAYS_IN, ids=str)
def test_leave_in_every_active_state(state: MemberState) -> None:
    story = story_in(state)
    story.play("leave")
    end_of_callbacks(story)
    if state is not MemberState.UNJOINED:
        assert story.core.membership.state is MemberState.LEAVING
        story.play("goodbye")
    assert story.core.membership.state is MemberState.UNSUBSCRIBED
    assert not story.core.owned
    assert not story.timers.armed


@pytest.mark.parametrize("state", WAYS_IN, ids=str)
def test_fatal_error_in_every_active_state(state: MemberState) -> None:
    story = story_in(state)
    if state in FINAL:
        story.play(FINAL[state])
    else:
        story.is_healthy = False
        story.play("tick 3000")
        story.play("beat FENCED_INSTANCE_ID")
    assert story.core.membership.state is MemberState.FATAL
    assert not story.core.deliverable
    end_of_callbacks(story)
    assert not story.core.owned
    assert not story.timers.armed
    story.play("subscribe t")
    assert story.core.membership.state in ACTIVE_STATES


def test_every_transition_is_covered() -> None:
    taken: set[Edge] = set()
    for path in SCENARIOS:
        story = ScenarioRunner()
        played(path.read_text(), story)
        taken |= story.edges
    ways_out = {MemberState.STALE, MemberState.PREPARE_LEAVING, MemberState.FATAL}
    assert taken <= TRANSITION_CAUSES.keys()
    assert {edge for edge in TRANSITION_CAUSES if edge[1] not in ways_out} <= taken
