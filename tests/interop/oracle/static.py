"""Stories of static members."""

from __future__ import annotations

from collections.abc import Iterator

from interop.oracle import response_text
from interop.oracle.actors import Stage
from interop.oracle.registry import joined, story, synced
from interop.oracle.scenes import static


@story("a static member comes back to a stable group")
def _(stage: Stage) -> Iterator[str]:
    scene = static(stage)
    back = stage.actor("B2", instance_id="i-b")
    yield joined(stage, back, back.ask_to_join(""))
    yield f"as B: heartbeat {scene.follower.heartbeat()}, commit {scene.follower.commit()}"
    yield synced(stage, scene.follower, scene.follower.begin_to_sync())
    yield joined(stage, scene.follower, scene.follower.ask_to_join())
    yield f"as B: leave {scene.follower.leave()}"
    yield synced(stage, back, back.begin_to_sync())
    yield f"as B2: heartbeat {back.heartbeat()}, commit {back.commit()}"
    yield response_text.described(stage, stage.described())


@story("a static leader comes back to a stable group, and is asked to join again")
def _(stage: Stage) -> Iterator[str]:
    scene = static(stage)
    back = stage.actor("A2", instance_id="i-a")
    yield joined(stage, back, back.ask_to_join(""))
    yield synced(stage, back, back.begin_to_sync())
    yield f"B hears {scene.follower.heartbeat()}"
    again = back.ask_to_join()
    yield joined(stage, back, again)
    yield f"B hears {scene.follower.heartbeat()}"
    yield joined(stage, scene.follower, scene.follower.ask_to_join())
    yield joined(stage, back, again)


@story("a static member comes back, and the vote on the protocol would change")
def _(stage: Stage) -> Iterator[str]:
    both = (("range", b"1"), ("roundrobin", b"2"))
    first = stage.actor("A", instance_id="i-a", protocols=both)
    first.join()
    first.begin_to_sync({first.member_id: b"a"}).result()
    back = stage.actor("A2", instance_id="i-a", protocols=tuple(reversed(both)))
    yield joined(stage, back, back.ask_to_join(""))


@story("a static member comes back while its group rebalances")
def _(stage: Stage) -> Iterator[str]:
    scene = static(stage)
    third = scene.actor("C")
    third_joins = third.begin_to_join()
    stage.wait_for_state("PreparingRebalance/3")
    parked = scene.follower.ask_to_join()
    yield joined(stage, scene.follower, parked)
    back = stage.actor("B2", instance_id="i-b")
    pending = back.ask_to_join("")
    yield joined(stage, back, pending)
    yield joined(stage, scene.follower, parked)
    yield joined(stage, scene.leader, scene.leader.ask_to_join())
    yield joined(stage, back, pending)
    yield joined(stage, third, third_joins)


@story("a static member comes back while it waits for its assignment")
def _(stage: Stage) -> Iterator[str]:
    scene = static(stage)
    again = scene.leader.ask_to_join()
    stage.wait_for_state("PreparingRebalance/2")
    yield joined(stage, scene.follower, scene.follower.ask_to_join())
    yield joined(stage, scene.leader, again)
    waiting = scene.follower.begin_to_sync()
    yield synced(stage, scene.follower, waiting)
    back = stage.actor("B2", instance_id="i-b")
    yield joined(stage, back, back.ask_to_join(""))
    yield synced(stage, scene.follower, waiting)


@story("a static member that leaves by its id")
def _(stage: Stage) -> Iterator[str]:
    scene = static(stage)
    yield f"B leaves {scene.follower.leave()}, {stage.state()}"
    back = stage.actor("B2", instance_id="i-b")
    yield joined(stage, back, back.ask_to_join(""))
