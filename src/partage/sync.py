"""The blocking API: ``from partage.sync import Consumer, Membership``."""

from __future__ import annotations

from partage.client.consumer.sync_consumer import Consumer
from partage.client.sync_membership import Membership

__all__ = ["Consumer", "Membership"]
