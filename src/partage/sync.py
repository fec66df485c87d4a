"""The blocking API: ``from partage.sync import Consumer, Membership``.

All other names are those of `partage`. Both consumers and both memberships take the same listeners;
listeners of a blocking consumer must not have coroutine functions.
"""

from __future__ import annotations

from partage.client.config import MembershipConfig
from partage.client.consumer.arguments import SubscriptionPattern
from partage.client.consumer.config import ConsumerConfig
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.records import Batch, Record, Records
from partage.client.consumer.sync_consumer import Consumer
from partage.client.group.membership_protocol import (
    GenerationMember,
    GenerationMembers,
    MemberAssignment,
    MembershipListener,
)
from partage.client.group.offsets import OffsetAndMetadata
from partage.client.offsets import OffsetAndTimestamp
from partage.client.security.tokens import Token
from partage.client.sync_membership import Membership
from partage.model.topic_partition import TopicPartition

__all__ = [
    "Batch",
    "Consumer",
    "ConsumerConfig",
    "GenerationMember",
    "GenerationMembers",
    "MemberAssignment",
    "Membership",
    "MembershipConfig",
    "MembershipListener",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListener",
    "Record",
    "Records",
    "SubscriptionPattern",
    "Token",
    "TopicPartition",
]
