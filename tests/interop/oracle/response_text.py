"""Text of responses: all fields that matter to a member, with names instead of ids."""

from __future__ import annotations

from interop.oracle.actors import Stage, error_name
from partage.wire.apis.delete_groups import DeleteGroupsResponse
from partage.wire.apis.describe_groups import DescribedGroup
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.leave_group import LeaveGroupResponse
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.apis.offset_delete import OffsetDeleteResponse
from partage.wire.apis.offset_fetch import OffsetFetchTopicResult
from partage.wire.apis.sync_group import SyncGroupResponse


def join(stage: Stage, answer: JoinGroupResponse) -> str:
    """Describe a JoinGroup response."""
    if answer.error_code:
        said = [error_name(answer.error_code), stage.name_of(answer.member_id)]
        if answer.generation_id != -1:
            said.append(f"generation {answer.generation_id}")
        return ", ".join(said)
    members = sorted(stage.name_of(member.member_id) for member in answer.members)
    said = [
        f"generation {answer.generation_id}",
        f"{stage.name_of(answer.member_id)} led by {stage.name_of(answer.leader)}",
        f"{answer.protocol_type or 'no type'}/{answer.protocol_name or 'no protocol'}",
        f"members {', '.join(members) or 'not told'}",
    ]
    if answer.skip_assignment:
        said.append("skip the assignment")
    return "; ".join(said)


def sync(answer: SyncGroupResponse) -> str:
    """Describe a SyncGroup response."""
    if answer.error_code:
        return error_name(answer.error_code)
    protocol = f"{answer.protocol_type or 'no type'}/{answer.protocol_name or 'no protocol'}"
    return f"assignment {bytes(answer.assignment)!r}, {protocol}"


def leave(stage: Stage, answer: LeaveGroupResponse) -> str:
    """Describe a LeaveGroup response: its error, then each member."""
    members = [
        f"{stage.name_of(member.member_id)} {error_name(member.error_code)}"
        for member in answer.members
    ]
    return "; ".join([error_name(answer.error_code), *members])


def commit(answer: OffsetCommitResponse) -> str:
    """Describe an OffsetCommit response with one partition or none."""
    errors = [error_name(part.error_code) for topic in answer.topics for part in topic.partitions]
    return ", ".join(errors) or "no partitions"


def offsets(stage: Stage, topics: list[OffsetFetchTopicResult], error_code: int) -> str:
    """Describe the offsets of an OffsetFetch response."""
    said = [error_name(error_code)] if error_code else []
    for topic in sorted(topics, key=lambda each: each.name):
        name = "T" if topic.name == stage.topic else topic.name
        for part in topic.partitions:
            what = error_name(part.error_code) if part.error_code else str(part.committed_offset)
            said.append(f"{name}:{part.partition_index} {what}")
    return ", ".join(said) or "nothing"


def described(stage: Stage, group: DescribedGroup) -> str:
    """Describe a group from a DescribeGroups response."""
    said = [error_name(group.error_code)] if group.error_code else []
    if group.error_message:
        said.append("with a message")
    said.append(group.group_state or "no state")
    said.append(f"{group.protocol_type or 'no type'}/{group.protocol_data or 'no protocol'}")
    for member in sorted(group.members, key=lambda each: stage.name_of(each.member_id)):
        parts = [stage.name_of(member.member_id), f"client {member.client_id}"]
        if member.group_instance_id is not None:
            parts.append(f"instance {member.group_instance_id}")
        parts.append("metadata" if member.member_metadata else "no metadata")
        parts.append(f"assignment {bytes(member.member_assignment)!r}")
        said.append(" ".join(parts))
    return "; ".join(said)


def deleted(answer: DeleteGroupsResponse) -> str:
    """Describe a DeleteGroups response for one group."""
    return error_name(answer.results[0].error_code)


def offsets_deleted(stage: Stage, answer: OffsetDeleteResponse) -> str:
    """Describe an OffsetDelete response."""
    said = [error_name(answer.error_code)]
    for topic in answer.topics:
        name = "T" if topic.name == stage.topic else topic.name
        said += [f"{name}:{p.partition_index} {error_name(p.error_code)}" for p in topic.partitions]
    return "; ".join(said)
