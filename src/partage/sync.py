"""The blocking API: ``from partage.sync import Consumer, Membership``."""

from __future__ import annotations

from partage.client.consumer.blocking import Consumer
from partage.client.sync_membership import Membership

__all__ = ["Consumer", "Membership"]
