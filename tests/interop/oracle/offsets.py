"""Rows: offsets, and requests about a group from outside."""

from __future__ import annotations

from typing import Any

from interop.oracle import response_text
from interop.oracle.actors import error_name
from interop.oracle.rows import row
from interop.oracle.scenes import NAMELESS, STATIC, Scene
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)

#: A topic that does not exist.
UNKNOWN_TOPIC = "no-such-topic"


def committing(scene: Scene, **settings: Any) -> str:
    follower = scene.follower
    given = {"generation": follower.generation, "member_id": follower.member_id, **settings}
    return response_text.commit(scene.stage.commit(scene.stage.admin, offset=7, **given))


def simply(scene: Scene, **settings: Any) -> str:
    return committing(scene, **{"generation": -1, "member_id": "", **settings})


@row("OffsetCommit v9, follower")
def _(scene: Scene) -> str:
    return committing(scene)


@row("OffsetCommit v8, follower")
def _(scene: Scene) -> str:
    return committing(scene, version=8)


@row("OffsetCommit v2, follower")
def _(scene: Scene) -> str:
    return committing(scene, version=2)


@row("OffsetCommit, generation before")
def _(scene: Scene) -> str:
    return committing(scene, generation=scene.follower.generation - 1)


@row("OffsetCommit, generation after")
def _(scene: Scene) -> str:
    return committing(scene, generation=scene.follower.generation + 1)


@row("OffsetCommit, generation -1 with an id")
def _(scene: Scene) -> str:
    return committing(scene, generation=-1)


@row("OffsetCommit, id never given out")
def _(scene: Scene) -> str:
    return committing(scene, member_id=scene.actor().member_id)


@row("OffsetCommit, an unknown instance id")
def _(scene: Scene) -> str:
    return committing(scene, instance_id="i-n")


@row("OffsetCommit v9, from outside")
def _(scene: Scene) -> str:
    return simply(scene)


@row("OffsetCommit v2, from outside")
def _(scene: Scene) -> str:
    return simply(scene, version=2)


@row("OffsetCommit, from outside with generation 0")
def _(scene: Scene) -> str:
    return simply(scene, generation=0)


@row("OffsetCommit, follower, topic unknown")
def _(scene: Scene) -> str:
    return committing(scene, topic=UNKNOWN_TOPIC)


@row("OffsetCommit, from outside, topic unknown")
def _(scene: Scene) -> str:
    return simply(scene, topic=UNKNOWN_TOPIC)


@row("OffsetCommit, from outside, partition unknown")
def _(scene: Scene) -> str:
    return simply(scene, partition=99)


@row("OffsetCommit, from outside, 4096 characters of metadata")
def _(scene: Scene) -> str:
    return simply(scene, metadata="m" * 4096)


@row("OffsetCommit, from outside, 4097 characters of metadata", unsettled=("missing",))
def _(scene: Scene) -> str:
    return simply(scene, metadata="m" * 4097)


# OffsetFetch


def fetching(scene: Scene, version: int, topics: list[str] | None, **settings: Any) -> str:
    wanted = None
    if topics is not None:
        wanted = [OffsetFetchTopic(name=name, partition_indexes=[0, 1]) for name in topics]
    if version < 8:
        request = OffsetFetchRequest(group_id=scene.stage.group, topics=wanted, **settings)
        answer = scene.stage.admin.ask(OFFSET_FETCH, request, version)
        return response_text.offsets(scene.stage, answer.topics, answer.error_code)
    stable = settings.pop("require_stable", False)
    group = OffsetFetchGroup(group_id=scene.stage.group, topics=wanted, **settings)
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    found = scene.stage.admin.ask(OFFSET_FETCH, request, version).groups[0]
    return response_text.offsets(scene.stage, found.topics, found.error_code)


@row("OffsetFetch v9, a topic")
def _(scene: Scene) -> str:
    return fetching(scene, 9, [scene.stage.topic])


@row("OffsetFetch v9, all topics")
def _(scene: Scene) -> str:
    return fetching(scene, 9, None)


@row("OffsetFetch v1, a topic")
def _(scene: Scene) -> str:
    return fetching(scene, 1, [scene.stage.topic])


@row("OffsetFetch v2, all topics")
def _(scene: Scene) -> str:
    return fetching(scene, 2, None)


@row("OffsetFetch v7, stable offsets of a topic")
def _(scene: Scene) -> str:
    return fetching(scene, 7, [scene.stage.topic], require_stable=True)


