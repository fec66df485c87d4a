"""``partage groups delete-offsets`` and ``partage groups remove-member``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from .cli import PartageCli, records


@contextmanager
def member(partage: PartageCli, topic: str, **settings: str) -> Iterator[Consumer]:
    """A member of the group with the topic's name that owns all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": partage.bootstrap_servers,
            "group.id": topic,
            "client.id": "reader",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        consumer.subscribe([topic])
        while len(consumer.assignment()) != 4:
            consumer.poll(0.02)
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def committed(partage: PartageCli, topic: str) -> str:
    """A group with the topic's name, and offsets of the partitions 0 and 1."""
    for partition in (0, 1):
        partage("produce", "-t", topic, "-p", partition, stdin=records(["a", "b"]))
    partage("consume", topic, "--group", topic, "--from-beginning", "-e")
    return topic


def offsets(partage: PartageCli, group: str) -> dict[int, int | None]:
    (described,) = partage("groups", "describe", group, "--json").json["groups"]
    return {each["partition"]: each["current_offset"] for each in described["offsets"]}


def test_delete_offsets_deletes_only_named_partitions(partage: PartageCli, committed: str) -> None:
    before = offsets(partage, committed)
    named = ["groups", "delete-offsets", committed, "--topic", f"{committed}:0"]
    positional = ["groups", "delete-offsets", committed, f"{committed}:0"]
    dry = partage(*positional, "--dry-run")
    assert [row.split() for row in dry.lines[1:]] == [[committed, "0", "2"]]
    assert dry.err == "dry run: would delete 1 offset\n"
    assert offsets(partage, committed) == before
    deleted = partage(*named, "--json").json
    place = {"topic": committed, "partition": 0, "offset": 2, "error": None}
    assert deleted == {"group": committed, "executed": True, "offsets": [place]}
    assert offsets(partage, committed).keys() == before.keys() - {0}
    left = partage("groups", "delete-offsets", committed, "--all-topics")
    assert left.err == f"deleted {len(before) - 1} offset{'s' * (len(before) > 2)}\n"
    assert offsets(partage, committed) == {}


def test_delete_offsets_of_subscribed_topic_fails(partage: PartageCli, committed: str) -> None:
    with member(partage, committed):
        ran = partage("groups", "delete-offsets", committed, "-t", f"{committed}:0,1", code=1)
    assert ran.err.splitlines()[-1] == (
        f"error: 2 offsets of group {committed} not deleted: {committed}: "
        "a member of the group subscribes to the topic; stop the members first"
    )
    assert ran.out == ""


def test_delete_offsets_on_terminal_asks_first(partage: PartageCli, committed: str) -> None:
    before = offsets(partage, committed)
    command = ["groups", "delete-offsets", committed, "--topic", f"{committed}:0,1"]
    code, shown = partage.dialogue(command, "n\n")
    assert f"Delete 2 committed offsets of group {committed}? [y/N]:" in shown
    assert code == 1
    assert offsets(partage, committed) == before


def test_delete_offsets_mistakes_are_named(partage: PartageCli, committed: str) -> None:
    command = ["groups", "delete-offsets"]
    assert partage.fails(*command, "none", "--all-topics") == "no such group: none"
    without = partage.fails(*command, committed, "--topic", "other")
    assert without == f"group {committed} has no committed offsets of these partitions"
    for wrong in ([], ["--topic", committed, "--all-topics"], [committed, "--all-topics"]):
        says = partage.fails(*command, committed, *wrong, code=2)
        assert says == "delete-offsets requires either topics or --all-topics"
    named = partage.fails(*command, "--group", committed, "other", "elsewhere")
    assert named == f"group {committed} has no committed offsets of these partitions"


def test_remove_member_by_id_frees_its_partitions(partage: PartageCli, topic: str) -> None:
    with member(partage, topic) as consumer:
        named = ["groups", "remove-member", topic, "--member-id", consumer.memberid()]
        dry = partage(*named, "--dry-run").out
        assert dry == f"would remove member {consumer.memberid()} (client reader)\n"
        (removed,) = partage(*named, "--json").json["members"]
        assert removed == {
            "member_id": consumer.memberid(),
            "group_instance_id": None,
            "client_id": "reader",
            "error": None,
        }
        again = partage.fails(*named)
        assert again == f"group {topic} has no member with member id {consumer.memberid()}"


def test_remove_static_member_after_its_stop(partage: PartageCli, topic: str) -> None:
    """A stopped static member keeps its partitions until its session expires."""
    with member(partage, topic, group_instance_id="reader-1", session_timeout_ms="45000") as one:
        member_id = one.memberid()
    (described,) = partage("groups", "members", topic, "--json").json["groups"]
    assert [each["member_id"] for each in described["members"]] == [member_id]
    ran = partage("groups", "remove-member", topic, "--group-instance-id", "reader-1")
    assert ran.out == f"removed member {member_id} (client reader)\n"
    assert partage("groups", "members", topic).err == f"group {topic} has no members\n"


def test_remove_all_members_on_terminal_asks_first(partage: PartageCli, topic: str) -> None:
    with member(partage, topic) as consumer:
        command = ["groups", "remove-member", topic, "--all-members"]
        code, shown = partage.dialogue(command, "n\n")
        assert f"Remove 1 member from group {topic}? [y/N]:" in shown
        assert code == 1
        (described,) = partage("groups", "members", topic, "--json").json["groups"]
        assert [each["member_id"] for each in described["members"]] == [consumer.memberid()]
        assert partage(*command).out.startswith("removed member ")


def test_remove_member_unknown_instance_id_suggests_similar_ids(
    partage: PartageCli, topic: str
) -> None:
    with member(partage, topic, group_instance_id="reader-1"):
        command = ["groups", "remove-member", topic, "--group-instance-id", "reader-2"]
        error = partage.fails(*command)
        assert error.endswith("no member with group.instance.id reader-2; did you mean reader-1?")


def test_remove_member_mistakes_are_named(partage: PartageCli, committed: str) -> None:
    command = ["groups", "remove-member"]
    assert partage.fails(*command, "none", "--all-members") == "no such group: none"
    assert "either --member-id" in partage.fails(*command, committed, code=2)
    assert (
        partage(*command, committed, "--all-members").out == f"group {committed} has no members\n"
    )
    unknown = partage.fails(*command, committed, "--group-instance-id", "x")
    assert unknown == f"group {committed} has no member with group.instance.id x"
