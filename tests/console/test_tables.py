"""Tables fit into narrow terminals: less important columns are left out, ids are never folded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from partage.console.common.table import Table, frame_width, print_table

from .cli import PartageCli

PARTITIONS = 14
TOPIC = GROUP = "departures"


@pytest.fixture(scope="module")
def members(broker: str) -> Iterator[dict[str, str]]:
    """Three members of a group, which read 14 partitions: member ids by client id."""
    partage = PartageCli(broker)
    partage("topics", "create", TOPIC, "--partitions", PARTITIONS)
    joined = []
    for number in range(3):
        settings = {"bootstrap.servers": broker, "group.id": GROUP, "client.id": f"reader-{number}"}
        settings |= {"heartbeat.interval.ms": "100", "partition.assignment.strategy": "roundrobin"}
        joined.append(Consumer(settings))
        joined[-1].subscribe([TOPIC])
    while sorted(len(each.assignment()) for each in joined) != [4, 5, 5]:
        for each in joined:
            each.poll(0.02)
    yield {f"reader-{number}": each.memberid() for number, each in enumerate(joined)}
    for each in joined:
        each.close()


def shown(partage: PartageCli, width: int, *command: str) -> list[str]:
    """Return the lines of a command on a terminal of this width."""
    with frame_width(width):
        return partage(*command).lines


@pytest.mark.parametrize("width", [80, 100, 140])
def test_describe_shows_each_partition_on_one_line(
    partage: PartageCli, members: dict[str, str], width: int
) -> None:
    header, *rows, total = shown(partage, width, "groups", "describe", GROUP)
    assert len(rows) == PARTITIONS
    assert total.startswith(f"group {GROUP}: Stable, 3 members, ")
    assert max(len(line) for line in [header, *rows]) <= width
    wanted = {"TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID"}
    assert wanted <= set(header.split())
    assert ("CONSUMER-ID" in header) == (width >= 140)
    place = header.split().index("CLIENT-ID")
    assert {row.split()[place] for row in rows} == set(members)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_members_always_show_ids_and_assignments(
    partage: PartageCli, members: dict[str, str], width: int
) -> None:
    for command in (["members", GROUP], ["describe", GROUP, "--members"]):
        header, *rows = shown(partage, width, "groups", *command)
        assert max(len(line) for line in [header, *rows]) <= width
        assert {"CONSUMER-ID", "ASSIGNMENT"} <= set(header.split())
        text = "\n".join([header, *rows])
        assert all(member_id in text for member_id in members.values())
        assert "".join(" ".join(rows).split()).count(f"{TOPIC}(") == 3


@pytest.mark.parametrize("wide", [False, True])
def test_tables_fit_80_columns_with_long_member_ids(
    partage: PartageCli, name: str, topic: str, wide: bool
) -> None:
    settings = {"bootstrap.servers": partage.bootstrap_servers, "group.id": f"{name}-long"}
    settings |= {"client.id": ("console-consumer-" * 3)[: 43 if wide else 24]}
    reader = Consumer(settings)
    reader.subscribe([topic])
    while not reader.assignment():
        reader.poll(0.02)
    for command, *more in (["members"], ["describe", "--members"], ["describe", "-v", "--members"]):
        lines = shown(partage, 80, "groups", command, f"{name}-long", *more)
        assert max(map(len, lines)) <= 80
        assert any(reader.memberid() in line for line in lines)
        assert any(line.endswith(f" {topic}(0-3)") for line in lines)
    assert max(map(len, shown(partage, 80, "groups", "describe", f"{name}-long"))) <= 80
    reader.close()


def test_transactions_at_80_columns_keep_ids(partage: PartageCli, topic: str, name: str) -> None:
    transactional_id = f"{name}-{'copier-of-flights-' * 2}"
    servers = {"bootstrap.servers": partage.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(4):
        producer.produce(topic, "x", partition=partition)
    producer.flush(30)
    for command, wanted in (
        (["describe", transactional_id], transactional_id),
        (["list"], transactional_id),
        (["describe-producers", topic], topic),
        (["find-hanging", topic], "TRANSACTIONAL-ID"),
    ):
        lines = shown(partage, 80, "transactions", *command)
        assert max(map(len, lines)) <= 80
        assert any(wanted in line for line in lines)
    producer.abort_transaction(30)


def test_explain_at_80_columns_keeps_member_ids(
    partage: PartageCli, members: dict[str, str]
) -> None:
    lines = shown(partage, 80, "groups", "explain", GROUP)
    assert all(any(member_id in line for line in lines) for member_id in members.values())


def test_missing_columns_are_named_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["GROUP", "HOST", "CLIENT-ID"]
    with frame_width(12):
        print_table(columns, [("tower", "10.0.0.1", "reader")], optional=["HOST", "CLIENT-ID"])
    out, err = capsys.readouterr()
    assert (out, err) == ("GROUP\ntower\n", "not shown in 12 columns: HOST, CLIENT-ID\n")
    print_table(columns, [("tower", "10.0.0.1", "reader")], optional=["HOST", "CLIENT-ID"])
    out, err = capsys.readouterr()
    assert (out.split()[:3], err) == (columns, "")


def test_empty_columns_are_left_out_first() -> None:
    table = Table(["A", "INSTANCE-ID", "HOST"], [("a", None, "here")])
    fitted, missing = table.fit(12, ["HOST", "INSTANCE-ID"])
    assert missing == ["INSTANCE-ID"]
    assert list(fitted.lines(None)) == ["A  HOST", "a  here"]


def test_narrow_column_returns_after_wide_one_was_left_out() -> None:
    table = Table(["ID", "HOST", "NAME"], [("1", "x", "n" * 40)])
    _, missing = table.fit(12, ["HOST", "NAME"])
    assert missing == ["NAME"]


def test_last_column_wraps_at_commas_and_spaces() -> None:
    table = Table(["ID", "ASSIGNMENT"], [("m1", "flights(0,2,4,6,8) weather(1)"), ("m2", "-")])
    assert list(table.lines(20)) == [
        "ID  ASSIGNMENT",
        "m1  flights(0,2,4,6,",
        "    8) weather(1)",
        "m2  -",
    ]


def test_wrapped_column_follows_below_long_ids() -> None:
    table = Table(["ID", "ASSIGNMENT"], [("m" * 24, "flights(0,2,4,6,8) weather(1)"), ("m2", "-")])
    assert list(table.lines(30)) == [
        "ID",
        "    ASSIGNMENT",
        "m" * 24,
        "    flights(0,2,4,6,8)",
        "    weather(1)",
        "m2",
        "    -",
    ]


def test_wrapped_column_has_lines_below_if_that_is_shorter() -> None:
    why = "no member owned it: it is new, or its owner left or revoked it"
    table = Table(["TOPIC", "HAS", "WHY"], [("flights", "m" * 44, why)] * 12)
    lines = list(table.lines(80))
    assert len(lines) == 2 * 13
    assert lines[2:4] == [f"flights  {'m' * 44}", f"    {why}"]


def test_columns_may_have_equal_names() -> None:
    table = Table(["", "range", "range"], [("moved", "1", "1,000")], right=["range"])
    assert list(table.lines(None)) == ["       range  range", "moved      1  1,000"]


def test_control_characters_are_escaped() -> None:
    table = Table(["GROUP"], [("a\nb\x1b[2J",)])
    assert list(table.lines(None)) == ["GROUP", "a\\nb\\x1b[2J"]


@given(
    cells=st.lists(st.lists(st.text(max_size=12), min_size=4, max_size=4), max_size=4),
    width=st.integers(1, 80),
    optional=st.lists(st.sampled_from(["A", "BB", "CCC"]), unique=True),
)
def test_table_is_too_wide_only_if_required_columns_are(
    cells: list[list[str]], width: int, optional: list[str]
) -> None:
    columns = ["A", "BB", "CCC", "DDDD"]
    table = Table(columns, cells)
    fitted, missing = table.fit(width, optional)
    assert set(missing) <= set(optional)
    assert len(list(fitted.lines(None))) == 1 + len(cells)
    if max(map(cell_len, fitted.lines(None))) > width:
        assert set(missing) == set(optional)
