"""Registry of stories: sequences in which a response depends on earlier requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from interop.oracle import response_text
from interop.oracle.actors import Actor, Stage
from interop.oracle.connection import ConnectionClosedError, Pending

#: Yields a description of each step, one line each.
Story = Callable[[Stage], Iterator[str]]

STORIES: dict[str, Story] = {}


def story(name: str) -> Callable[[Story], Story]:
    """Register a function as a story."""

    def add(function: Story) -> Story:
        STORIES[name] = function
        return function

    return add


def tell(stage: Stage, name: str) -> str:
    """Run a story; return its lines and the final state of the group."""
    lines = []
    try:
        lines += STORIES[name](stage)
    except ConnectionClosedError:
        lines.append("the connection is closed")
    return "\n".join([*lines, f"at the end: {stage.state()}"])


def joined(stage: Stage, actor: Actor, pending: Pending) -> str:
    """Describe a JoinGroup response; store its member id and generation on success."""
    if stage.parked(pending):
        return f"{actor.name} is parked"
    return f"{actor.name}: {taken(stage, actor, pending)}"


def taken(stage: Stage, actor: Actor, pending: Pending) -> str:
    answer = pending.result()
    if answer.error_code == 0:
        stage.names.setdefault(answer.member_id, actor.name)
        actor.member_id, actor.generation = answer.member_id, answer.generation_id
    return response_text.join(stage, answer)


def synced(stage: Stage, actor: Actor, pending: Pending) -> str:
    if stage.parked(pending):
        return f"{actor.name} is parked"
    return f"{actor.name}: {response_text.sync(pending.result())}"
