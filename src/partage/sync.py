"""For code without asyncio: ``from partage.sync import Consumer``."""

from __future__ import annotations

from partage.client.consumer.blocking import Consumer

__all__ = ["Consumer"]
