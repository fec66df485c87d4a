"""Tests of ``partage lab``: simulated worlds, and what-if simulations of a live group."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer
from msgspec.structs import replace

from partage.client import TopicPartition
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.groups.describe import GroupDescription, MemberDescription
from partage.console.groups.describe import TopicPartitions as StateTopicPartitions
from partage.console.lab import live_view
from partage.lab.runner import draw_scenario, run_scenario
from partage.lab.whatif.group_simulation import GroupSimulation
from partage.sync import Consumer as OurConsumer
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    encode_assignment,
    encode_subscription,
)

from .cli import PartageCli, records
from .generic_member import GenericMember

#: A world takes about 0.1 s on an idle machine.
PATIENT = pytest.mark.timeout(600)


@PATIENT
def test_run_prints_coverage_and_counts(partage: PartageCli) -> None:
    ran = partage("lab", "run", "--seeds", 4, "--seed-from", 10, "--jobs", 1)
    assert "4 worlds" in ran.out
    assert "0 broke a rule" in ran.out
    rows = [line.split() for line in ran.lines]
    states = ["none", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "loading"]
    assert ["EVENT", *states, "elsewhere"] in rows
    (heartbeats,) = (row[1:] for row in rows if row[:1] == ["Heartbeat"])
    assert len(heartbeats) == 7
    assert int(heartbeats[4]) > 0
    assert any(row[:2] == ["HeartbeatTimer", "Stable"] for row in rows)
    assert any(line.startswith("uncovered event: SyncTimer in") for line in ran.lines)


@PATIENT
def test_run_json_matches_text(partage: PartageCli) -> None:
    found = partage("lab", "run", "--seeds", 2, "--jobs", 2, "--json").json
    assert found["worlds"] == 2
    assert found["failures"] == []
    assert sum(found["faults"].values()) > 0
    shown = partage("lab", "run", "--seeds", 2, "--jobs", 1).lines
    assert [line for line in shown if line.startswith("uncovered event: ")] == [
        f"uncovered event: {each['event']} in {', '.join(each['states'])}"
        for each in found["uncovered_events"]
    ]
    (uncovered,) = (line for line in shown if line.startswith("uncovered faults: "))
    assert uncovered == f"uncovered faults: {', '.join(found['uncovered_faults'])}".replace(
        "_", " "
    )
    one = partage("lab", "run", "--seeds", 1, "--json").json
    assert (one["uncovered_events"], one["uncovered_faults"]) == (None, None)
    described = " ".join(partage("lab", "run", "--help").out.split())
    assert "--json prints {worlds, events," in described
    assert "uncovered_events: [{event, states}], uncovered_faults}" in described


@PATIENT
def test_run_on_terminal_shows_progress(partage: PartageCli) -> None:
    arguments = ("lab", "run", "--seeds", "12", "--jobs", "1", "--json")
    with partage.drawing(*arguments) as (process, drawn):
        out, _ = process.communicate()
    assert json.loads(out)["worlds"] == 12
    assert re.search(r"worlds.*\b\d+ of 12\b", drawn.text)
    assert "12 of 12" in drawn.text


@PATIENT
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run --seeds 1", "worlds"),
        ("trace 3", "running world 3"),
        ("shrink 3", "shrinking world 3"),
    ],
)
def test_long_command_on_terminal_shows_activity(
    partage: PartageCli, command: str, message: str
) -> None:
    with partage.drawing("lab", *command.split()) as (process, drawn):
        process.communicate()
    assert message in drawn.text


@PATIENT
def test_story_without_steps_breaks_no_rule(partage: PartageCli) -> None:
    ran = partage("lab", "trace", 3, "--keep", "none", "--set", "members=2")
    assert "! all faults are healed" in ran.out
    assert "JoinGroup" in ran.out
    assert ran.lines[-1] == "seed 3: no rule is broken"


@PATIENT
def test_trace_json_matches_text(partage: PartageCli) -> None:
    arguments = ("lab", "trace", 3, "--keep", "2", "--set", "members=2")
    found = partage(*arguments, "--json").json
    assert (found["seed"], found["rule"], found["description"]) == (3, None, "")
    assert found["command"] == "partage lab run --seed-from 3 --seeds 1 --keep 2 --set members=2"
    lines = partage(*arguments).lines
    assert [f"# {name} = {text}" for name, text in found["options"].items()] == [
        line for line in lines if line.startswith("# ") and " = " in line
    ]
    assert [f"{each['at_ms'] / 1000:9.3f}  {each['text']}" for each in found["history"]] == [
        line for line in lines[:-1] if not line.startswith("# ")
    ]
    steps = found["steps"]
    assert [each["step"] for each in steps] == [*range(len(steps))]
    assert [each["step"] for each in steps if each["kept"]] == [2]
    assert f"# step 2: {steps[2]['kind']} at {steps[2]['at_ms'] / 1000:.3f}" in lines
    verbose = partage(*arguments, "--json", "--verbose").json["history"]
    assert len(verbose) > len(found["history"])


@PATIENT
def test_invalid_arguments_are_rejected(partage: PartageCli) -> None:
    assert "unknown option 'nothing'" in partage.fails(
        "lab", "run", "--seeds", 1, "--set", "nothing=1", code=2
    )
    assert "--seeds 1" in partage.fails("lab", "run", "--keep", "3", code=2)
    assert "numbers separated by commas" in partage.fails("lab", "trace", 1, "--keep", "x", code=2)
    assert "members" in partage.fails("lab", "trace", 1, "--set", "members=many", code=2)
    assert "seed 1 has 16 steps" in partage.fails("lab", "trace", 1, "--keep", "99", code=2)
    for arguments in (("run", "--seed-from", -5), ("trace", "--", -5), ("shrink", "--", -5)):
        assert "must be at least 0" in partage.fails("lab", *arguments, code=2)
    assert "breaks no rule" in partage("lab", "shrink", 3, code=1).err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": "0"}, "members=0: Expected `int` >= 1"),
        ({"members": "many"}, "members=many: Expected `int`, got `str`"),
        ({"static_share": "7"}, "static_share=7: Expected `float` <= 1"),
        ({"assignors": "mine"}, "assignors=mine: Invalid enum value 'mine'"),
        ({"safety_ms": "10"}, "safety_ms=10: Expected `int` >= 1000"),
        ({"kinds": "nope"}, "unknown fault 'nope'; faults are"),
        ({"kinds": ""}, "unknown fault ''; faults are"),
        ({"poll_interval_ms": "90000"}, "poll_interval_ms=90000 must be less than max_poll"),
        ({"heartbeat_interval_ms": "99999"}, "must be less than session_timeout_ms"),
        ({"retention_check_ms": "0"}, "retention_check_ms=0: Expected `int` >= 1"),
        (
            {"members": "100", "segment_bytes": "6000"},
            "segment_bytes=6000 is too small for members=100",
        ),
        (
            {"consumer_members": "0", "classic_members": "1"},
            "classic_members needs consumer_members=1 or more",
        ),
    ],
)
def test_invalid_world_option_is_rejected(change: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        draw_scenario(1, None, change)


def test_group_record_of_many_members_fits_in_segment() -> None:
    """With the drawn segment of 1,500 bytes, no generation of this group could be stored."""
    world, verdict = run_scenario(
        draw_scenario(201, None, {"members": "24", "steps": "0", "consumer_members": "0"})
    )
    assert verdict.rule is None, verdict.description
    assert world.options.segment_bytes == 7_500
    assert (
        draw_scenario(201, None, {"members": "4", "consumer_members": "0"}).options.segment_bytes
        == 1_500
    )
    assert draw_scenario(201, None, {"partitions_t": "60"}).options.segment_bytes > 9_000


@pytest.mark.parametrize("kept", [(99,), (-1,)])
def test_unknown_step_is_rejected(kept: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError,
        match=r"seed 1 has \d+ steps, .*: there is no step (99|-1)$",
    ):
        draw_scenario(1, kept)


@PATIENT
def test_rerun_command_gives_same_world() -> None:
    drawn = draw_scenario(3, (1, 2), {"members": "2"})
    assert drawn.rerun_command() == (
        "partage lab run --seed-from 3 --seeds 1 --keep 1,2 --set members=2"
    )
    assert run_scenario(drawn)[0].history.digest() == run_scenario(drawn)[0].history.digest()


OWN_ASSIGNORS = """\
from partage.assignors import Assignor


