"""Rows: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from typing import Any

from interop.oracle import response_text
from interop.oracle.actors import Actor, error_name
from interop.oracle.rows import outcome, row
from interop.oracle.scenes import Scene
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest


def joining(scene: Scene, actor: Actor, member_id: str | None = None, version: int = 9) -> str:
    pending = actor.ask_to_join(member_id, version)
    return outcome(scene, pending, lambda answer: response_text.join(scene.stage, answer))


@row("JoinGroup v9, no id")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(), "")


@row("JoinGroup v3, no id")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(), "", version=3)


@row("JoinGroup, no id, static")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(instance_id="i-n"), "")


@row("JoinGroup, id just given out")
def _(scene: Scene) -> str:
    actor = scene.actor()
    return outcome(
        scene, actor.begin_to_join(), lambda answer: response_text.join(scene.stage, answer)
    )


@row("JoinGroup, id never given out")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor())


@row("JoinGroup, id never given out, static")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(instance_id="i-n"))


@row("JoinGroup, leader, unchanged")
def _(scene: Scene) -> str:
    return joining(scene, scene.leader)


@row("JoinGroup, follower, unchanged")
def _(scene: Scene) -> str:
    return joining(scene, scene.follower)


@row("JoinGroup v3, follower, unchanged")
def _(scene: Scene) -> str:
    return joining(scene, scene.follower, version=3)


@row("JoinGroup, follower, other metadata")
def _(scene: Scene) -> str:
    scene.follower.protocols = (("range", scene.stage.subscription(scene.stage.topic, note=b"!")),)
    return joining(scene, scene.follower)


@row("JoinGroup, follower, one more protocol")
def _(scene: Scene) -> str:
    scene.follower.protocols += (("roundrobin", scene.stage.range[0][1]),)
    return joining(scene, scene.follower)


@row("JoinGroup, follower, no protocol in common")
def _(scene: Scene) -> str:
    scene.follower.protocols = (("roundrobin", scene.stage.range[0][1]),)
    return joining(scene, scene.follower)


@row("JoinGroup, no id, no protocol in common")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(protocols=(("roundrobin", b""),)), "")


@row("JoinGroup, no id, another protocol type")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(protocol_type="connect"), "")


@row("JoinGroup, no id, session of 5999 ms")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(session_timeout_ms=5_999), "")


@row("JoinGroup, no id, session of 1800001 ms")
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(session_timeout_ms=1_800_001), "")


@row("JoinGroup, no id, no protocols", unsettled=("missing",))
def _(scene: Scene) -> str:
    actor = scene.actor()
    actor.protocols = ()
    return joining(scene, actor, "")


@row("JoinGroup, no id, empty protocol type", unsettled=("missing",))
def _(scene: Scene) -> str:
    return joining(scene, scene.actor(protocol_type=""), "")


# SyncGroup


def syncing(scene: Scene, actor: Actor, *args: Any, **settings: Any) -> str:
    return outcome(scene, actor.begin_to_sync(*args, **settings), response_text.sync)


def assignments_of_all(scene: Scene) -> dict[str, bytes]:
    return {scene.leader.member_id: b"new A", scene.follower.member_id: b"new B"}


@row("SyncGroup, leader with assignments")
def _(scene: Scene) -> str:
    return syncing(scene, scene.leader, assignments_of_all(scene))


@row("SyncGroup, leader without assignments")
def _(scene: Scene) -> str:
    return syncing(scene, scene.leader)


@row("SyncGroup, leader leaves out a member and adds a stranger")
def _(scene: Scene) -> str:
    pending = scene.leader.begin_to_sync({scene.leader.member_id: b"x", "stranger": b"y"})
    said = outcome(scene, pending, response_text.sync)
    return f"{said}; follower: {syncing(scene, scene.follower)}"


@row("SyncGroup, follower")
def _(scene: Scene) -> str:
    return syncing(scene, scene.follower)


@row("SyncGroup v0, follower")
def _(scene: Scene) -> str:
    return syncing(scene, scene.follower, version=0)


@row("SyncGroup, follower with assignments")
def _(scene: Scene) -> str:
    return syncing(scene, scene.follower, assignments_of_all(scene))


@row("SyncGroup, id never given out")
def _(scene: Scene) -> str:
    return syncing(scene, scene.actor())


@row("SyncGroup, follower, generation before")
def _(scene: Scene) -> str:
    return syncing(scene, scene.follower, generation=scene.follower.generation - 1)


@row("SyncGroup, follower, generation after")
def _(scene: Scene) -> str:
    return syncing(scene, scene.follower, generation=scene.follower.generation + 1)


@row("SyncGroup, follower, another protocol type")
def _(scene: Scene) -> str:
    return syncing(scene, scene.follower, protocol_type="connect")


@row("SyncGroup, follower, another protocol")
def _(scene: Scene) -> str:
    return syncing(scene, scene.follower, protocol_name="roundrobin")


# Heartbeat


@row("Heartbeat, leader")
def _(scene: Scene) -> str:
    return scene.leader.heartbeat()


@row("Heartbeat v0, follower")
def _(scene: Scene) -> str:
    return scene.follower.heartbeat(version=0)


@row("Heartbeat, id never given out")
def _(scene: Scene) -> str:
    return scene.actor().heartbeat()


@row("Heartbeat, no id")
def _(scene: Scene) -> str:
    request = HeartbeatRequest(group_id=scene.stage.group, generation_id=1, member_id="")
    return error_name(scene.stage.admin.ask(HEARTBEAT, request).error_code)


@row("Heartbeat, generation before")
def _(scene: Scene) -> str:
    return scene.follower.heartbeat(generation=scene.follower.generation - 1)


@row("Heartbeat, generation after")
def _(scene: Scene) -> str:
    return scene.follower.heartbeat(generation=scene.follower.generation + 1)


@row("Heartbeat, follower with an unknown instance id")
def _(scene: Scene) -> str:
    return scene.follower.heartbeat(instance_id="i-n")


# LeaveGroup


def leaving(scene: Scene, *members: tuple[str, str | None]) -> str:
    leavers = [LeaveGroupMember(member_id=m, group_instance_id=i) for m, i in members]
    request = LeaveGroupRequest(group_id=scene.stage.group, members=leavers)
    return response_text.leave(scene.stage, scene.stage.admin.ask(LEAVE_GROUP, request))


@row("LeaveGroup, leader")
def _(scene: Scene) -> str:
    return leaving(scene, (scene.leader.member_id, None))


@row("LeaveGroup, follower")
def _(scene: Scene) -> str:
    return leaving(scene, (scene.follower.member_id, None))


@row("LeaveGroup v2, follower")
def _(scene: Scene) -> str:
    return scene.follower.leave(version=2)


@row("LeaveGroup, both members")
def _(scene: Scene) -> str:
    return leaving(scene, (scene.leader.member_id, None), (scene.follower.member_id, None))


@row("LeaveGroup, a member and an unknown one")
def _(scene: Scene) -> str:
    return leaving(scene, (scene.actor().member_id, None), (scene.follower.member_id, None))


@row("LeaveGroup v2, id never given out")
def _(scene: Scene) -> str:
    return scene.actor().leave(version=2)


@row("LeaveGroup, an unknown instance id")
def _(scene: Scene) -> str:
    return leaving(scene, ("", "i-n"))


@row("LeaveGroup, follower with an unknown instance id")
def _(scene: Scene) -> str:
    return leaving(scene, (scene.follower.member_id, "i-n"))


@row("LeaveGroup, no members")
def _(scene: Scene) -> str:
    return leaving(scene)


@row("LeaveGroup, id just given out")
def _(scene: Scene) -> str:
    actor = scene.actor()
    answer = actor.ask_to_join("").result()
    scene.stage.names[answer.member_id] = "N"
    return leaving(scene, (answer.member_id, None))
