"""Floor 5: a broker for tests, in the process or beside it, and the pytest plugin around it."""

from __future__ import annotations

from partage.testing.broker import ThreadedBroker
from partage.testing.process import BrokerProcess

__all__ = ["BrokerProcess", "ThreadedBroker"]
