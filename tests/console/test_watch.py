"""``--watch``: repeated output until Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError

from partage.console.common.client_requests import prepare_next_poll
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.table import frame_width
from partage.console.common.watch import watch
from polled_conditions import eventually

from .cli import PartageCli, TerminalCapture, records


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


def test_watch_members_redraws_row_of_each_member(partage: PartageCli, topic: str) -> None:
    """Two members join one after the other; each row has its client and partitions."""
    command = ["groups", "members", topic, "--watch", "--every", "0.05"]
    with ExitStack() as stack:
        first = stack.enter_context(closing(member_of(partage, topic, "first")))
        poll_until([first], [4])
        process, terminal = stack.enter_context(watching(partage, *command))
        wait_for_rows(process, terminal, [(topic, "first", "range", "4", f"{topic}(0-3)")])
        second = stack.enter_context(closing(member_of(partage, topic, "second")))
        poll_until([first, second], [2, 2])
        shares = {
            name: f"{topic}({min(numbers)}-{max(numbers)})"
            for name, numbers in (("first", held(first)), ("second", held(second)))
        }
        expected = [(topic, name, "range", "2", share) for name, share in shares.items()]
        wait_for_rows(process, terminal, expected, [first, second])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_watch_members_shows_assignment_in_100_columns(partage: PartageCli, topic: str) -> None:
    command = ["groups", "members", topic, "--watch", "--every", "0.05"]
    with ExitStack() as stack:
        member = stack.enter_context(closing(member_of(partage, topic, "reader")))
        poll_until([member], [4])
        process, terminal = stack.enter_context(watching(partage, *command, columns=100))
        shown = rf"{re.escape(member.memberid())}[^\n]* {topic}\(0-3\)"
        eventually(lambda: re.search(shown, terminal.text), lambda: terminal.text[-2_000:])
        header = next(line for line in terminal.text.splitlines() if "CONSUMER-ID" in line)
        assert "ASSIGNMENT" in header
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize("replacement", [None, SystemError("result with an exception set")])
def test_watch_ends_although_interrupt_is_lost(replacement: Exception | None) -> None:
    """`asyncio.wait_for` and librdkafka can lose a `KeyboardInterrupt`."""
    calls = []

    def show() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            if replacement is not None:
                raise replacement

    watch(ClusterClient("localhost:1", {}, 1_000, verbose=False), show, 0.05)
    assert calls == [0, 1]


def test_error_of_first_output_is_raised() -> None:
    def show() -> None:
        raise CommandError("no group")

    with pytest.raises(CommandError, match="no group"):
        watch(ClusterClient("localhost:1", {}, 1_000, verbose=False), show, 0.05)


def member_of(partage: PartageCli, topic: str, client_id: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": partage.bootstrap_servers,
            "group.id": topic,
            "client.id": client_id,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
        }
    )
    consumer.subscribe([topic])
    return consumer


def held(consumer: Consumer) -> list[int]:
    return sorted(each.partition for each in consumer.assignment())


def poll_until(members: Sequence[Consumer], counts: Sequence[int]) -> None:
    while [len(member.assignment()) for member in members] != counts:
        for member in members:
            member.poll(0.02)


@contextmanager
def watching(
    partage: PartageCli, *command: str, columns: int = 200
) -> Iterator[tuple[subprocess.Popen[bytes], TerminalCapture]]:
    """Run a command with a terminal as its stdout."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "partage", *command],
        env={**partage.env, "TERM": "xterm", "COLUMNS": str(columns)},
        stdin=theirs,
        stdout=theirs,
    ) as process:
        os.close(theirs)
        terminal = TerminalCapture(ours)
        try:
            yield process, terminal
        finally:
            if process.poll() is None:
                process.kill()
    terminal.end()


def wait_for_rows(
    process: subprocess.Popen[bytes],
    terminal: TerminalCapture,
    expected: Sequence[tuple[str, ...]],
    polled: Sequence[Consumer] = (),
) -> None:
    """Poll the members until the last complete table has exactly these rows.

    A row has the group, the client, the assignor, the number of partitions, and the partitions.
    """
    wanted = sorted(expected)

    def has_rows() -> bool:
        assert process.poll() is None, terminal.text
        for member in polled:
            member.poll(0.02)
        return last_rows(terminal.text) == wanted

    eventually(has_rows, lambda: terminal.text[-2_000:])


def last_rows(text: str) -> list[tuple[str, ...]]:
    """Return the rows of the last table that is followed by another one."""
    tables = re.split(
        r"GROUP +CONSUMER-ID[^\n]*\n", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text[-20_000:])
    )
    if len(tables) < 3:
        return []
    cells = [line.split() for line in tables[-2].splitlines()]
    return sorted((row[0], row[3], *row[5:]) for row in cells if len(row) == 8)


def test_watch_reports_lost_cluster(tmp_path: Path) -> None:
    from partage.testing import BrokerProcess

    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
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


def test_next_poll_renews_librdkafka_only_if_needed() -> None:
    cluster = ClusterClient("localhost:1", {}, 1_000, verbose=False)
    admin = cluster.admin
    prepare_next_poll(cluster)
    assert cluster.admin is admin
    cluster.recent_errors.append(KafkaError(KafkaError._TRANSPORT, "refused"))
    prepare_next_poll(cluster)
    assert cluster.admin is not admin
    only_librdkafka = {"enable.ssl.certificate.verification": "false"}
    cluster = ClusterClient("localhost:1", only_librdkafka, 1_000, verbose=False)
    admin = cluster.admin
    prepare_next_poll(cluster)
    assert cluster.admin is not admin


def test_watch_wraps_error_at_terminal_width(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def show() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            raise CommandError("no Kafka broker answered at 127.0.0.1:9092 within 5000 ms")
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)

    with frame_width(40):
        watch(ClusterClient("localhost:1", {}, 1_000, verbose=False), show, 0.05)
    assert "error: no Kafka broker answered at\n127.0.0.1:9092 within" in capsys.readouterr().out
