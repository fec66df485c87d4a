"""A broker in a child process keeps its port, and names calls in the wrong order."""

from __future__ import annotations

import os
import signal
import socket
import sys

import pytest

from partage.testing import BrokerProcess, ThreadedBroker


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


def test_process_broker_calls_in_wrong_order_name_the_next_step() -> None:
    with BrokerProcess() as broker:
        with pytest.raises(RuntimeError, match=r"running already: call kill\(\) or stop\(\) first"):
            broker.start()
        broker.kill()
        for call in (broker.kill, broker.stop, lambda: broker.pid):
            with pytest.raises(RuntimeError, match=r"not running: call start\(\) first"):
                call()


def test_broker_that_a_signal_ended_can_start_again() -> None:
    with BrokerProcess() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
        host, _, port = broker.start().bootstrap_servers.rpartition(":")
        socket.create_connection((host, int(port))).close()


def test_thread_broker_before_start_names_the_next_step() -> None:
    broker = ThreadedBroker()
    for read in (lambda: broker.bootstrap_servers, lambda: broker.faults):
        with pytest.raises(RuntimeError, match=r"is not started: use it in a with statement"):
            read()
    with broker:
        assert broker.bootstrap_servers