@row("OffsetFetch v9, with the follower's id and generation")
def _(scene: Scene) -> str:
    follower = scene.follower
    settings = {"member_id": follower.member_id, "member_epoch": follower.generation}
    return fetching(scene, 9, [scene.stage.topic], **settings)


@row("OffsetFetch v9, with an id never given out")
def _(scene: Scene) -> str:
    actor = scene.actor()
    return fetching(scene, 9, [scene.stage.topic], member_id=actor.member_id, member_epoch=1)


@row("OffsetFetch v9, topic unknown")
def _(scene: Scene) -> str:
    return fetching(scene, 9, [UNKNOWN_TOPIC])


# Describing, listing, deleting


@row("DescribeGroups v5")
def _(scene: Scene) -> str:
    return response_text.described(scene.stage, scene.stage.described(5))


@row("DescribeGroups v6")
def _(scene: Scene) -> str:
    return response_text.described(scene.stage, scene.stage.described(6))


@row("ListGroups v5")
def _(scene: Scene) -> str:
    answer = scene.stage.admin.ask(LIST_GROUPS, ListGroupsRequest())
    for group in answer.groups:
        if group.group_id == scene.stage.group:
            return f"{group.group_state}, {group.group_type}, {group.protocol_type or 'no type'}"
    return "not listed"


@row("ListGroups v4, Stable and Empty ones")
def _(scene: Scene) -> str:
    request = ListGroupsRequest(states_filter=["Stable", "Empty"])
    answer = scene.stage.admin.ask(LIST_GROUPS, request, 4)
    listed = scene.stage.group in {group.group_id for group in answer.groups}
    return "listed" if listed else "not listed"


@row("DeleteGroups")
def _(scene: Scene) -> str:
    request = DeleteGroupsRequest(groups_names=[scene.stage.group])
    return response_text.deleted(scene.stage.admin.ask(DELETE_GROUPS, request))


def deleting_offsets(scene: Scene, topic: str, partition: int) -> str:
    topics = [
        OffsetDeleteTopic(name=topic, partitions=[OffsetDeletePartition(partition_index=partition)])
    ]
    request = OffsetDeleteRequest(group_id=scene.stage.group, topics=topics)
    answer = scene.stage.admin.ask(OFFSET_DELETE, request)
    return response_text.offsets_deleted(scene.stage, answer)


@row("OffsetDelete, a topic with an offset")
def _(scene: Scene) -> str:
    said = deleting_offsets(scene, scene.stage.topic, 0)
    return f"{said}; left: {fetching(scene, 9, None)}"


@row("OffsetDelete, a partition without an offset")
def _(scene: Scene) -> str:
    return deleting_offsets(scene, scene.stage.topic, 1)


@row("OffsetDelete, topic unknown")
def _(scene: Scene) -> str:
    return deleting_offsets(scene, UNKNOWN_TOPIC, 0)


# Static members


@row("OffsetCommit, follower's instance, leader's id", STATIC)
def _(scene: Scene) -> str:
    return committing(scene, member_id=scene.leader.member_id, instance_id="i-b")


@row("OffsetCommit, follower's instance and id", STATIC)
def _(scene: Scene) -> str:
    return committing(scene, instance_id="i-b")


@row("OffsetCommit, follower's instance, id never given out", STATIC)
def _(scene: Scene) -> str:
    return committing(scene, member_id=scene.actor().member_id, instance_id="i-b")


@row("DescribeGroups v5, static members", STATIC)
def _(scene: Scene) -> str:
    return response_text.described(scene.stage, scene.stage.described(5))


# No group id


@row("OffsetCommit v9, member", NAMELESS)
def _(scene: Scene) -> str:
    return committing(scene)


@row("OffsetFetch v9", NAMELESS)
def _(scene: Scene) -> str:
    return fetching(scene, 9, [UNKNOWN_TOPIC])


@row("OffsetFetch v1", NAMELESS)
def _(scene: Scene) -> str:
    return fetching(scene, 1, [UNKNOWN_TOPIC])


@row("OffsetDelete", NAMELESS)
def _(scene: Scene) -> str:
    return deleting_offsets(scene, scene.stage.topic, 0)


@row("FindCoordinator v4", NAMELESS)
def _(scene: Scene) -> str:
    request = FindCoordinatorRequest(coordinator_keys=[""])
    found = scene.stage.admin.ask(FIND_COORDINATOR, request, 4).coordinators[0]
    return error_name(found.error_code)
