"""``partage lab``: worlds on the command line, and what if of a live group."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from msgspec.structs import replace

from partage.console import lab_whatif
from partage.console.failure import Failure
from partage.console.group_states import GroupState, MemberState
from partage.lab.running import draw, live

from .commands import Commands, records

#: Worlds take a tenth of a second each, on a machine that has nothing else to do.
PATIENT = pytest.mark.timeout(300)


@PATIENT
def test_worlds_run_and_are_counted(partage: Commands) -> None:
    ran = partage("lab", "run", "--seeds", 4, "--seed-from", 10, "--jobs", 1)
    assert "4 worlds" in ran.out
    assert "0 broke a rule" in ran.out
    assert any(line.startswith("JoinGroup") for line in ran.lines)


@PATIENT
def test_the_counts_are_json_too(partage: Commands) -> None:
    found = partage("lab", "run", "--seeds", 2, "--jobs", 2, "--json").json
    assert found["worlds"] == 2
    assert found["failures"] == []
    assert sum(found["faults"].values()) > 0


@PATIENT
def test_a_world_without_its_plan_is_a_quiet_one(partage: Commands) -> None:
    ran = partage("lab", "story", 3, "--keep", "none", "--set", "members=2")
    assert "! from here on nothing goes wrong" in ran.out
    assert "JoinGroup" in ran.out
    assert ran.lines[-1] == "seed 3: no rule is broken"


@PATIENT
def test_what_makes_no_sense_is_said(partage: Commands) -> None:
    assert "no option 'nothing'" in partage.fails(
        "lab", "run", "--seeds", 1, "--set", "nothing=1", code=2
    )
    assert "--seeds 1" in partage.fails("lab", "run", "--keep", "3", code=2)
    assert "numbers with commas" in partage.fails("lab", "story", 1, "--keep", "x", code=2)
    assert "members" in partage.fails("lab", "story", 1, "--set", "members=many", code=2)
    assert "seed 1 plans 15 steps" in partage.fails("lab", "story", 1, "--keep", "99", code=2)
    assert "breaks no rule" in partage("lab", "shrink", 3, code=1).err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"members": "0"}, "members=0: Expected `int` >= 1"),
        ({"members": "many"}, "members=many: Expected `int`, got `str`"),
        ({"static_share": "7"}, "static_share=7: Expected `float` <= 1"),
        ({"assignors": "mine"}, "assignors=mine: Invalid enum value 'mine'"),
        ({"safety_ms": "10"}, "safety_ms=10: Expected `int` >= 1000"),
        ({"kinds": "nope"}, "there is no fault 'nope'; there are"),
        ({"kinds": ""}, "there is no fault ''; there are"),
        ({"poll_interval_ms": "90000"}, "poll_interval_ms=90000 is to be less than max_poll"),
        ({"heartbeat_interval_ms": "99999"}, "is to be less than session_timeout_ms"),
        ({"retention_check_ms": "0"}, "retention_check_ms=0: Expected `int` >= 1"),
    ],
)
def test_options_that_no_world_can_have(change: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        draw(1, None, change)


@pytest.mark.parametrize("kept", [(99,), (-1,)])
def test_steps_that_no_plan_has(kept: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"seed 1 plans \d+ steps, from 0 on: none is (99|-1)"):
        draw(1, kept)


@PATIENT
def test_a_command_tells_of_the_same_world() -> None:
    drawn = draw(3, (1, 2), {"members": "2"})
    assert drawn.command() == ("partage lab run --seed-from 3 --seeds 1 --keep 1,2 --set members=2")
    assert live(drawn)[0].history.digest() == live(drawn)[0].history.digest()


@PATIENT
def test_what_if(partage: Commands, topic: str, name: str, tmp_path: Path) -> None:
    partage("produce", "-t", topic, stdin=records(["a", "b", "c"]))
    group = f"{name}-group"
    settings = {
        "bootstrap.servers": partage.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "range",
    }
    members = [Consumer(settings), Consumer(settings)]
    try:
        for member in members:
            member.subscribe([topic])
        deadline_s = time.monotonic() + 45
        while any(len(member.assignment()) != 2 for member in members):
            assert time.monotonic() < deadline_s, "the members do not share the topic"
            for member in members:
                member.poll(0.05)
        picture = tmp_path / "lags.png"
        asked = ("lab", "whatif", "--group", group, "--more", 2, "--sample-s", 0.1)
        asked += ("--max-poll-interval-ms", 30_000)
        found = partage(*asked, "--picture", picture, "--json").json
        shown = partage(*asked, "--assignor", "sticky").out
    finally:
        for member in members:
            member.close()
    assert (found["members"], found["partitions"]) == (2, 4)
    assert [each["assignor"] for each in found["changes"]] == ["range", "cooperative-sticky"]
    outcomes = {(each["event"], each["assignor"]): each for each in found["outcomes"]}
    assert len(outcomes) == 6
    lost = outcomes["a member is lost", "range"]
    assert lost["stood_still_s"] > 2 * 40, "its two partitions wait for the session to end"
    assert lost["moved"] == 2
    eager, kept = (outcomes["2 more members", a] for a in ("range", "cooperative-sticky"))
    assert kept["moved"] == 2
    assert eager["stood_still_s"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "STOOD-STILL-S" in shown
    assert "sticky" in shown


def test_what_if_there_is_no_such_group(partage: Commands, topic: str) -> None:
    said = partage.fails("lab", "whatif", "--group", "nobody")
    assert "nobody" in said


def test_what_if_all_members_leave_while_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    member = MemberState("m", None, "c", "h", [], ["t"], None, None)
    there = GroupState("g", "consumer", "Classic", "range", "Stable", None, [member], [], 0)
    looks = iter([there, replace(there, state="Empty", members=[])])
    monkeypatch.setattr(lab_whatif, "described", lambda cluster, groups: [next(looks)])
    with pytest.raises(Failure, match="group g is Empty, of type consumer"):
        lab_whatif._live(None, "g", 0.0, None)  # type: ignore[arg-type]  # nobody is asked
