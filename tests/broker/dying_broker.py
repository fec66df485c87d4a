"""A broker process that dies at a step of a transaction, and is then started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from partage.testing import BrokerProcess
from polled_conditions import PATIENCE_S


class DyingBroker(BrokerProcess):
    """A broker that dies at one of the steps of `broker.dying_transaction_coordinator`."""

    def __init__(self, data_dir: Path, step: str) -> None:
        super().__init__(
            data_dir,
            overrides={
                "transaction.state.log.num.partitions": 1,
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
            },
        )
        self._step = step
        self._flag = data_dir.with_suffix(".died")
        self._restart: Future[int] | None = None

    def _command(self) -> list[str]:
        python, _, _, *options = super()._command()
        module = "broker.dying_transaction_coordinator"
        return [python, "-m", module, self._step, str(self._flag), *options]

    def check_restarted(self) -> None:
        """Wait until the broker has died and runs again."""
        assert self._restart is not None
        assert self._restart.result(PATIENCE_S) == -signal.SIGKILL

    def _restart_when_dead(self) -> int:
        """Wait until the broker dies; return its exit code once it runs again."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        code = process.wait(PATIENCE_S)
        process.stdout.close()
        self.start()
        return code

    def supervise(self, supervisor: ThreadPoolExecutor) -> None:
        """Start the broker again as soon as it has died."""
        self._restart = supervisor.submit(self._restart_when_dead)


@contextmanager
def dying_broker(
    directory: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> Iterator[DyingBroker]:
    """Run a broker that dies at a step, and runs again soon after it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), os.pathsep)
    with DyingBroker(directory / "data", step) as broker, ThreadPoolExecutor(1) as supervisor:
        broker.supervise(supervisor)
        yield broker
