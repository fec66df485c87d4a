"""Stories that wait for session and rebalance timeouts.

All times are in proportion to the patience of the stage, which is longer on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from interop.oracle.actors import Stage
from interop.oracle.registry import joined, story, synced, taken
from interop.oracle.scenes import stable_alone


def short_ms(stage: Stage) -> int:
    """Return the minimum session timeout that brokers accept, or more if the stage is patient."""
    return int(6_000 * stage.patience_s)


@story("a session ends")
def _(stage: Stage) -> Iterator[str]:
    actor = stage.actor("A", session_timeout_ms=short_ms(stage))
    actor.join()
    actor.begin_to_sync({actor.member_id: b"a"}).result()
    time.sleep(short_ms(stage) / 1000 / 2)
    yield f"after half of it: {stage.state()}, heartbeat {actor.heartbeat()}"
    time.sleep(short_ms(stage) / 1000 * 0.75)
    yield f"three quarters later: {stage.state()}, commit {actor.commit()}"
    time.sleep(short_ms(stage) / 1000 * 0.75)
    yield f"three quarters later: {stage.state()}"
    stage.wait_for_state("Empty/0")
    yield f"then: {stage.state()}, heartbeat {actor.heartbeat()}"


@story("a session ends while its member's JoinGroup is parked")
def _(stage: Stage) -> Iterator[str]:
    scene = stable_alone(stage)
    actor = stage.actor("S", session_timeout_ms=short_ms(stage))
    pending = actor.begin_to_join()
    time.sleep(short_ms(stage) / 1000 + 2 * stage.patience_s)
    yield f"A hears {scene.leader.heartbeat()}"
    yield joined(stage, actor, pending)
    yield joined(stage, scene.leader, scene.leader.ask_to_join())
    yield joined(stage, actor, pending)


@story("the leader's session ends before it syncs")
def _(stage: Stage) -> Iterator[str]:
    leader = stage.actor("A", session_timeout_ms=short_ms(stage))
    leader.join()
    follower = stage.actor("B")
    pending = follower.begin_to_join()
    stage.wait_for_state("PreparingRebalance/2")
    leader.joined(leader.ask_to_join())
    follower.joined(pending)
    waiting = follower.begin_to_sync()
    yield synced(stage, follower, waiting)
    stage.wait_for_state("PreparingRebalance/1")
    yield synced(stage, follower, waiting)
    yield joined(stage, follower, follower.ask_to_join())


@story("an id that is given out and not used holds a rebalance up until its session ends")
def _(stage: Stage) -> Iterator[str]:
    scene = stable_alone(stage)
    undecided = stage.actor("U", session_timeout_ms=short_ms(stage))
    given = undecided.ask_to_join("").result()
    yield f"{stage.state()}, A hears {scene.leader.heartbeat()}"
    again = scene.leader.ask_to_join()
    yield joined(stage, scene.leader, again)
    yield f"A: {taken(stage, scene.leader, again)}"
    undecided.member_id = given.member_id
    yield f"U hears {undecided.heartbeat()}"
    yield joined(stage, undecided, undecided.ask_to_join())


@story("the rebalance timeout removes members that do not rejoin")
def _(stage: Stage) -> Iterator[str]:
    slow = stage.actor("A", rebalance_timeout_ms=int(4_000 * stage.patience_s))
    slow.join()
    slow.begin_to_sync({slow.member_id: b"a"}).result()
    other = stage.actor("B", rebalance_timeout_ms=int(2_000 * stage.patience_s))
    pending = other.begin_to_join()
    began = time.monotonic()
    yield joined(stage, other, pending)
    heard = slow.heartbeat()
    while stage.described().group_state == "PreparingRebalance":
        time.sleep(0.1)
    after = (time.monotonic() - began) / stage.patience_s
    yield f"A heard {heard}; over after the longer one of the two timeouts: {3 < after < 8}"
    yield joined(stage, other, pending)
    yield f"A hears {slow.heartbeat()}"


@story("the rebalance timeout keeps static members")
def _(stage: Stage) -> Iterator[str]:
    slow = stage.actor("A", instance_id="i-a", rebalance_timeout_ms=int(2_000 * stage.patience_s))
    slow.join()
    slow.begin_to_sync({slow.member_id: b"a"}).result()
    other = stage.actor("B", rebalance_timeout_ms=int(2_000 * stage.patience_s))
    pending = other.begin_to_join()
    yield joined(stage, other, pending)
    time.sleep(2.5 * stage.patience_s)
    yield joined(stage, other, pending)
    yield f"A hears {slow.heartbeat()}, then with the new generation:"
    slow.generation = other.generation
    yield f"{slow.heartbeat()}"


@story("a member that does not sync in time is removed")
def _(stage: Stage) -> Iterator[str]:
    actors = [
        stage.actor(name, rebalance_timeout_ms=int(3_000 * stage.patience_s)) for name in ("A", "B")
    ]
    leader, follower = actors
    leader.join()
    pending = follower.begin_to_join()
    stage.wait_for_state("PreparingRebalance/2")
    leader.joined(leader.ask_to_join())
    follower.joined(pending)
    ids = {leader.member_id: b"a", follower.member_id: b"b"}
    yield synced(stage, leader, leader.begin_to_sync(ids))
    yield f"{stage.state()}, B hears {follower.heartbeat()}"
    stage.wait_for_state("PreparingRebalance/1")
    yield f"A hears {leader.heartbeat()}, B hears {follower.heartbeat()}"
    yield joined(stage, leader, leader.ask_to_join())
