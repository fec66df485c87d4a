"""The scenarios of ``scenarios/*.txt``; `story` says how to read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.member.states import CAUSES, INSIDE, MemberState

from .story import Edge, Story

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
RULE = "----"


def played(text: str, story: Story) -> str:
    """The scenario's text with what happens in place of what it says."""
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        said = [line for line in lines if not line.startswith("    ")]
        shown = []
        for line in said:
            shown.append(line)
            if not line.startswith("#"):
                shown += [f"    {happened}" for happened in story.play(line)]
        blocks.append("\n".join(shown))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    happened = played(text, Story())
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(happened)
    else:
        assert happened == text


#: How to come into each of the states in which a member wants to be in the group.
JOINED = "member eager polled healthy\nsubscribe t\npoll\nfound\njoin\nsync t0\ntold"
WAYS_IN = {
    MemberState.WAITING: "member polled healthy\nsubscribe t\npoll",
    MemberState.PREPARING: f"{JOINED}\nrejoin for fun",
    MemberState.JOINING: f"{JOINED}\nrejoin for fun\ntold",
    MemberState.ASSIGNING: f"{JOINED}\nrejoin for fun\ntold\njoin leader=a",
    MemberState.SYNCING: f"{JOINED}\nrejoin for fun\ntold\njoin",
    MemberState.ADOPTING: f"{JOINED}\nrejoin for fun\ntold\njoin\nsync t0",
    MemberState.STABLE: JOINED,
}
#: What is final there.
FINAL = {
    MemberState.WAITING: "not-found GROUP_AUTHORIZATION_FAILED",
    MemberState.JOINING: "join FENCED_INSTANCE_ID",
    MemberState.SYNCING: "sync FENCED_INSTANCE_ID",
}


def story_in(state: MemberState) -> Story:
    story = Story()
    for command in WAYS_IN[state].split("\n"):
        story.play(command)
    assert story.core.membership.state is state
    return story


def end_of_callbacks(story: Story) -> None:
    while story.core.told is not None:
        story.play("told")


@pytest.mark.parametrize("state", WAYS_IN, ids=str)
def test_nobody_polls(state: MemberState) -> None:
    story = story_in(state)
    story.play("polled")
    said = story.play("tick 60000")
    assert story.core.membership.state is MemberState.DORMANT
    says_goodbye = any(line.startswith("LeaveGroup id=a") for line in said)
    assert says_goodbye == (state is not MemberState.WAITING)
    end_of_callbacks(story)
    assert not story.core.owned


@pytest.mark.parametrize("state", WAYS_IN, ids=str)
def test_leaving(state: MemberState) -> None:
    story = story_in(state)
    story.play("leave")
    end_of_callbacks(story)
    if state is not MemberState.WAITING:
        assert story.core.membership.state is MemberState.LEAVING
        story.play("goodbye")
    assert story.core.membership.state is MemberState.OUT
    assert not story.core.owned
    assert not story.timers.armed


@pytest.mark.parametrize("state", WAYS_IN, ids=str)
def test_an_error_that_is_final(state: MemberState) -> None:
    story = story_in(state)
    if state in FINAL:
        story.play(FINAL[state])
    else:
        story.is_healthy = False
        story.play("tick 3000")
        story.play("beat FENCED_INSTANCE_ID")
    assert story.core.membership.state is MemberState.FAILED
    assert not story.core.deliverable
    end_of_callbacks(story)
    assert not story.core.owned
    assert not story.timers.armed
    story.play("subscribe t")
    assert story.core.membership.state in INSIDE


def test_every_transition_is_told_of() -> None:
    taken: set[Edge] = set()
    for path in SCENARIOS:
        story = Story()
        played(path.read_text(), story)
        taken |= story.edges
    ways_out = {MemberState.DORMANT, MemberState.RELEASING, MemberState.FAILED}
    assert taken <= CAUSES.keys()
    assert {edge for edge in CAUSES if edge[1] not in ways_out} <= taken
