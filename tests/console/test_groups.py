"""``partage groups``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from partage import sync
from partage.client.group.offsets import OffsetAndMetadata
from partage.console.common.client_options import client_options
from partage.model.topic_partition import TopicPartition as Place

from .cli import PartageCli, records
from .generic_member import GenericMember


class Readers(NamedTuple):
    """A group with two members, one of them static, and its topic."""

    group: str
    topic: str
    members: list[Consumer]


@pytest.fixture(scope="module")
def readers(broker: str) -> Iterator[Readers]:
    partage, topic, group = PartageCli(broker), "read-by-two", "two-readers"
    partage("topics", "create", "-t", topic, "-p", 4)
    for partition in range(4):
        values = records([str(n) for n in range(partition + 1)])
        partage("produce", "-t", topic, "-p", partition, stdin=values)
    members = []
    for instance_id in (None, "static-1"):
        settings = {
            "bootstrap.servers": broker,
            "group.id": group,
            "client.id": f"client-{len(members)}",
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        members.append(Consumer(settings))
        members[-1].subscribe([topic])
    while sorted(len(member.assignment()) for member in members) != [2, 2]:
        for member in members:
            member.poll(0.05)
    commits = [TopicPartition(topic, partition, 1, metadata="half") for partition in (0, 3)]
    for member in members:
        owned = {each.partition for each in member.assignment()}
        member.commit(
            offsets=[each for each in commits if each.partition in owned], asynchronous=False
        ) if owned & {0, 3} else None
    yield Readers(group, topic, members)
    for member in members:
        member.close()


def test_describe_prints_json(partage: PartageCli, readers: Readers) -> None:
    described = partage("groups", "describe", "--group", readers.group, "--json").json
    (group,) = described["groups"]
    host, _, port = partage.bootstrap_servers.rpartition(":")
    coordinator = group.pop("coordinator")
    assert (coordinator["host"], coordinator["port"]) == (host, int(port))
    members, offsets = group.pop("members"), group.pop("offsets")
    assert group == {
        "group": readers.group,
        "protocol_type": "consumer",
        "type": "Classic",
        "protocol": "range",
        "state": "Stable",
        "total_lag": 3,
        "group_epoch": None,
        "target_epoch": None,
    }
    owners = {}
    for member in members:
        assert member["subscription"] == [readers.topic]
        assert member["host"]
        assert member["metadata_bytes"] > 10
        assert member["assignment_bytes"] > 10
        (owned,) = member["partitions"]
        assert owned["topic"] == readers.topic
        owners |= dict.fromkeys(owned["partitions"], member["member_id"])
    assert {member["client_id"]: member["group_instance_id"] for member in members} == {
        "client-0": None,
        "client-1": "static-1",
    }
    assert offsets == [
        {
            "topic": readers.topic,
            "partition": partition,
            "current_offset": current,
            "log_end_offset": partition + 1,
            "lag": None if current is None else partition,
            "leader_epoch": None,
            "metadata": None if current is None else "half",
            "member_id": owners[partition],
        }
        for partition, current in ((0, 1), (1, None), (2, None), (3, 1))
    ]


def test_describe_prints_offsets_and_lag(partage: PartageCli, readers: Readers) -> None:
    header, *rows, total = partage("groups", "describe", "--group", readers.group).lines
    assert header.split() == (
        [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ]
    )
    assert [row.split()[:6] for row in rows] == [
        [readers.group, readers.topic, "0", "1", "1", "0"],
        [readers.group, readers.topic, "1", "-", "2", "-"],
        [readers.group, readers.topic, "2", "-", "3", "-"],
        [readers.group, readers.topic, "3", "1", "4", "3"],
    ]
    assert {row.split()[8] for row in rows} == {"client-0", "client-1"}
    assert total == f"group {readers.group}: Stable, 2 members, 4 partitions, total lag 3"
    verbose = partage("groups", "describe", "--group", readers.group, "--offsets", "--verbose")
    assert verbose.lines[0].split()[-3:] == ["INSTANCE-ID", "LEADER-EPOCH", "METADATA"]
    assert "half" in verbose.lines[1]
    assert "static-1" in verbose.out


def test_describe_prints_members(partage: PartageCli, readers: Readers) -> None:
    header, *rows = partage("groups", "describe", "--group", readers.group, "--members").lines
    assert header.split() == (
        ["GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    )
    owned = {row.split()[4]: row.split()[5:] for row in rows}
    spans = {f"{readers.topic}(0-1)", f"{readers.topic}(2-3)"}
    assert {assignment for _, assignment in owned.values()} == spans
    assert {number for number, _ in owned.values()} == {"2"}
    verbose = partage("groups", "describe", "--group", readers.group, "--members", "-v").lines
    more = ["SUBSCRIPTION", "METADATA-BYTES", "ASSIGNMENT-BYTES", "ASSIGNMENT"]
    assert verbose[0].split()[-4:] == more
    assert verbose[1].split()[-4] == readers.topic


def test_members_prints_members(partage: PartageCli, readers: Readers) -> None:
    header, *rows = partage("groups", "members", readers.group).lines
    first, last = ["GROUP", "CONSUMER-ID", "INSTANCE-ID"], ["ASSIGNOR", "#PARTITIONS", "ASSIGNMENT"]
    assert header.split() == [*first, "CLIENT-ID", "HOST", *last]
    shown = {row.split()[3]: row.split()[5:] for row in rows}
    assert set(shown) == {"client-0", "client-1"}
    assert sorted(shown.values()) == [
        ["range", "2", f"{readers.topic}(0-1)"],
        ["range", "2", f"{readers.topic}(2-3)"],
    ]
    (group,) = partage("groups", "members", "--group", readers.group, "--json").json["groups"]
    assert (group["group"], group["state"], group["assignor"]) == (readers.group, "Stable", "range")
    (described,) = partage("groups", "describe", "-g", readers.group, "--json").json["groups"]
    assert group["members"] == described["members"]


def test_describe_prints_state(partage: PartageCli, readers: Readers) -> None:
    ran = partage("groups", "describe", "--all-groups", "--state")
    (row,) = [line for line in ran.lines if line.startswith(f"{readers.group} ")]
    where = partage.bootstrap_servers
    assert row.split()[:2] == [readers.group, where]
    # Between them are columns of epochs if another group has the consumer protocol.
    assert row.split()[3:7] == ["consumer", "Classic", "range", "Stable"]
    assert row.split()[-2:] == ["2", "3"]


def test_delete_group_with_members_fails(partage: PartageCli, readers: Readers, name: str) -> None:
    error = partage.fails("groups", "delete", "--group", readers.group)
    assert error == f"group {readers.group} was not deleted: it has members; stop them first"
    ran = partage("groups", "delete", "-g", readers.group, "-g", name, "--json", code=1)
    assert ran.json == {
        "deleted": [],
        "failed": [
            {"group": readers.group, "error": "it has members; stop them first"},
            {"group": name, "error": "no such group"},
        ],
        "executed": True,
    }
    dry = partage("groups", "delete", readers.group, name, "--dry-run", "--json", code=1)
    assert dry.json == {**ran.json, "executed": False}


def test_list_and_delete(partage: PartageCli, readers: Readers, topic: str, name: str) -> None:
    partage("produce", "-t", topic, stdin="a\n")
    partage("consume", "-t", topic, "--group", name, "--from-beginning", "-e")
    listed = partage("groups", "list", "--json").json["groups"]
    both = {each["group"]: each for each in listed if each["group"] in (name, readers.group)}
    common = {"protocol_type": "consumer", "type": "Classic"}
    assert both == {
        name: {"group": name, **common, "state": "Empty", "members": 0},
        readers.group: {"group": readers.group, **common, "state": "Stable", "members": 2},
    }
    empty = [line.split()[0] for line in partage("groups", "list", "--state", "empty").lines]
    assert name in empty
    assert readers.group not in empty
    ran = partage("groups", "describe", "--group", name)
    assert ran.err == f"group {name} has no members\n"
    assert ran.lines[-1] == f"group {name}: Empty, 0 members, 1 partition, total lag 0"
    assert partage("groups", "delete", name, "--dry-run").out == f"would delete group {name}\n"
    assert name in partage("groups", "list").out
    assert partage("groups", "delete", "--group", name).out == f"deleted group {name}\n"
    assert name not in partage("groups", "list").out


def test_delete_group_on_terminal_asks_first(partage: PartageCli, topic: str, name: str) -> None:
    partage("produce", "-t", topic, stdin="a\n")
    partage("consume", topic, "--group", name, "--from-beginning", "-e")
    code, shown = partage.dialogue(["groups", "delete", name], "n\n")
    assert "Delete 1 group and all committed offsets? [y/N]:" in shown
    assert code == 1
    assert shown.endswith("error: nothing was changed\n")
    assert name in partage("groups", "list").out


def test_lag_of_deleted_topic_is_unknown(partage: PartageCli, topic: str, name: str) -> None:
    partage("produce", "-t", topic, stdin="a\n")
    partage("consume", "-t", topic, "--group", name, "--from-beginning", "-e")
    partage("topics", "delete", "-t", topic)
    (group,) = partage("groups", "describe", "-g", name, "--json").json["groups"]
    for offset in group["offsets"]:
        assert (offset["log_end_offset"], offset["lag"]) == (None, None)
    assert group["total_lag"] == 0


def test_describe_group_of_other_protocol_type(partage: PartageCli, name: str) -> None:
    with GenericMember(partage.bootstrap_servers, name, b"\x00\x01url", b"assigned"):
        (line,) = [
            each
            for each in partage("groups", "list", "--json").json["groups"]
            if each["group"] == name
        ]
        assert line == {
            "group": name,
            "protocol_type": "connect",
            "type": "Classic",
            "state": "Stable",
            "members": 1,
        }
        (group,) = partage("groups", "describe", "-g", name, "--json").json["groups"]
        assert (group["protocol_type"], group["protocol"]) == ("connect", "sessioned")
        (member,) = group["members"]
        assert member["client_id"] == "worker-1"
        assert (member["metadata_bytes"], member["assignment_bytes"]) == (5, 8)
        assert (member["subscription"], member["partitions"]) == (None, [])
        header, row, kind, total = partage("groups", "describe", "-g", name).lines
        assert header.split()[-2:] == ["METADATA-BYTES", "ASSIGNMENT-BYTES"]
        assert row.split()[-2:] == ["5", "8"]
        assert kind == f"group {name}: protocol type connect, protocol sessioned"
        assert total == f"group {name}: Stable, 1 member, 0 partitions, total lag 0"


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (["describe", "--group", "missing"], "no such group: missing", 1),
        (["describe", "-g", "missing", "-g", "none"], "no such group: missing, none", 1),
        (["describe"], "either groups or --all-groups", 2),
        (["describe", "--all-groups", "--group", "g"], "either groups or --all-groups", 2),
        (["describe", "-g", "g", "--members", "--state"], "cannot be combined", 2),
        (["list", "--state", "asleep"], "unknown state: asleep", 2),
        (["members"], "no group given", 2),
        (["members", "missing"], "no such group: missing", 1),
        (["members", "missing", "--watch"], "no such group: missing", 1),
        (["members", "g", "--watch", "--json"], "cannot be combined", 2),
        (["describe", "-g", "g", "--watch", "--json"], "cannot be combined", 2),
        (["delete"], "no group given", 2),
        (["delete", "--group", "missing"], "group missing was not deleted: no such group", 1),
    ],
)
def test_invalid_options_are_rejected(
    partage: PartageCli, options: list[str], says: str, code: int
) -> None:
    assert says in partage.fails("groups", *options, code=code)


def test_missing_group_suggests_similar_names(partage: PartageCli, readers: Readers) -> None:
    error = partage.fails("groups", "describe", f"{readers.group}x")
    assert error.startswith(f"no such group: {readers.group}x; did you mean ")
    assert readers.group in error


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_delete_missing_group_suggests_similar_names(
    partage: PartageCli, readers: Readers, option: str
) -> None:
    error = partage.fails("groups", "delete", f"{readers.group}x", option)
    said = f"group {readers.group}x was not deleted: no such group; did you mean "
    assert error.startswith(said)
    assert readers.group in error.removeprefix(said)


def test_describe_with_longest_metadata(partage: PartageCli, topic: str, name: str) -> None:
    """librdkafka reads beyond the end of such metadata, so it is not used."""
    groups = [f"{name}-long-{number}" for number in range(10)]
    for group in groups:
        with sync.Consumer(partage.bootstrap_servers, group_id=group) as member:
            place = Place(topic, 0)
            member.assign([place])
            member.commit({place: OffsetAndMetadata(1, "m" * 4096)})
    found = partage("groups", "describe", "--all-groups", "--json").json["groups"]
    by_name = {each["group"]: each["offsets"] for each in found}
    assert {row["metadata"] for group in groups for row in by_name[group]} == {"m" * 4096}


def test_delete_falls_back_to_librdkafka(partage: PartageCli, topic: str, name: str) -> None:
    partage("produce", "-t", topic, stdin="a\n")
    partage("consume", topic, "--group", name, "--from-beginning", "-e")
    command = ["groups", "delete", name, f"{name}-none", "--json"]
    ran = partage(*command, "-X", "enable.ssl.certificate.verification=false", code=1)
    assert ran.json == {
        "deleted": [name],
        "failed": [{"group": f"{name}-none", "error": "no such group"}],
        "executed": True,
    }


@pytest.mark.parametrize(
    "property_", ["enable.ssl.certificate.verification=false", "ssl.ca.location=/none"]
)
def test_describe_falls_back_to_librdkafka(
    partage: PartageCli, readers: Readers, property_: str
) -> None:
    """librdkafka supports more security properties than our client, and ignores some without
    effect.
    """
    assert client_options(dict([property_.split("=")]), 1_000) is None
    described = partage("groups", "describe", "-g", readers.group, "-J", "-X", property_).json
    again = partage("groups", "describe", "-g", readers.group, "-J").json
    assert described == again
    assert {row["metadata"] for row in described["groups"][0]["offsets"]} == {"half", None}
