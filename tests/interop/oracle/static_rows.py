"""Rows: static members, and groups without an id."""

from __future__ import annotations

from interop.oracle.membership import joining, leaving, syncing
from interop.oracle.rows import row
from interop.oracle.scenes import NAMELESS, STATIC, Scene


@row("JoinGroup v9, leader's instance, no id", STATIC)
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(instance_id="i-a"), "")


@row("JoinGroup v8, leader's instance, no id", STATIC)
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(instance_id="i-a"), "", version=8)


@row("JoinGroup v5, leader's instance, no id", STATIC)
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(instance_id="i-a"), "", version=5)


@row("JoinGroup v9, follower's instance, no id", STATIC)
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(instance_id="i-b"), "")


@row("JoinGroup v9, follower's instance, no id, other metadata", STATIC)
def _(scene: Scene) -> str:
    changed = (("range", scene.stage.subscription(scene.stage.topic, note=b"!")),)
    return joining(scene, scene.actor(instance_id="i-b", protocols=changed), "")


@row("JoinGroup v9, follower's instance, no id, one more protocol first", STATIC)
def _(scene: Scene) -> str:
    more = (("roundrobin", b""), *scene.stage.range)
    return joining(scene, scene.actor(instance_id="i-b", protocols=more), "")


@row("JoinGroup, follower's instance, id never given out", STATIC)
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(instance_id="i-b"))


@row("JoinGroup, follower's instance, leader's id", STATIC)
def _(scene: Scene) -> str:
    scene.leader.instance_id = "i-b"
    return joining(scene, scene.leader)


@row("JoinGroup, static follower, unchanged", STATIC)
def _(scene: Scene) -> str:
    return joining(scene, scene.follower)


@row("JoinGroup, static leader, unchanged", STATIC)
def _(scene: Scene) -> str:
    return joining(scene, scene.leader)


@row("JoinGroup, follower's id, no instance", STATIC)
def _(scene: Scene) -> str:
    scene.follower.instance_id = None
    return joining(scene, scene.follower)


@row("SyncGroup, follower's instance, leader's id", STATIC)
def _(scene: Scene) -> str:
    scene.leader.instance_id = "i-b"
    return syncing(scene, scene.leader)


@row("SyncGroup, follower's id, no instance", STATIC)
def _(scene: Scene) -> str:
    scene.follower.instance_id = None
    return syncing(scene, scene.follower)


@row("SyncGroup, follower's id, unknown instance", STATIC)
def _(scene: Scene) -> str:
    scene.follower.instance_id = "i-n"
    return syncing(scene, scene.follower)


@row("Heartbeat, follower's instance, leader's id", STATIC)
def _(scene: Scene) -> str:
    return scene.leader.heartbeat(instance_id="i-b")


@row("Heartbeat, follower's instance, id never given out", STATIC)
def _(scene: Scene) -> str:
    return scene.actor(instance_id="i-b").heartbeat()


@row("Heartbeat, follower's instance, leader's id, generation before", STATIC)
def _(scene: Scene) -> str:
    return scene.leader.heartbeat(instance_id="i-b", generation=scene.leader.generation - 1)


@row("LeaveGroup, follower's instance, no id", STATIC)
def _(scene: Scene) -> str:
    return leaving(scene, ("", "i-b"))


@row("LeaveGroup, follower's instance, leader's id", STATIC)
def _(scene: Scene) -> str:
    return leaving(scene, (scene.leader.member_id, "i-b"))


@row("LeaveGroup, static follower's id, no instance", STATIC)
def _(scene: Scene) -> str:
    return leaving(scene, (scene.follower.member_id, None))


@row("LeaveGroup, both instances and an unknown one", STATIC)
def _(scene: Scene) -> str:
    return leaving(scene, ("", "i-a"), ("", "i-b"), ("", "i-n"))


# No group id


@row("JoinGroup, no id", NAMELESS)
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(), "")


@row("SyncGroup", NAMELESS)
def _(scene: Scene) -> str:
    return syncing(scene, scene.actor())


@row("Heartbeat", NAMELESS)
def _(scene: Scene) -> str:
    return scene.actor().heartbeat()


@row("LeaveGroup", NAMELESS)
def _(scene: Scene) -> str:
    return leaving(scene, (scene.actor().member_id, None))


@row("LeaveGroup v2", NAMELESS)
def _(scene: Scene) -> str:
    return scene.actor().leave(version=2)