class Other:
    pass


class First(Assignor):
    name = "first"

    def assign(self, members, topics):
        return {members[0].member_id: {t.name: range(t.partition_count) for t in topics.values()}}


class Nameless(Assignor):
    assign = First.assign


class ByRack(First):
    name = "by-rack"

    def assign(self, members, topics):
        assert [member.rack for member in members] == ["east"] * len(members)
        assert all(len(topic.lags) == topic.partition_count for topic in topics.values())
        return super().assign(members, topics)


class Broken(First):
    name = "broken"

    def assign(self, members, topics):
        return {"size": 1}.pop("length")
"""


@contextlib.contextmanager
def consumer_protocol_group(partage: PartageCli, topic: str, name: str) -> Iterator[None]:
    """Run a group of one member with the consumer protocol, which owns the topic's partitions."""
    with OurConsumer(partage.bootstrap_servers, group_id=name, group_protocol="consumer") as member:
        member.subscribe([topic])
        while len(member.assignment()) < 4:
            member.poll(50)
        yield


@pytest.fixture
def own_assignors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module with assignors of the user, in the current directory."""
    (tmp_path / "mine.py").write_text(OWN_ASSIGNORS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("mine", None)


@pytest.fixture
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, for the user's module ``my_service``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_service", None)


class TestWhatIf:
    @PATIENT
    def test_whatif_starts_with_live_assignment(
        self, partage: PartageCli, topic: str, name: str, tmp_path: Path
    ) -> None:
        """The group uses librdkafka's range assignor; one member is static, one owns nothing."""
        partage("produce", "-t", topic, stdin=records(["a", "b", "c"]))
        partage("topics", "create", "--topic", f"{name}-other", "--partitions", 1)
        group = f"{name}-group"
        settings = {
            "bootstrap.servers": partage.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 20_000,
            "max.poll.interval.ms": 30_000,
        }
        other = f"{name}-other"
        wanted = [[topic], [topic, other], [other], [other]]
        members = [Consumer(settings) for _ in wanted[1:]]
        members.append(Consumer({**settings, "group.instance.id": "a"}))
        with contextlib.ExitStack() as stack:
            for member, topics in zip(members, wanted, strict=True):
                stack.callback(member.close)
                member.subscribe(topics)
            owned = partial(_owned, members)
            _wait(
                members,
                lambda: sorted(map(len, owned())) == [0, 1, 2, 2] and _is_stable(partage, group),
            )
            picture = tmp_path / "lags.png"
            arguments = (
                "lab",
                "whatif",
                "--group",
                group,
                "--joining-members",
                2,
                "--sample-s",
                0.1,
            )
            found = partage(*arguments, "--rate", 100, "--picture", picture, "--json").json
            shown = partage(*arguments, "--assignor", "sticky", "--event", "crash").out
            assert sorted(map(len, owned())) == [0, 1, 2, 2], "the group is unchanged"
        assert (found["members"], found["idle_members"]) == (4, 1)
        assert (found["partitions"], found["unowned_partitions"]) == (5, 0)
        assert (found["session_timeout_ms"], found["max_poll_interval_ms"]) == (20_000, 30_000)
        assert found["timeout_source"] == "members"
        assert found["generation"] >= 1
        assert found["records_per_second"] == pytest.approx(100)
        outcomes = {(each["event"], each["assignor"]): each for each in found["results"]}
        assert len(outcomes) == 8
        again, kept = (outcomes["rebalance", a] for a in ("range", "cooperative-sticky"))
        assert again["handovers"] == 0, "range repeats its assignment"
        assert again["unread_s"] > 0
        assert kept["unread_s"] < again["unread_s"]
        lost = outcomes["crash", "range"]
        assert lost["longest_unread_s"] == pytest.approx(20, abs=4), "until the session expires"
        assert lost["added_lag_max"] > 0
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert "5 partitions, assigned by range to 4 members, of which 1 owns none" in shown
        assert "session timeout 20 s, max.poll.interval 30 s, as its members requested" in shown
        assert re.search(r"\na member is lost: .*, with 2 partitions\n +sticky\n", shown)
        assert re.search(r"\n  unread time, sum of all partitions +[345]\d\.\d s\n", shown)
        assert "restart" not in shown
        assert "nothing is written, so lags do not grow" in shown

    def test_whatif_measures_lag_and_write_rate(
        self, partage: PartageCli, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """30 records are written to a partition during the measurement of 3 s."""
        passed_s = [0.0]

        def sleep(seconds: float) -> None:
            partage("produce", "-t", topic, "-p", 2, stdin=records(["b"] * 30))
            passed_s[0] += seconds

        partage("produce", "-t", topic, "-p", 1, stdin=records(["a"] * 10))
        with OurConsumer(
            partage.bootstrap_servers,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as member:
            member.subscribe([topic])
            while len(member.assignment()) < 4:
                member.poll(50)
            partitions = [TopicPartition(topic, index) for index in range(4)]
            member.commit(
                {partition: 3 if partition.partition == 1 else 0 for partition in partitions}
            )
            with ClusterClient(partage.bootstrap_servers, {}, 5_000, verbose=False) as cluster:
                clock = SimpleNamespace(monotonic=lambda: passed_s[0], sleep=sleep)
                monkeypatch.setattr(live_view, "time", clock)
                sight = live_view.observe_group(cluster, name, 3.0)
        found = {each.index: each for each in sight.group.partitions}
        assert {index: each.lag for index, each in found.items()} == {0: 0, 1: 7, 2: 0, 3: 0}
        assert {index: each.rate for index, each in found.items()} == {0: 0, 1: 0, 2: 10, 3: 0}
        assert sight.uncommitted == 0

    @PATIENT
    def test_whatif_with_session_timeouts_runs_each(
        self, partage: PartageCli, topic: str, name: str
    ) -> None:
        with OurConsumer(partage.bootstrap_servers, group_id=name) as member:
            member.subscribe([topic])
            while len(member.assignment()) < 4:
                member.poll(50)
            arguments = ("lab", "whatif", "--group", name, "--sample-s", 0.1, "--event", "join")
            arguments += ("--joining-members", 1, "--json", "--max-poll-interval-ms", 90_000)
            found = partage(
                *arguments, "--session-timeout-ms", 8_000, "--session-timeout-ms", 30_000
            ).json
        tried = {(each["session_timeout_ms"], each["assignor"]) for each in found["results"]}
        assert {timeout_ms for timeout_ms, _ in tried} == {8_000, 30_000}
        assert found["session_timeout_ms"] == 45_000, "the members' own"

    @PATIENT
    def test_whatif_simulates_the_group_with_the_consumer_protocol(
        self, partage: PartageCli, topic: str, name: str
    ) -> None:
        with OurConsumer(partage.bootstrap_servers, group_id=name) as member:
            member.subscribe([topic])
            while len(member.assignment()) < 4:
                member.poll(50)
            arguments = ("lab", "whatif", "--group", name, "--sample-s", 0.1, "--event", "join")
            arguments += ("--joining-members", 1, "--json", "--assignor", "uniform")
            (result,) = partage(*arguments).json["results"]
        assert (result["assignor"], result["moved_partitions"]) == ("uniform", 2)
        assert result["rebalances"] >= 1
        assert result["unread_partitions"] == 0

    @PATIENT
    def test_whatif_of_a_group_with_the_consumer_protocol(
        self, partage: PartageCli, topic: str, name: str
    ) -> None:
        with consumer_protocol_group(partage, topic, name):
            arguments = ("lab", "whatif", "--group", name, "--sample-s", 0.1, "--event", "join")
            found = partage(*arguments, "--joining-members", 1, "--json").json
        (result,) = found["results"]
        assert (found["assignor"], result["assignor"]) == ("uniform", "uniform")
        assert found["generation"] >= 1
        assert result["moved_partitions"] == 2

    @pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
    def test_whatif_predicts_real_assignment(
        self, partage: PartageCli, topic: str, name: str, assignor: str
    ) -> None:
        """A member joins in the simulation and in reality, and gets the same partitions."""

        def member() -> OurConsumer:
            return stack.enter_context(
                OurConsumer(
                    partage.bootstrap_servers,
                    group_id=name,
                    partition_assignment_strategy=[assignor],
                    heartbeat_interval_ms=500,
                )
            )

        def shared_by(count: int) -> dict[tuple[str, int], str]:
            deadline_s = time.monotonic() + 30
            while True:
                for each in members:
                    each.poll(50)
                (group,) = partage("groups", "members", name, "--json").json["groups"]
                owners = {
                    (owned["topic"], number): each["member_id"]
                    for each in group["members"]
                    for owned in each["partitions"]
                    for number in owned["partitions"]
                }
                if (len(owners), len({*owners.values()})) == (4, count):
                    return owners
                assert time.monotonic() < deadline_s, group

        with contextlib.ExitStack() as stack:
            members = [member(), member()]
            for each in members:
                each.subscribe([topic])
            before = shared_by(2)
            with ClusterClient(partage.bootstrap_servers, {}, 5_000, verbose=False) as cluster:
                found = live_view.observe_group(cluster, name, 0.1).group
            members.append(member())
            members[-1].subscribe([topic])
            after = shared_by(3)
        assert found.owners == before
        (new,) = {*after.values()} - {*before.values()}
        simulation = GroupSimulation(found, assignor)
        simulation.start_process(found.members[0], new)
        assert simulation.wait_until_stable()
        assert simulation.owners == after

    def test_whatif_unknown_group_fails(self, partage: PartageCli) -> None:
        assert "nobody" in partage.fails("lab", "whatif", "--group", "nobody")

    def test_whatif_unknown_assignor_fails(self, partage: PartageCli) -> None:
        arguments = ("lab", "whatif", "--group", "nobody", "--assignor", "mine")
        message = partage.fails(*arguments, code=2)
        assert "unknown assignor 'mine'; assignors are canary, co-partitioned, " in message
        assert message.endswith("uniform, or your own as module:Class")

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("nowhere:Mine", "there is no module 'nowhere' for nowhere:Mine: its directory must "),
            ("mine:Missing", "module 'mine' has no 'Missing'"),
            ("mine:Other", "mine:Other is the class Other, not a subclass of "),
            ("mine:Nameless", 'mine:Nameless has no name: set name = "..." in the class'),
        ],
    )
    def test_whatif_of_a_class_that_is_no_assignor_fails_first(
        self, partage: PartageCli, own_assignors: None, path: str, message: str
    ) -> None:
        arguments = ("lab", "whatif", "--group", "nobody", "--assignor", path)
        assert partage.fails(*arguments, code=2).startswith(message)

    @PATIENT
    def test_whatif_runs_assignor_of_user_with_racks(
        self, partage: PartageCli, topic: str, name: str, own_assignors: None
    ) -> None:
        with OurConsumer(partage.bootstrap_servers, group_id=name) as member:
            member.subscribe([topic])
            while len(member.assignment()) < 4:
                member.poll(50)
            arguments = ("lab", "whatif", name, "--sample-s", 0.1, "--event", "join")
            arguments += ("--joining-members", 1)
            (described,) = partage("groups", "members", name, "--json").json["groups"]
            (client,) = (each["client_id"] for each in described["members"])
            rack = ("--rack", f"{client}=east")
            found = partage(*arguments, "--assignor", "mine:ByRack", *rack, "--json").json
            refused = partage.fails(*arguments, "--rack", "missing=east")
            failed = partage.fails(*arguments, "--assignor", "mine:Broken")
            unclear = partage.fails(*arguments, "--rack", "east", code=2)
        (result,) = found["results"]
        assert (result["assignor"], result["moved_partitions"]) == ("mine:ByRack", 0)
        assert "has no member 'missing'" in refused
        assert failed == "assignor mine:Broken failed: KeyError: 'length' (mine.py, line 32)"
        assert unclear == "--rack 'east' is not MEMBER=RACK, such as client-1=east"

    @PATIENT
    def test_whatif_runs_consumer_of_the_page(
        self, partage: PartageCli, topic: str, name: str, own_directory: Path
    ) -> None:
        """The example of docs/simulator.md processes 20 records per second."""
        page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
        (code,) = re.findall(r"```python\n(.*?async def consume\(.*?)```", page, re.DOTALL)
        code = code.replace('"readers"', repr(name)).replace('"orders"', repr(topic))
        (own_directory / "my_service.py").write_text(code)
        partage("produce", "-t", topic, "-p", 1, stdin=records(["a"] * 10))
        with OurConsumer(
            partage.bootstrap_servers, group_id=name, auto_offset_reset="earliest"
        ) as member:
            member.subscribe([topic])
            while len(member.assignment()) < 4:
                member.poll(50)
            arguments = ("lab", "whatif", name, "--sample-s", 0.1, "--rate", 100)
            arguments += ("--event", "join", "--joining-members", 1)
            assumed = partage(*arguments, "--assignor", "range", "--json").json
            arguments += ("--consumer", "my_service:consume")
            found = partage(*arguments, "--assignor", "range", "--json").json
            shown = partage(*arguments).out
            static = partage.fails(*arguments[:-1], "my_service:without_options", code=2)
        (result,) = found["results"]
        assert (found["consumer"], found["speed_source"]) == ("my_service:consume", "consumer")
        assert found["member_records_per_second"] == pytest.approx(20, rel=0.1)
        assert (result["assignor"], result["moved_partitions"]) == ("range", 2)
        assert (assumed["consumer"], assumed["speed_source"]) == (None, "assumed")
        assert assumed["member_records_per_second"] == 1_000
        (other,) = assumed["results"]
        assert result["lag_by_second"][-1] > 100, "100 records arrive in a second, 20 are read"
        assert max(other["lag_by_second"]) < 100
        assert "(measured with my_service:consume)" in shown
        assert "cooperative-sticky" in shown, "the assignor of the code"
        assert static == "module 'my_service' has no 'without_options'"

    @PATIENT
    def test_whatif_of_consumer_with_other_protocol_says_so(
        self, partage: PartageCli, topic: str, name: str, own_directory: Path
    ) -> None:
        (own_directory / "my_service.py").write_text(
            "from partage import Consumer\n\n\n"
            "async def consume(servers, options):\n"
            f"    async with Consumer(servers, group_id={name!r}, **options) as consumer:\n"
            f"        consumer.subscribe([{topic!r}])\n"
            "        async for record in consumer:\n"
            "            pass\n"
        )
        with consumer_protocol_group(partage, topic, name):
            arguments = ("lab", "whatif", name, "--sample-s", 0.1, "--event", "rebalance")
            arguments += ("--consumer", "my_service:consume", "--json")
            found = partage(*arguments).json
            chosen = partage(*arguments, "--assignor", "uniform").json
        (remark,) = [remark for remark in found["remarks"] if "protocol" in remark]
        assert remark == (
            "the group has the consumer protocol, but my_service:consume joins with the classic "
            'protocol: try --assignor uniform, or group_protocol="consumer" in the code'
        )
        assert not [remark for remark in chosen["remarks"] if "protocol" in remark]

    @PATIENT
    def test_whatif_of_consumer_that_fails_shows_its_line(
        self, partage: PartageCli, topic: str, name: str, own_directory: Path
    ) -> None:
        code = "async def consume(servers):\n    raise KeyError('size')\n"
        (own_directory / "my_service.py").write_text(code)
        with OurConsumer(
            partage.bootstrap_servers, group_id=name, group_instance_id="static-1"
        ) as member:
            member.subscribe([topic])
            while len(member.assignment()) < 4:
                member.poll(50)
            arguments = ("lab", "whatif", name, "--sample-s", 0.1)
            arguments += ("--consumer", "my_service:consume")
            static = partage.fails(*arguments)
            code = code.replace("servers", "servers, options")
            (own_directory / "my_service.py").write_text(code)
            sys.modules.pop("my_service")
            failed = partage.fails(*arguments)
        assert static.startswith(f"group {name} has static members, such as static-1: give ")
        assert failed == "my_service:consume failed: KeyError: 'size' (my_service.py, line 2)"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere:consume"], "there is no module 'nowhere' for nowhere:consume: its direc"),
            (["my_service:blocks"], "my_service:blocks is not a coroutine function (async def) "),
            (
                ["my_service:consume", "--assignor", "range"],
                "--assignor has no effect on my_service:consume: give the function a parameter o",
            ),
            (
                ["my_service:consume", "--session-timeout-ms", 9_000],
                "--session-timeout-ms has no effect on my_service:consume: give the function a p",
            ),
        ],
    )
    def test_whatif_of_invalid_consumer_fails_first(
        self, partage: PartageCli, own_directory: Path, arguments: list[object], message: str
    ) -> None:
        code = "async def consume(servers):\n    pass\n\n\ndef blocks(servers):\n    pass\n"
        (own_directory / "my_service.py").write_text(code)
        command = ("lab", "whatif", "--group", "nobody", "--consumer", *arguments)
        assert partage.fails(*command, code=2).startswith(message)

    @pytest.mark.parametrize(
        ("picture", "message"),
        [
            ("", "is a directory: name a file, such as "),
            ("nowhere/lags.png", "nowhere does not exist"),
            ("lags", "the name must end in .png or .svg, "),
            ("lags.txt", "the name must end in .png or .svg, "),
        ],
    )
    def test_whatif_invalid_picture_path_fails_first(
        self, partage: PartageCli, tmp_path: Path, picture: str, message: str
    ) -> None:
        arguments = ("lab", "whatif", "--group", "nobody", "--picture", tmp_path / picture)
        assert message in partage.fails(*arguments, code=2)

    def test_whatif_group_without_members_fails(
        self, partage: PartageCli, topic: str, name: str
    ) -> None:
        partage("produce", "-t", topic, stdin=records(["a"]))
        partage("consume", "-t", topic, "--group", name, "--from-beginning", "-c", 1)
        message = partage.fails("lab", "whatif", "--group", name)
        assert (
            message == f"group {name} has no members (Empty): start its consumers, then try again"
        )

    def test_whatif_connect_group_fails(self, partage: PartageCli, name: str) -> None:
        with GenericMember(partage.bootstrap_servers, name, b"", b""):
            message = partage.fails("lab", "whatif", "--group", name)
        assert message == f"group {name} is of type connect; whatif supports only consumer groups"

    def test_whatif_custom_assignor_needs_option(
        self, partage: PartageCli, topic: str, name: str
    ) -> None:
        mine = Assignment(
            assigned_partitions=[ConsumerTopicPartitions(topic=topic, partitions=[1, 3])]
        )
        with GenericMember(
            partage.bootstrap_servers,
            name,
            encode_subscription(Subscription(topics=[topic, f"{topic}-gone"])),
            encode_assignment(mine),
            protocol_type="consumer",
            protocol="of-our-own",
        ):
            arguments = ("lab", "whatif", "--group", name, "--sample-s", 0.1)
            message = partage.fails(*arguments)
            found = partage(*arguments, "--assignor", "sticky", "--json").json
        assert (
            "uses the assignor 'of-our-own', which is unknown here: name its class with --assignor "
            "module:Class, or choose another one of canary, co-partitioned, " in message
        )
        assert found["assignor"] == "of-our-own"
        assert found["unowned_partitions"] == 2
        assert f"without an owner: 2 partitions, {topic}(0,2)" in found["remarks"]
        assert f"subscribed topics that do not exist: {topic}-gone" in found["remarks"]
        (again,) = (each for each in found["results"] if each["event"] == "rebalance")
        assert (again["handovers"], again["unread_partitions"]) == (0, 0)

    def test_whatif_without_group_record_uses_defaults(
        self, partage: PartageCli, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As if a user may describe groups but not read ``__consumer_offsets``."""
        monkeypatch.setattr(live_view, "read_last_generation", lambda cluster, group: None)
        mine = Assignment(
            assigned_partitions=[ConsumerTopicPartitions(topic=topic, partitions=[0, 1])]
        )
        with GenericMember(
            partage.bootstrap_servers,
            name,
            encode_subscription(Subscription(topics=[topic])),
            encode_assignment(mine),
            protocol_type="consumer",
            protocol="range",
        ):
            arguments = ("lab", "whatif", "--group", name, "--sample-s", 0.1, "--event", "crash")
            found = partage(*arguments, "--json").json
            shown = partage(*arguments).out
        assert (found["generation"], found["timeout_source"]) == (None, "kafka")
        assert (found["session_timeout_ms"], found["max_poll_interval_ms"]) == (45_000, 300_000)
        assert "session timeout 45 s, max.poll.interval 300 s, Kafka's defaults" in shown
        assert f"group {name}: 4 partitions, assigned by range to 1 member\n" in shown
        assert "partitions without a reader at the end" in shown, "the group is empty"

    def test_whatif_invalid_subscription_fails(self, partage: PartageCli, name: str) -> None:
        nothing = encode_assignment(Assignment(assigned_partitions=[]))
        member = GenericMember(
            partage.bootstrap_servers,
            name,
            b"\x00\x01\xff",
            nothing,
            protocol_type="consumer",
            protocol="range",
        )
        with member:
            message = partage.fails("lab", "whatif", "--group", name)
        expected = f"the metadata of member {member.member_id} of group {name} (client worker-1,"
        assert message.startswith(expected)
        assert "is not a consumer subscription, so any rebalance would fail" in message

    def test_whatif_members_leave_meanwhile_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        there = STABLE
        message = _looked(monkeypatch, there, replace(there, state="Empty", members=[]))
        assert message == "group g has no members (Empty): start its consumers, then try again"

    def test_whatif_rebalance_starts_meanwhile_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        message = _looked(monkeypatch, STABLE, replace(STABLE, state="PreparingRebalance"))
        assert "group g is rebalancing (PreparingRebalance): try again when it is Stable" in message

    def test_whatif_rebalance_meanwhile_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        moved = replace(STABLE.members[0], partitions=[StateTopicPartitions("t", [0])])
        message = _looked(monkeypatch, STABLE, replace(STABLE, members=[moved]))
        assert message == "group g rebalanced during the measurement: try again"

    def test_whatif_of_a_reconciling_group_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        message = _looked(monkeypatch, replace(STABLE, type="Consumer", state="Reconciling"))
        assert "group g is rebalancing (Reconciling): try again when it is Stable" in message

    def test_whatif_of_a_regex_of_the_consumer_protocol_fails(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = replace(STABLE.members[0], subscription=[], subscribed_regex="t.*")
        message = _looked(monkeypatch, replace(STABLE, type="Consumer", members=[member]))
        assert "member m of group g subscribes by a regular expression" in message


STABLE = GroupDescription(
    "g",
    "consumer",
    "Classic",
    "range",
    "Stable",
    None,
    [MemberDescription("m", None, "c", "h", [], ["t"], 10, 10)],
    [],
    0,
)


def _looked(monkeypatch: pytest.MonkeyPatch, *states: GroupDescription) -> str:
    """Return the error for a group that has these states in successive descriptions."""
    looks = iter(states)
    monkeypatch.setattr(live_view, "describe_groups", lambda cluster, groups: [next(looks)])
    monkeypatch.setattr(live_view, "list_offsets", lambda cluster, places, spec: {})
    monkeypatch.setattr(live_view, "read_last_generation", lambda cluster, name: None)
    monkeypatch.setattr(live_view, "_racks", lambda cluster: {})
    cluster: Any = SimpleNamespace(metadata=lambda: SimpleNamespace(topics={}, brokers={}))
    with pytest.raises(CommandError) as failed:
        live_view.observe_group(cluster, "g", 0.0)
    return failed.value.message


def _owned(members: list[Consumer]) -> list[list[object]]:
    return [member.assignment() for member in members]


def _is_stable(partage: PartageCli, group: str) -> bool:
    found = partage("groups", "describe", "--group", group, "--json").json["groups"]
    return bool(found[0]["state"] == "Stable")


def _wait(members: list[Consumer], come: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 45
    while not come():
        assert time.monotonic() < deadline_s, f"the members have {_owned(members)}"
        for member in members:
            member.poll(0.05)
