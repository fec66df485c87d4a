"""``partage groups explain``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition

from partage.console.groups.explain import Explanation, MemberInput, describe_repetition

from .cli import PartageCli
from .generic_member import GenericMember


class Group:
    """Members of one group that share a topic evenly after each `join`."""

    def __init__(self, servers: str, group: str, topic: str, partitions: int) -> None:
        self._settings = {"bootstrap.servers": servers, "group.id": group}
        self._settings |= {"heartbeat.interval.ms": "100"}
        self._topic = topic
        self._partitions = partitions
        self.members: list[Consumer] = []

    def join(self, assignor: str, client_id: str) -> None:
        strategy = {"partition.assignment.strategy": assignor, "client.id": client_id}
        member = Consumer({**self._settings, **strategy})
        member.subscribe([self._topic])
        self.members.append(member)
        even = self._partitions // len(self.members)
        while any(len(each.assignment()) != even for each in self.members):
            for each in self.members:
                each.poll(0.02)


@pytest.fixture
def group(broker: str, topic: str) -> Iterator[Group]:
    """A group on a topic with four partitions; it has the topic's name."""
    with ExitStack() as stack:
        made = Group(broker, topic, topic, 4)
        yield made
        for member in made.members:
            stack.callback(member.close)


def test_explain_gives_reason_per_partition(partage: PartageCli, topic: str, group: Group) -> None:
    group.join("cooperative-sticky", "first")
    group.join("cooperative-sticky", "second")
    shown = partage("groups", "explain", "-g", topic, "--json").json
    assert (shown["assignor"], shown["known"], shown["repeated"]) == (
        "cooperative-sticky",
        True,
        True,
    )
    clients = {each["member_id"]: each["client_id"] for each in shown["members"]}
    owned = {each["client_id"]: each["owned"] for each in shown["members"]}
    (kept,) = owned["first"]
    assert len(kept["partitions"]) == 2  # The other partitions are already revoked.
    assert owned["second"] == []
    stays = {
        each["partition"]: clients[each["member_ids"][0]]
        for each in shown["partitions"]
        if each["why"] == "stays with its owner"
    }
    assert stays == dict.fromkeys(kept["partitions"], "first")
    new = [each for each in shown["partitions"] if each["partition"] not in stays]
    assert [clients[each["member_ids"][0]] for each in new] == ["second", "second"]
    assert all(each["why"].startswith("no member owned it") for each in new)


def test_explain_prints_tables(partage: PartageCli, topic: str, group: Group) -> None:
    group.join("range", "only")
    header, member, _, columns, *rows, total = partage("groups", "explain", "-g", topic).lines
    assert header.split()[:3] == ["MEMBER-ID", "CLIENT-ID", "SUBSCRIPTION"]
    assert member.split()[1:3] == ["only", topic]
    assert columns.split() == ["TOPIC", "PARTITION", "HAD", "HAS", "WHY"]
    assert [row.split()[:3] for row in rows] == [[topic, str(n), "-"] for n in range(4)]
    said = rf"group {topic}: generation 1, leader only-\S+ \(only\); "
    assert re.fullmatch(said + "assignor range, same result when run again", total)


def test_explain_names_leader(partage: PartageCli, topic: str, group: Group) -> None:
    """The first member leads until it leaves."""
    group.join("range", "first")
    group.join("range", "second")
    assert leader(partage, topic) == "first"
    group.members.pop(0).close()
    give_up = time.monotonic() + 30
    while len(group.members[0].assignment()) != 4:
        group.members[0].poll(0.02)
        assert time.monotonic() < give_up
    assert leader(partage, topic) == "second"


def leader(partage: PartageCli, group: str) -> str | None:
    shown = partage("groups", "explain", "-g", group, "--json").json
    clients = {each["member_id"]: each["client_id"] for each in shown["members"]}
    assert shown["generation"] >= 2
    return clients.get(shown["leader"])


def test_leader_is_found_behind_many_commits(partage: PartageCli, topic: str, group: Group) -> None:
    group.join("range", "only")
    (only,) = group.members
    for number in range(1_500):
        only.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=number < 1_499)
    shown = partage("groups", "explain", "-g", topic, "--json").json
    assert shown["generation"] == 1
    assert shown["leader"].startswith("only")


def test_leader_without_record_is_unknown(
    partage: PartageCli, topic: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.join("range", "only")
    monkeypatch.setattr("partage.console.groups.offsets_topic._TOPIC", topic)
    shown = partage("groups", "explain", "-g", topic, "--json").json
    assert (shown["generation"], shown["leader"]) == (None, None)
    *_, total = partage("groups", "explain", "-g", topic).lines
    assert "leader unknown" in total


def test_unexplainable_groups_are_rejected(partage: PartageCli, topic: str) -> None:
    explain = ("groups", "explain", "-g", topic)
    assert partage.fails(*explain).startswith(f"no such group: {topic}")
    with GenericMember(partage.bootstrap_servers, topic, b"hello", b"assigned"):
        error = partage.fails(*explain)
        assert error == f"cannot explain group {topic}: its protocol type is connect, not consumer"
    partage("consume", "-t", topic, "--group", f"{topic}-e", "--from-beginning", "-e")
    error = partage.fails("groups", "explain", "-g", f"{topic}-e")
    assert error.startswith(f"cannot explain group {topic}-e: it has no members; ")


def test_group_with_offsets_only_has_no_assignment(partage: PartageCli, topic: str) -> None:
    """Offsets that no member committed do not give a group a protocol type."""
    partage("groups", "reset-offsets", topic, "-t", topic, "--to-earliest", "--execute")
    assert partage.fails("groups", "explain", topic) == (
        f"cannot explain group {topic}: it has no members; try again when members have joined"
    )


@pytest.mark.parametrize(
    ("known", "repeated", "rack", "text"),
    [
        (True, True, None, "same result when run again"),
        (True, False, None, "different result when run again now"),
        (False, None, None, "no assignor of Partage; call its assign()"),
        (True, None, "r1", "because members have racks"),
        (True, None, None, "depends on more than members and topics"),
    ],
)
def test_reason_for_not_running_assignor_again(
    known: bool, repeated: bool | None, rack: str | None, text: str
) -> None:
    member = MemberInput(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        subscription=["t"],
        owned=[],
        generation=None,
        rack=rack,
    )
    explanation = Explanation(
        group="g",
        generation=None,
        leader=None,
        assignor="mine",
        known=known,
        repeated=repeated,
        members=[member],
        partitions=[],
    )
    assert text in describe_repetition(explanation)
