"""Partage's broker, started with its command line."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from free_ports import free_ports
from interop.peers.server import BrokerProcess, NotReadyError
from polled_conditions import PATIENCE_S


class PartageBroker(BrokerProcess):
    """``partage broker`` of the virtual environment that runs the tests.

    ``overrides`` are settings by Kafka's names. As in `ApacheKafka`, the default initial rebalance
    delay is 0.
    """

    def __init__(
        self, directory: Path | None = None, *, overrides: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self._overrides = {"group.initial.rebalance.delay.ms": "0", **(overrides or {})}

    def override(self, name: str, value: str) -> None:
        """Change a setting; it takes effect with the next start."""
        self._overrides[name] = value

    def start(self, timeout_s: float = PATIENCE_S) -> Self:
        """Start it; the first printed line has its address, which later starts reuse.

        The kernel gives the port to no other process while the broker does not run.
        """
        self.bootstrap = self.bootstrap or f"127.0.0.1:{free_ports(1)[0]}"
        program = Path(sys.executable).with_name("partage")
        command = [str(program), "broker", "--listen", self.bootstrap]
        command += ["--data-dir", str(self.directory / "data")]
        for name, value in self._overrides.items():
            command += ["--override", f"{name}={value}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        overdue = threading.Timer(timeout_s, self.process.kill)
        overdue.start()
        try:
            first = self.process.stdout.readline().decode().strip()
        finally:
            overdue.cancel()
            self.process.stdout.close()
        if not first:
            self.kill()
            raise NotReadyError(f"partage broker printed no address:\n{self.log_end()}")
        self.bootstrap = first.split()[-1]
        self.wait_until_it_answers(timeout_s)
        return self
