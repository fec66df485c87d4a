"""Brokers for tests, in the process or as a child process, and the pytest plugin."""

from __future__ import annotations

from partage.testing.broker import ThreadedBroker
from partage.testing.process import BrokerProcess

__all__ = ["BrokerProcess", "ThreadedBroker"]
