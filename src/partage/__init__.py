"""Consumer groups for Python and Spark over Kafka's protocol.

Everything here is imported on first use. `partage.sync` has the blocking `Consumer` and
`Membership`, and `partage.errors` all exceptions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from partage.model.version import VERSION

if TYPE_CHECKING:
    from partage import errors
    from partage.client.config import MembershipConfig
    from partage.client.consumer.arguments import SubscriptionPattern
    from partage.client.consumer.config import ConsumerConfig
    from partage.client.consumer.consumer import Consumer
    from partage.client.consumer.listener import RebalanceListener
    from partage.client.consumer.records import Batch, Record, Records
    from partage.client.group.membership_protocol import (
        GenerationMember,
        GenerationMembers,
        MemberAssignment,
        MembershipListener,
    )
    from partage.client.group.offsets import OffsetAndMetadata
    from partage.client.membership import Membership
    from partage.client.offsets import OffsetAndTimestamp
    from partage.client.security.tokens import Token
    from partage.model.topic_partition import TopicPartition

__version__ = VERSION

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
    "__version__",
    "errors",
]

#: The module of each name that is imported on first use, so that `import partage` is fast.
_LAZY_EXPORTS = {
    "Batch": "partage.client.consumer.records",
    "Consumer": "partage.client.consumer.consumer",
    "ConsumerConfig": "partage.client.consumer.config",
    "GenerationMember": "partage.client.group.membership_protocol",
    "GenerationMembers": "partage.client.group.membership_protocol",
    "MemberAssignment": "partage.client.group.membership_protocol",
    "Membership": "partage.client.membership",
    "MembershipConfig": "partage.client.config",
    "MembershipListener": "partage.client.group.membership_protocol",
    "OffsetAndMetadata": "partage.client.group.offsets",
    "OffsetAndTimestamp": "partage.client.offsets",
    "RebalanceListener": "partage.client.consumer.listener",
    "Record": "partage.client.consumer.records",
    "Records": "partage.client.consumer.records",
    "SubscriptionPattern": "partage.client.consumer.arguments",
    "Token": "partage.client.security.tokens",
    "TopicPartition": "partage.model.topic_partition",
}


def __getattr__(name: str) -> object:  # PEP 562
    if name == "errors":
        return import_module("partage.errors")
    if name in _LAZY_EXPORTS:
        found: object = getattr(import_module(_LAZY_EXPORTS[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
