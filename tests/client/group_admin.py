"""Administration of group members."""

from __future__ import annotations

from partage.client.cluster import Cluster
from partage.client.group.coordinator_client import CoordinatorClient
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest


async def remove_member(servers, group_id, member_id):
    """Remove a member from its group; its next heartbeat fails."""
    async with Cluster(servers) as cluster:
        coordinator = CoordinatorClient(cluster, group_id)
        await coordinator.connect()
        leaving = LeaveGroupMember(member_id=member_id)
        answer = await coordinator.send(
            LEAVE_GROUP,
            LeaveGroupRequest(group_id=group_id, member_id=member_id, members=[leaving]),
        )
        assert [answer.error_code, *(m.error_code for m in answer.members)] == [0, 0]
        coordinator.disconnect()
