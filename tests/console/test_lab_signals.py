"""Interrupted runs of ``partage lab run``."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from concurrent.futures.process import BrokenProcessPool

import psutil
import pytest

from partage.lab.swarm import WorkerKilledError, run_seeds
from partage.lab.worker_pool import ProcessPool
from polled_conditions import eventually

from .cli import PartageCli

MANY = 1_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_killed_worker_raises_with_its_seeds() -> None:
    found = run_seeds(range(MANY), 2)
    seeds = [next(found).seed]
    _workers(psutil.Process())[0].kill()
    with pytest.raises(WorkerKilledError) as killed:
        seeds.extend(verdict.seed for verdict in found)
    lost = list(killed.value.seeds)
    assert 10 <= len(lost) <= 30, "ten for each process, and ten in the queue"
    assert sorted(seeds + lost) == list(range(len(seeds) + len(lost)))


def test_killed_worker_ends_all_workers() -> None:
    def wait() -> None:
        with ProcessPool(2, nothing) as processes:
            long = processes.submit(time.sleep, 600)
            processes.submit(os._exit, 9)
            long.result()

    before = set(multiprocessing.active_children())
    with pytest.raises(BrokenProcessPool):
        wait()
    assert set(multiprocessing.active_children()) == before


def test_killed_worker_prints_error(partage: PartageCli) -> None:
    with partage.start("lab", "run", "--seeds", str(MANY), "--jobs", "2") as process:
        eventually(lambda: len(_workers(psutil.Process(process.pid))) == 2)
        _workers(psutil.Process(process.pid))[0].kill()
        _, said = process.communicate()
    assert process.returncode == 1
    assert said.startswith("error: a worker process was killed (out of memory?) while it ran ")
    assert "partage lab run --seed-from " in said
    assert " --jobs 1\n" in said
    assert "Traceback" not in said


def test_killed_parent_leaves_no_workers(partage: PartageCli) -> None:
    with partage.start("lab", "run", "--seeds", str(MANY), "--jobs", "2") as process:
        eventually(lambda: len(_workers(psutil.Process(process.pid))) == 2)
        workers = _workers(psutil.Process(process.pid))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    eventually(lambda: not any(map(_lives, workers)))


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_prints_results_so_far(
    partage: PartageCli, jobs: str, number: signal.Signals
) -> None:
    """The signal goes to all processes of the group, as from a terminal."""
    asked = ("lab", "run", "--seeds", str(MANY), "--jobs", jobs)
    with partage.drawing(*asked) as (process, drawn):
        eventually(lambda: re.search(r"[1-9][0-9]* of 1,000,000", drawn.text) is not None)
        os.killpg(process.pid, number)
        out, _ = process.communicate()
    assert process.returncode == 130
    (worlds,) = re.findall(r"error: stopped after ([0-9,]+) of 1,000,000 worlds\r\n", drawn.text)
    assert re.search(rf"^{worlds} worlds?, ", out, re.MULTILINE) is not None
    assert "Traceback" not in drawn.text


@pytest.mark.parametrize("command", ["run --seeds 2 --jobs 1", "trace 1 --verbose"])
def test_closed_output_is_no_failure(partage: PartageCli, command: str) -> None:
    """Exit code 1 is reserved for broken rules."""
    ran = partage.shell(f"python -m partage lab {command} | true", timeout_s=60)
    assert ran == (0, "", "output closed by its reader\n")


def nothing() -> None:
    """Do nothing: worker initializer."""


def _workers(process: psutil.Process) -> list[psutil.Process]:
    """Return the worker processes of a process."""
    return [each for each in process.children() if "spawn_main" in " ".join(each.cmdline())]


def _lives(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
