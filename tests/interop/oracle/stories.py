"""Stories that wait for no timeout."""

from __future__ import annotations

from collections.abc import Iterator

from interop.oracle import response_text
from interop.oracle.actors import Actor, Protocols, Stage
from interop.oracle.connection import Pending
from interop.oracle.registry import Story, joined, story, synced, taken
from interop.oracle.scenes import Scene, completing, stable


@story("a group's life: join, sync, leave, join again, delete, join again")
def _(stage: Stage) -> Iterator[str]:
    actor = stage.actor("A")
    for _ in range(2):
        yield joined(stage, actor, actor.begin_to_join())
        yield synced(stage, actor, actor.begin_to_sync({actor.member_id: b"a"}))
        yield f"commit {actor.commit()}, leave {actor.leave()}, {stage.state()}"
    yield f"delete {stage.delete()}, {stage.state()}"
    yield joined(stage, actor, actor.begin_to_join())


@story("every version of JoinGroup, SyncGroup, Heartbeat and LeaveGroup")
def _(stage: Stage) -> Iterator[str]:
    for version in range(10):
        actor = stage.actor(f"A{version}")
        yield f"v{version} " + joined(stage, actor, actor.begin_to_join(version))
        pending = actor.begin_to_sync({actor.member_id: b"a"}, version=min(version, 5))
        yield f"v{version} " + synced(stage, actor, pending)
        beaten = actor.heartbeat(version=min(version, 4))
        yield f"v{version} heartbeat {beaten}, leave {actor.leave(min(version, 5))}"


@story("a third member joins a stable group")
def _(stage: Stage) -> Iterator[str]:
    scene = stable(stage)
    third = scene.actor("C")
    pending = third.begin_to_join()
    stage.wait_for_state("PreparingRebalance/3")
    yield f"A hears {scene.leader.heartbeat()}, B hears {scene.follower.heartbeat()}"
    yield f"A commits {scene.leader.commit()}"
    of_leader = scene.leader.ask_to_join()
    yield joined(stage, scene.leader, of_leader)
    of_follower = scene.follower.ask_to_join()
    yield joined(stage, scene.follower, of_follower)
    yield f"A: {taken(stage, scene.leader, of_leader)}"
    yield f"C: {taken(stage, third, pending)}"
    yield f"B commits {scene.follower.commit()}"
    waiting = [(each, each.begin_to_sync()) for each in (scene.follower, third)]
    for actor, asked in waiting:
        yield synced(stage, actor, asked)
    ids = {each.member_id: each.name.encode() for each in (scene.leader, scene.follower, third)}
    yield synced(stage, scene.leader, scene.leader.begin_to_sync(ids))
    for actor, asked in waiting:
        yield synced(stage, actor, asked)


@story("a new member while another waits for its assignment")
def _(stage: Stage) -> Iterator[str]:
    scene = completing(stage)
    waiting = scene.follower.begin_to_sync()
    yield synced(stage, scene.follower, waiting)
    third = scene.actor("C")
    pending = third.begin_to_join()
    yield joined(stage, third, pending)
    yield synced(stage, scene.follower, waiting)


@story("the leader leaves while a follower waits for its assignment")
def _(stage: Stage) -> Iterator[str]:
    scene = completing(stage)
    waiting = scene.follower.begin_to_sync()
    yield synced(stage, scene.follower, waiting)
    yield f"A leaves {scene.leader.leave()}"
    yield synced(stage, scene.follower, waiting)
    yield joined(stage, scene.follower, scene.follower.ask_to_join())


@story("the leader changes its metadata in a stable group")
def _(stage: Stage) -> Iterator[str]:
    scene = stable(stage)
    changed = stage.subscription(stage.topic, "another")
    scene.leader.protocols = (("range", changed),)
    pending = scene.leader.ask_to_join()
    yield joined(stage, scene.leader, pending)
    yield f"B hears {scene.follower.heartbeat()}"
    yield joined(stage, scene.follower, scene.follower.ask_to_join())
    yield f"A: {taken(stage, scene.leader, pending)}"


@story("a member asks twice to join")
def _(stage: Stage) -> Iterator[str]:
    scene = stable(stage)
    third = scene.actor("C")
    third.begin_to_join()
    stage.wait_for_state("PreparingRebalance/3")
    first = scene.follower.ask_to_join()
    yield joined(stage, scene.follower, first)
    again = stage.actor("B again")
    again.member_id = scene.follower.member_id
    second = again.ask_to_join()
    yield f"the second request: {joined(stage, scene.follower, second)}"
    yield f"the first request: {joined(stage, scene.follower, first)}"
    yield joined(stage, scene.leader, scene.leader.ask_to_join())
    yield f"the second request: {joined(stage, scene.follower, second)}"


