"""Groups in each state, created by requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interop.oracle.actors import Actor, Stage


@dataclass
class Scene:
    """A group and two clients that are, were, or never were its members."""

    stage: Stage
    leader: Actor
    follower: Actor

    def actor(self, name: str = "N", **settings: object) -> Actor:
        """Return another client."""
        return self.stage.actor(name, **settings)


def missing(stage: Stage) -> Scene:
    """Return a group that does not exist."""
    return Scene(stage, stage.actor("A"), stage.actor("B"))


def only_offsets(stage: Stage) -> Scene:
    """Empty: it has only offsets, committed by a client outside the group."""
    stage.commit(stage.admin)
    return missing(stage)


def left(stage: Stage) -> Scene:
    """Empty: the only member has left, after a commit."""
    scene = stable_alone(stage)
    assert scene.leader.leave() == "NONE"
    stage.wait_for_state("Empty/0")
    return scene


def stable_alone(stage: Stage) -> Scene:
    """Stable: the leader is the only member, generation 1, offset 5 committed."""
    scene = missing(stage)
    scene.leader.join()
    scene.leader.begin_to_sync({scene.leader.member_id: b"for A"}).result()
    assert scene.leader.commit() == "NONE"
    return scene


def completing(stage: Stage) -> Scene:
    """CompletingRebalance: two members have joined generation 2, neither has synced."""
    scene = stable_alone(stage)
    second = scene.follower.begin_to_join()
    stage.wait_for_state("PreparingRebalance/2")
    scene.leader.joined(scene.leader.ask_to_join())
    scene.follower.joined(second)
    return scene


def stable(stage: Stage) -> Scene:
    """Stable: two members in generation 2."""
    scene = completing(stage)
    ids = {scene.leader.member_id: b"for A", scene.follower.member_id: b"for B"}
    scene.leader.begin_to_sync(ids).result()
    scene.follower.begin_to_sync().result()
    return scene


def preparing(stage: Stage) -> Scene:
    """PreparingRebalance: a third client wants to join, the two members have not rejoined yet."""
    scene = stable(stage)
    scene.actor("C").begin_to_join()
    stage.wait_for_state("PreparingRebalance/3")
    return scene


def static(stage: Stage) -> Scene:
    """Stable: two static members in generation 2."""
    scene = Scene(stage, stage.actor("A", instance_id="i-a"), stage.actor("B", instance_id="i-b"))
    scene.leader.join()
    second = scene.follower.begin_to_join()
    stage.wait_for_state("PreparingRebalance/2")
    scene.leader.joined(scene.leader.ask_to_join())
    scene.follower.joined(second)
    ids = {scene.leader.member_id: b"for A", scene.follower.member_id: b"for B"}
    scene.leader.begin_to_sync(ids).result()
    scene.follower.begin_to_sync().result()
    return scene


def nameless(stage: Stage) -> Scene:
    """A group with an empty id."""
    stage.group = ""
    return missing(stage)


SCENES: dict[str, Callable[[Stage], Scene]] = {
    "missing": missing,
    "Empty, only offsets": only_offsets,
    "Empty, members left": left,
    "PreparingRebalance": preparing,
    "CompletingRebalance": completing,
    "Stable": stable,
    "Stable, static": static,
    "empty group id": nameless,
}

EVERY_STATE = tuple(SCENES)[:6]
STATIC = ("Stable, static",)
NAMELESS = ("empty group id",)
