"""Errors: one line on stderr, an exit code, and no hanging."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from client.certificate_authority import AlertingPort, Authority
from partage.testing import ThreadedBroker
from partage.testing.process import BrokerProcess

from .cli import PartageCli

EVERY_COMMAND = [
    ["topics", "list"],
    ["topics", "create", "-t", "t"],
    ["topics", "describe"],
    ["topics", "delete", "-t", "t"],
    ["produce", "-t", "t"],
    ["groups", "list"],
    ["groups", "describe", "--all-groups"],
    ["groups", "delete", "-g", "g"],
    ["groups", "delete-offsets", "g", "--all-topics"],
    ["groups", "remove-member", "g", "--all-members"],
    ["topics", "alter", "t", "--partitions", "2"],
    ["configs", "describe", "--topic", "t"],
    ["configs", "alter", "--topic", "t", "--add-config", "retention.ms=1"],
    ["records", "delete", "t", "--before-offset", "end"],
    ["cluster", "describe"],
]


@pytest.fixture(scope="module")
def closed_address() -> Iterator[str]:
    """An address where nothing listens."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture(scope="module")
def silent_address() -> Iterator[str]:
    """An address that accepts connections and never sends a response."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_refused_connection_gives_error(closed_address: str, command: list[str]) -> None:
    error = PartageCli(closed_address).fails(*command, "--timeout-ms", 200)
    assert error == (
        f"no Kafka broker answered at {closed_address} within 200 ms (Connection refused); "
        "check --bootstrap-server, or start one with: partage broker"
    )


@pytest.mark.parametrize("options", [[], ["--group", "g"]])
def test_consume_refused_connection_gives_error(closed_address: str, options: list[str]) -> None:
    command = ["consume", "-t", "t", *options, "--connect-timeout-ms", "200"]
    assert (
        PartageCli(closed_address)
        .fails(*command)
        .startswith(f"no Kafka broker answered at {closed_address} ")
    )


@pytest.mark.parametrize("command", [["topics", "list"], ["produce", "-t", "t"]])
def test_silent_server_gives_timeout_error(silent_address: str, command: list[str]) -> None:
    started = time.monotonic()
    assert "within 300 ms" in PartageCli(silent_address).fails(*command, "--timeout-ms", 300)
    assert time.monotonic() - started < 3


def test_interrupt_ends_wait_for_silent_server() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(60)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = ["topics", "list", "-b", address, "--timeout-ms", "300000"]
        with PartageCli(address).start(*command) as process:
            connection, _ = server.accept()  # The command waits for a response now.
            with closing(connection):
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_unknown_host_gives_error() -> None:
    error = PartageCli("nowhere.invalid:9092").fails("topics", "list", "--timeout-ms", 300)
    assert error.startswith("no Kafka broker answered at nowhere.invalid:9092 within 300 ms (")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topics", "list", "--nope"], "No such option: --nope"),
        (["topics", "lits"], "No such command 'lits'; did you mean list? See partage topics --"),
        (["topic"], "No such command 'topic'; did you mean topics? See partage --help"),
        (["groups", "reset"], "did you mean reset-offsets? See partage groups --help"),
        (
            ["groups", "d"],
            "did you mean describe or delete-offsets or delete? See",
        ),
        (["nope"], "No such command 'nope'; see partage --help"),
        (["grops"], "No such command 'grops'; did you mean groups? See partage --help"),
        (["wbe"], "No such command 'wbe'; did you mean web? See partage --help"),
        (
            ["produce", "-t", "t", "--format", "xml"],
            "Invalid value for '--format': 'xml' is not one",
        ),
        (
            ["--profile", "test", "groups", "list"],
            "No such option: --profile; the options of a command follow it; see partage --help",
        ),
        (
            ["groups", "--json", "list"],
            "No such option: --json; the options of a command follow it; see partage groups --help",
        ),
        (["topics", "list", "--jsno"], "No such option: --jsno; did you mean --json? See partage"),
        (["topics", "create"], "no topic given; name one as an argument or with --topic"),
        (["groups", "explain"], "no group given; name one as an argument or with --group"),
        (["groups", "explain", "a", "-g", "b"], "one group is needed, not a and b"),
        (["produce"], "Missing option '--topic' / '-t'; see partage produce --help"),
        (["cluster", "extra"], "extra"),
        (
            ["topics", "list", "--timeout-ms", "soon"],
            "Invalid value for '--timeout-ms': must be an integer; see partage topics list --help",
        ),
        (["topics", "list", "--timeout-ms", "0"], "'--timeout-ms': must be at least 1; see"),
        (["topics", "list", "--timeout-ms", "3600001"], "'--timeout-ms': must be at most 3600000;"),
        (
            ["topics", "create", "t", "--partitions", "2147483648"],
            "must be at most 2147483647; see",
        ),
        (["topics", "create", "t", "--replication-factor", "32768"], "must be at most 32767; see"),
        (["topics", "alter", "t", "--partitions", "2147483648"], "must be at most 2147483647;"),
        (["transactions", "list", "--older-than-ms", f"{2**63}"], "must be at most 922337203685"),
        (
            ["transactions", "abort", "t:0", "--coordinator-epoch", "2147483648"],
            "'--coordinator-epoch': must be at most 2147483647; see",
        ),
        (["topics", "create", ""], "the name of a topic must not be empty"),
        (["configs", "describe", "--topic", ""], "the name of a topic must not be empty"),
        (["configs", "describe", "--group", ""], "the name of a group must not be empty"),
        (["consume", "t", "--group", ""], "the name of a group must not be empty"),
        (["lab", "trace", "seven"], "Invalid value for 'SEED': must be an integer; see"),
        (["groups", "describe", "g", "--every", "x"], "'--every': must be a number; see"),
        (
            ["transactions", "abort", "t:0", "--producer-epoch", "99999"],
            "'--producer-epoch': must be at most 32767; see",
        ),
        (["broker", "--data-dir", ""], "Invalid value for '--data-dir': must not be empty; see"),
        (["log", "cut", "f", "--at", "1", "--data-dir="], "'--data-dir': must not be empty; see"),
        (["produce", "-t", "t", ""], "Invalid value for 'FILE': must not be empty; see"),
        (["lab", "diagram"], "Missing argument 'DESIGN'; see partage lab diagram --help"),
        (["topics", "list", "-X", "no.such.thing=1"], '-X: no such configuration property: "no'),
        (["topics", "list", "-X", "socket.timeout.ms=x"], '"socket.timeout.ms"'),
        (["topics", "list", "-X", "socket.timeout.ms"], "-X requires NAME=VALUE"),
        (["topics", "list", "--command-config", "none.properties"], "cannot read none.properties"),
    ],
)
def test_invalid_options_are_rejected(partage: PartageCli, arguments: list[str], says: str) -> None:
    assert says in partage.fails(*arguments, code=2)


def test_missing_command_prints_help(partage: PartageCli) -> None:
    for arguments in ([], ["topics"], ["groups"]):
        ran = partage(*arguments, code=2)
        assert ran.out == ""
        assert ran.err.startswith("Usage: partage")


def test_bootstrap_servers_property_wins(partage: PartageCli, closed_address: str) -> None:
    elsewhere = PartageCli(closed_address)
    given = f"bootstrap.servers={partage.bootstrap_servers}"
    assert "TOPIC" in elsewhere("topics", "list", "-X", given).out


def test_verbose_prints_librdkafka_log(closed_address: str) -> None:
    ran = PartageCli(closed_address)("topics", "list", "--timeout-ms", 300, "--verbose", code=1)
    assert "FAIL" in ran.err
    assert ran.err.splitlines()[-1].startswith("error: no Kafka broker answered")


def test_closed_stdout_gives_no_error(partage: PartageCli) -> None:
    ran = partage.shell("{ sleep 0.5; partage topics list --json; } | true; exit ${PIPESTATUS[0]}")
    assert ran.code in (0, 1)
    assert ran.err == ""


@pytest.mark.parametrize("command", ["topics list", "consume {} -e", "produce -t {}"])
def test_closed_streams_are_dev_null(partage: PartageCli, topic: str, command: str) -> None:
    ran = partage.shell(f"partage {command.format(topic)} <&- >&-")
    assert (ran.code, ran.out) == (0, "")
    assert "Traceback" not in ran.err
    assert partage.shell(f"partage {command.format(topic)} <&- >&- 2>&-").code == 0


@pytest.mark.parametrize("command", ["topics list", "topics list --json", "consume {} -e", "-h"])
def test_full_disk_gives_error(partage: PartageCli, topic: str, command: str) -> None:
    partage("produce", "-t", topic, stdin="a\n")
    ran = partage.shell(f"partage {command.format(topic)} > /dev/full")
    assert (ran.code, ran.err) == (1, "error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize(
    "command",
    ["topics create", "consume -g", "groups describe", "produce -t t -H", "topics list -b"],
)
def test_names_that_are_not_utf8_are_refused(partage: PartageCli, command: str) -> None:
    ran = partage.shell(f"partage {command} $'\\xff=1'")
    assert ran.code == 2
    assert "must be valid UTF-8; see partage" in ran.err


def test_tls_to_plaintext_broker_gives_error(partage: PartageCli, tmp_path: Path) -> None:
    # The broker has no TLS, so a client with TLS fails.
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    error = partage.fails("topics", "list", "--command-config", config, "--timeout-ms", 500)
    assert partage.bootstrap_servers in error


def test_expired_certificate_of_broker_is_named(tmp_path: Path) -> None:
    """librdkafka only says that the certificate could not be verified."""
    authority = Authority(tmp_path)
    tls = ("-X", "security.protocol=ssl", "-X", f"ssl.ca.location={authority.certificate}")
    with AlertingPort(authority.issue("old", "127.0.0.1", days=-1).server()) as port:
        error = PartageCli(str(port.address)).fails("topics", "list", *tls, "--timeout-ms", 2000)
    assert error == (
        f"{port.address}: its certificate is not trusted: certificate has expired. Renew the "
        "certificate, or correct this machine's clock"
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("in_group", [False, True], ids=["alone", "group"])
def test_broker_outage_is_survived_or_reported(name: str, in_group: bool) -> None:
    group = ["--group", name] if in_group else []
    with BrokerProcess() as broker:
        partage = PartageCli(broker.bootstrap_servers)
        partage("topics", "create", "-t", name)
        reading = ["--from-beginning", "--connect-timeout-ms", "60000", *group]
        consumer = partage.start("consume", "-t", name, *reading)
        producer = partage.start("produce", "-t", name, "-X", "message.timeout.ms=60000")
        with consumer, producer:
            produce_line(producer, "before")
            assert read_line(consumer) == "before"
            broker.kill()
            broker.start()
            produce_line(producer, "after")
            assert read_line(consumer) == "after"
            producer.send_signal(signal.SIGTERM)
            assert producer.wait(60) == 130
            consumer.send_signal(signal.SIGTERM)
            assert consumer.wait(60) == 0

        reading = ["--from-beginning", "--connect-timeout-ms", "500"]
        reading += ["--group", f"{name}-2"] if in_group else []
        consumer = partage.start("consume", "-t", name, *reading)
        producer = partage.start("produce", "-t", name, "-X", "message.timeout.ms=1000")
        with consumer, producer:
            assert producer.stdin is not None
            produce_line(producer, "heard")
            assert [read_line(consumer) for _ in range(3)] == ["before", "after", "heard"]
            broker.kill()
            produce_line(producer, "lost")
            producer.stdin.close()
            assert consumer.wait(60) == 1
            assert producer.wait(60) == 1
            printed = error_lines(consumer)
            assert printed[0] == f"lost connection to {broker.bootstrap_servers}; reconnecting"
            assert printed[-1].startswith("error: no Kafka broker answered")
            printed = error_lines(producer)
            assert "not delivered: line 2 of stdin: message timed out" in printed
            assert printed[-1].startswith("error: ")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("in_group", [False, True], ids=["alone", "group"])
def test_consume_waits_for_broker_without_limit(name: str, in_group: bool) -> None:
    reading = ["consume", name, "--from-beginning", *(["--group", name] if in_group else [])]
    with BrokerProcess() as broker:
        partage = PartageCli(broker.bootstrap_servers)
        partage("topics", "create", name)
        partage("produce", "-t", name, stdin="before\n")
        broker.kill()
        with partage.start(*reading) as consumer:
            assert consumer.stderr is not None
            assert consumer.stderr.readline() == (
                f"no Kafka broker answers at {broker.bootstrap_servers} (Connection refused); "
                "waiting, Ctrl-C stops\n"
            )
            broker.start()
            assert read_line(consumer) == "before"
            broker.kill()
            told = [consumer.stderr.readline() for _ in range(2)]
            broker.start()
            partage("produce", "-t", name, stdin="after\n")
            assert read_line(consumer) == "after"
            consumer.send_signal(signal.SIGINT)
            _, err = consumer.communicate(timeout=60)
        assert consumer.returncode == 0
        assert told == [
            f"connected to {broker.bootstrap_servers}\n",
            f"lost connection to {broker.bootstrap_servers}; reconnecting\n",
        ]
        assert err.splitlines()[0] == told[0].strip()


def test_longer_reconnect_backoff_replaces_the_defaults(closed_address: str) -> None:
    """librdkafka rejects a backoff that exceeds its maximum."""
    given = ("-X", "reconnect.backoff.ms=2000", "--timeout-ms", 100)
    error = PartageCli(closed_address).fails("topics", "list", *given)
    assert error.startswith("no Kafka broker answered"), error


def test_missing_certificate_file_is_named(closed_address: str) -> None:
    tls = ("-X", "security.protocol=ssl", "-X", "ssl.ca.location=/not/there.pem")
    error = PartageCli(closed_address).fails("topics", "list", *tls, code=2)
    assert error == "ssl.ca.location=/not/there.pem: no such file or directory; correct the path"


def produce_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def error_lines(process: subprocess.Popen[str]) -> list[str]:
    assert process.stderr is not None
    return process.stderr.read().splitlines()


def test_damaged_batch_names_partition_and_remedy(partage_broker: ThreadedBroker) -> None:
    partage_broker.create_topic("flights")
    partage = PartageCli(partage_broker.bootstrap_servers)
    partage("produce", "--topic", "flights", stdin="one\n")
    partage_broker.faults.fail("Fetch", "CORRUPT_MESSAGE")
    error = partage.fails("consume", "flights", "--exit")
    assert error.startswith("cannot read flights-0: fetch from broker 1 failed at offset 0 ")
    assert error.endswith("to read the records after it, use --partition 0 --offset N")