@story("a member asks twice for its assignment")
def _(stage: Stage) -> Iterator[str]:
    scene = completing(stage)
    first = scene.follower.begin_to_sync()
    yield synced(stage, scene.follower, first)
    again = stage.actor("B again")
    again.member_id, again.generation = scene.follower.member_id, scene.follower.generation
    second = again.begin_to_sync()
    yield f"the second request: {synced(stage, scene.follower, second)}"
    yield f"the first request: {synced(stage, scene.follower, first)}"
    ids = {scene.follower.member_id: b"b"}
    yield synced(stage, scene.leader, scene.leader.begin_to_sync(ids))
    yield f"the second request: {synced(stage, scene.follower, second)}"


def votes(*supported: Protocols) -> Story:
    def play(stage: Stage) -> Iterator[str]:
        actors = [stage.actor(f"M{n}", protocols=names) for n, names in enumerate(supported)]
        first, *others = actors
        first.join()
        pendings = []
        for count, actor in enumerate(others, start=2):
            pendings.append((actor, actor.begin_to_join()))
            stage.wait_for_state(f"PreparingRebalance/{count}")
        pendings.insert(0, (first, first.ask_to_join()))
        for actor, pending in pendings:
            yield joined(stage, actor, pending)

    return play


def named(*names: str) -> Protocols:
    return tuple((name, b"") for name in names)


story("a vote on the protocol that the majority wins")(
    votes(named("x", "y"), named("y", "x"), named("y", "x"))
)
story("a vote in which what not all support does not count")(
    votes(named("x", "y"), named("z", "y", "x"), named("z", "y", "x"))
)
story("a tied vote")(votes(named("y", "x"), named("x", "y")))


@story("a protocol type that is not consumer")
def _(stage: Stage) -> Iterator[str]:
    actor = stage.actor("A", protocol_type="connect", protocols=(("v0", b"anything"),))
    yield joined(stage, actor, actor.begin_to_join())
    yield synced(stage, actor, actor.begin_to_sync({actor.member_id: b"a"}))
    yield response_text.described(stage, stage.described())
    yield f"commit {actor.commit()}"
    yield f"delete its offset: {stage.delete_offset()}"
    yield f"leave {actor.leave()}, delete its offset: {stage.delete_offset()}"


@story("offsets go with their group")
def _(stage: Stage) -> Iterator[str]:
    yield f"commit {response_text.commit(stage.commit(stage.admin))}, offset {stage.offset()}"
    again = response_text.commit(stage.commit(stage.admin, offset=3))
    yield f"again {again}, offset {stage.offset()}"
    yield f"delete the offset: {stage.delete_offset()}, offset {stage.offset()}, {stage.state()}"
    yield f"commit {response_text.commit(stage.commit(stage.admin))}, delete {stage.delete()}"
    yield f"offset {stage.offset()}, {stage.state()}, delete {stage.delete()}"


def crowd(stage: Stage) -> tuple[Scene, list[tuple[Actor, Pending]]]:
    """Six more ask to join a stable group of two: eight is the most that the tests allow."""
    scene = stable(stage)
    asked = []
    for count in range(3, 9):
        actor = stage.actor(f"M{count}")
        asked.append((actor, actor.begin_to_join()))
        stage.wait_for_state(f"PreparingRebalance/{count}")
    return scene, asked


@story("a group of the largest size")
def _(stage: Stage) -> Iterator[str]:
    scene, asked = crowd(stage)
    asked += [(each, each.ask_to_join()) for each in (scene.leader, scene.follower)]
    for actor, pending in asked:
        yield joined(stage, actor, pending)
    late, static_one = stage.actor("L"), stage.actor("S", instance_id="i-s")
    yield f"{stage.state()}: {joined(stage, late, late.ask_to_join(''))}"
    yield f"{stage.state()}: {joined(stage, late, late.ask_to_join('', version=3))}"
    yield f"{stage.state()}: {joined(stage, static_one, static_one.ask_to_join(''))}"
    yield joined(stage, scene.follower, scene.follower.ask_to_join())
    yield f"B leaves {scene.follower.leave()}"
    yield f"{stage.state()}: {joined(stage, static_one, static_one.ask_to_join(''))}"


@story("a group of the largest size that rebalances")
def _(stage: Stage) -> Iterator[str]:
    scene, asked = crowd(stage)
    late, static_one = stage.actor("L"), stage.actor("S", instance_id="i-s")
    yield joined(stage, late, late.ask_to_join(""))
    yield joined(stage, late, late.ask_to_join("", version=3))
    yield joined(stage, static_one, static_one.ask_to_join(""))
    yield joined(stage, scene.leader, scene.leader.ask_to_join())
    yield joined(stage, scene.follower, scene.follower.ask_to_join())
    for actor, pending in asked:
        yield joined(stage, actor, pending)
