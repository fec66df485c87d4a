"""``partage groups`` with the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.consumer_groups.script import ConsumerGroupScript
from interop.oracle.connection import Connection

from .cli import PartageCli

PREFIX = "reconciling-"
GROUP, TOPIC = f"{PREFIX}g", f"{PREFIX}t"


@pytest.fixture(scope="module", autouse=True)
def reconciling(broker: str) -> Iterator[None]:
    """A group with the members A and B; A has not yet given up two of four partitions."""
    with Connection(broker, "members") as connection:
        script = ConsumerGroupScript(connection, PREFIX)
        script.run("create t 4")
        assert script.run("join A t rack=r1") == ["epoch 2 [t:0,1,2,3]"]
        assert script.run("join B t instance=i-1") == ["epoch 3 []"]
        yield
        script.run("leave A")
        script.run("leave B")
    partage = PartageCli(broker)
    listed = partage("groups", "list", "--json").json["groups"]
    partage("groups", "delete", *(g["group"] for g in listed if g["group"].startswith(PREFIX)))


def test_reconciling_group_is_shown_with_epochs_and_targets(partage: PartageCli) -> None:
    (found,) = partage("groups", "describe", GROUP, "--json").json["groups"]
    assert (found["type"], found["state"]) == ("Consumer", "Reconciling")
    assert (found["protocol"], found["group_epoch"], found["target_epoch"]) == ("uniform", 3, 3)
    first, second = sorted(found["members"], key=lambda each: str(each["member_id"]))
    assert (first["epoch"], first["protocol"], first["rack"]) == (2, "Consumer", "r1")
    assert first["partitions"] == [{"topic": TOPIC, "partitions": [0, 1, 2, 3]}]
    assert first["target"] == [{"topic": TOPIC, "partitions": [0, 1]}]
    assert (second["epoch"], second["group_instance_id"]) == (3, "i-1")
    assert (second["partitions"], second["subscription"]) == ([], [TOPIC])
    assert second["target"] == [{"topic": TOPIC, "partitions": [2, 3]}]


def test_state_and_members_have_epochs_as_columns(partage: PartageCli) -> None:
    header, row = partage("groups", "describe", GROUP, "--state").lines
    shown = dict(zip(header.replace("COORDINATOR (ID)", "AT ID").split(), row.split(), strict=True))
    assert (shown["STATE"], shown["GROUP-EPOCH"], shown["TARGET-EPOCH"]) == (
        "Reconciling",
        "3",
        "3",
    )
    header, *rows = partage("groups", "describe", GROUP, "--members").lines
    assert header.split()[-3:] == ["CURRENT-EPOCH", "ASSIGNMENT", "TARGET-ASSIGNMENT"]
    assert sorted(row.split()[-3:] for row in rows) == [
        ["2", f"{TOPIC}(0-3)", f"{TOPIC}(0-1)"],
        ["3", "-", f"{TOPIC}(2-3)"],
    ]
    _, *rows = partage("groups", "members", GROUP).lines
    assert sorted(row.split()[-3:] for row in rows) == [
        ["2", f"{TOPIC}(0-3)", f"{TOPIC}(0-1)"],
        ["3", "-", f"{TOPIC}(2-3)"],
    ]


def test_list_filters_types_and_states(partage: PartageCli) -> None:

    def listed(*options: str) -> list[list[str]]:
        lines = partage("groups", "list", *options).lines
        return [line.split()[1:] for line in lines if line.split()[0] == GROUP]

    reconciling = ["consumer", "Consumer", "Reconciling", "2"]
    assert listed() == [reconciling]
    assert listed("--type", "consumer", "--state", "reconciling") == [reconciling]
    assert listed("--type", "classic") == []
    assert listed("--state", "stable") == []
    assert listed("--type", "Classic,Consumer") == [reconciling]
    assert "unknown type: share" in partage.fails("groups", "list", "--type", "share", code=2)


def test_explain_compares_current_and_target_assignment(partage: PartageCli) -> None:
    shown = partage("groups", "explain", GROUP, "--json").json
    assert (shown["generation"], shown["leader"], shown["assignor"]) == (3, None, "uniform")
    assert [
        (each["partition"], each["owner_ids"], each["member_ids"]) for each in shown["partitions"]
    ] == [(0, ["A"], ["A"]), (1, ["A"], ["A"]), (2, ["A"], ["B"]), (3, ["A"], ["B"])]
    assert shown["partitions"][3]["why"] == "moved from A to balance the group"
    *_, last = partage("groups", "explain", GROUP).lines
    assert last == (
        f"group {GROUP}: epoch 3, Reconciling; assignor uniform of the coordinator, not run again, "
        "because it ran in the broker"
    )
