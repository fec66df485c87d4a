"""The choice of the group protocol: the classic protocol, or the consumer protocol (KIP-848)."""

from __future__ import annotations

from contextlib import suppress

from partage.client.cluster import Cluster
from partage.client.consumer.config import GroupProtocol
from partage.client.errors import UnsupportedApiError
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.settings import MemberSettings
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT


def settings_of_protocol(
    protocol: GroupProtocol,
    classic: MemberSettings,
    *,
    rack_id: str | None,
    server_assignor: str | None,
) -> tuple[MemberSettings, ConsumerMemberSettings | None]:
    """Return the settings of a member, and those to prefer if the cluster supports them.

    Args:
        protocol: The protocol that the user chose.
        classic: The settings of the member with the classic protocol.
        rack_id: ``client.rack``, for the consumer protocol.
        server_assignor: ``group.remote.assignor``, for the consumer protocol.
    """
    if protocol == "classic":
        return classic, None
    consumer = ConsumerMemberSettings.from_classic(
        classic, rack_id=rack_id, server_assignor=server_assignor
    )
    return (consumer, None) if protocol == "consumer" else (classic, consumer)


async def has_consumer_protocol(cluster: Cluster) -> bool:
    """True if the cluster supports the consumer group protocol, and its feature is on.

    Raises:
        ClientError: No broker answered.
    """
    return await cluster.with_retries(lambda: _has_consumer_protocol(cluster))


async def _has_consumer_protocol(cluster: Cluster) -> bool:
    broker = await cluster.any_broker()
    if broker.finalized_features.get("group.version", 0) < 1:
        return False
    with suppress(UnsupportedApiError):
        return broker.version_of(CONSUMER_GROUP_HEARTBEAT) >= 0
    return False
