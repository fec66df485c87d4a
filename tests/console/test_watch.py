"""``--watch``: repeated output until Ctrl-C."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from .cli import PartageCli, records


def group_of(partage: PartageCli, topic: str) -> str:
    partage("produce", "-t", topic, "-p", 0, stdin=records(["a", "b"]))
    partage("consume", "-t", topic, "--group", topic, "--from-beginning", "-e")
    return topic


def test_watch_into_pipe_appends(partage: PartageCli, topic: str) -> None:
    group = group_of(partage, topic)
    command = ["groups", "describe", "-g", group, "--watch", "--every", "0.05"]
    with partage.start(*command) as process:
        assert process.stdout is not None
        totals = (line for line in process.stdout if line.startswith(f"group {group}: "))
        assert next(totals).endswith("total lag 0\n")
        partage("produce", "-t", topic, "-p", 0, stdin=records(["c"]))
        while not next(totals).endswith("total lag 1\n"):
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_watch_on_terminal_redraws(partage: PartageCli, topic: str) -> None:
    group = group_of(partage, topic)
    command = ["groups", "members", group, "--watch", "--every", "0.05"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "partage", *command],
        env={**partage.env, "TERM": "xterm", "COLUMNS": "100"},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    seen = b""
    while seen.count(f"group {group} has no members".encode()) < 3:
        seen += os.read(ours, 1 << 16)
    assert b"\x1b[1A" in seen  # The cursor moves up to redraw.
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    os.close(ours)
    assert (process.returncode, err) == (0, b"")


def test_watch_reports_lost_cluster(tmp_path: Path) -> None:
    from partage.testing import BrokerProcess

    with BrokerProcess() as broker:
        partage = PartageCli(broker.bootstrap_servers)
        partage("topics", "create", "-t", "t")
        group_of(partage, "t")
        command = ["groups", "members", "t", "--watch", "--every", "0.05", "--timeout-ms", "1000"]
        with partage.start(*command) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "group t has no members\n"
            broker.kill()
            while not process.stdout.readline().startswith("error: no Kafka broker answered"):
                pass
            broker.start()
            shown = []
            while "group t has no members\n" not in shown:
                shown.append(process.stdout.readline())
                assert len(shown) < 20, shown
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode == 0
