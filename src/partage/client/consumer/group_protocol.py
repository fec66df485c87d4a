"""The choice of the group protocol: the classic protocol, or the consumer protocol (KIP-848)."""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress

from partage.client.cluster import Cluster
from partage.client.consumer.config import GroupProtocol
from partage.client.errors import ClientError, UnsupportedApiError
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.settings import MemberSettings
from partage.model.arguments import InvalidArgumentError
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT

log = logging.getLogger(__name__)


def new_member_id() -> str:
    """Return a random member id, in the form of Kafka's ids (KIP-1082)."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def server_pattern_error(regex: str) -> InvalidArgumentError:
    """Return the error for a `SubscriptionPattern` with the classic protocol."""
    return InvalidArgumentError(
        "a SubscriptionPattern needs group_protocol='consumer': with the classic protocol, "
        f"subscribe to re.compile({regex!r})"
    )


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


async def ask_for_consumer_protocol(
    cluster: Cluster, on_permanent_error: Callable[[ClientError], None], pause_s: float
) -> bool:
    """Return the answer of `has_consumer_protocol`; ask again until a broker answers."""
    while True:
        try:
            return await has_consumer_protocol(cluster)
        except ClientError as error:
            log.info("group protocol is not known yet: error=%s", error)
            if not error.is_retriable:
                on_permanent_error(error)
            await asyncio.sleep(pause_s)


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
