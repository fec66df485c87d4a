"""A broker in a child process keeps its port."""

from __future__ import annotations

import socket
import sys

import pytest

from partage.testing import BrokerProcess


def test_killed_broker_port_stays_reserved() -> None:
    """Another process could take it before the broker starts again."""
    with BrokerProcess() as broker, socket.socket() as other:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        broker.kill()
        if sys.platform == "linux":  # other systems cannot reserve a port
            with pytest.raises(OSError, match="Address already in use"):
                other.bind((host, int(port)))
        broker.start()
        assert broker.bootstrap_servers == f"{host}:{port}"
