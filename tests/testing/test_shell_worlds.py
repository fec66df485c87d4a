"""Worlds of the production shells: they break no rule, and each rule notices what breaks it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from partage.client.connection import Connection
from partage.client.consumer.records import Record
from partage.client.errors import ClientError
from partage.client.options import ClientOptions
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.testing import PartageWorld
from partage.testing.shell_worlds.coordinator_history import CoordinatorHistory
from partage.testing.shell_worlds.delivery_rules import DeliveryRules, ReaderRun
from partage.testing.shell_worlds.fetch_retry_rules import FetchRetryRules
from partage.testing.shell_worlds.member_rules import MemberRules
from partage.testing.shell_worlds.result import ShellResult
from partage.testing.shell_worlds.scenario import draw_scenario
from partage.testing.shell_worlds.wire_watch import CommitTimeline, WireWatch
from partage.testing.world.errors import InvariantError
from partage.testing.world.virtual_loop import VirtualLoop
from partage.testing.world_swarm import run_shell_seed
from partage.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol, JoinGroupRequest
from partage.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)

PLACE = TopicPartition("t", 0)
SESSION_S = 4.0


def assert_no_violation(result: ShellResult) -> None:
    broken = f"seed {result.seed}: {result.rule}: {result.description}"
    assert result.rule is None, "\n".join([broken, *result.faults, *result.story[-40:]])


def test_worlds_break_no_rule() -> None:
    results = [run_shell_seed(seed) for seed in (2, 8, 11)]
    for result in results:
        assert_no_violation(result)
    assert sum(result.reads for result in results) > 500
    assert sum(len(result.faults) for result in results) > 0


#: 41: a fetched slice was shorter than a batch header, and counted as damaged. The others broke
#: rules that were too strict.
@pytest.mark.parametrize(
    "seed",
    [
        41,
        5000032,
        *(
            pytest.param(seed, marks=pytest.mark.slow)
            for seed in (
                20048,
                20064,
                20110,
                5000075,
                5000080,
                5000081,
                6000016,
                6000022,
                6000057,
                7000032,
            )
        ),
    ],
)
def test_past_seeds_break_no_rule(seed: int) -> None:
    assert_no_violation(run_shell_seed(seed))


def test_seed_gives_the_same_story_twice() -> None:
    first, second = (run_shell_seed(11) for _ in range(2))
    assert first == second


def test_scenario_of_a_seed_can_be_changed() -> None:
    scenario = draw_scenario(5, {"faults": 0, "writers": 1})
    assert (scenario.faults, scenario.writers) == (0, 1)
    assert scenario == msgspec.structs.replace(draw_scenario(5), faults=0, writers=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        ("a listener callback runs twice", "callbacks"),
        ("paused partitions are delivered", "owner"),
        ("the bytes of a finished fetch stay reserved", "delivery"),
        ("auto commits are one record ahead", "commit_ahead"),
        ("a replaced timer still fires", "callbacks"),
        ("connections stay open after close", "close"),
        ("a closed connection to a broker is used again", "delivery"),
        ("records are acknowledged before they are synced", "failure"),
        ("no commit before a leave", "commit"),
    ],
)
def test_planted_bug_is_found(bug: str, rule: str) -> None:
    command = [sys.executable, "-m", "testing.shell_mutation", bug, "--seeds", "20"]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1]
    )
    assert f"`{rule}`" in ended.stdout, ended.stdout + ended.stderr


class Checked:
    """Rules with one reader that owns a partition, and what they reported."""

    def __init__(self, *, may_repeat: bool = True) -> None:
        self.broken: list[str] = []
        self.now_s = 0.0
        self.alive_s = 0.0
        self.commits = CommitTimeline()
        self.rules = DeliveryRules(
            lambda: self.now_s,
            self.commits,
            lambda rule, _: self.broken.append(rule),
            may_repeat=may_repeat,
            may_lose=False,
            alive_s=lambda _: self.alive_s,
        )
        self.rules.on_written(PLACE, 0, [b"a", b"b", b"c", b"d"])
        self.reader = self.start("reader-1")

    def start(self, name: str) -> ReaderRun:
        run = self.rules.start(name, "g", SESSION_S)
        self.rules.on_assigned(run, [PLACE])
        return run

    def commit(self, offset: int, *, is_stored: bool = True) -> None:
        self.commits.add("g", PLACE, offset, self.now_s)(is_stored)

    def read(self, *offsets: int, value: bytes | None = None, run: ReaderRun | None = None) -> None:
        for offset in offsets:
            content = b"abcd"[offset : offset + 1] if value is None else value
            record = Record("t", 0, offset, 0, 0, None, content, ())
            self.rules.on_record(run or self.reader, record)


def test_owner_may_read_on_and_start_at_a_commit() -> None:
    checked = Checked()
    checked.read(0, 1)
    checked.commit(2)
    checked.rules.on_committed(checked.reader, {PLACE: 2})
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.now_s = SESSION_S
    other = checked.start("reader-2")
    checked.read(2, 3, run=other)
    checked.rules.on_seek(other, PLACE, 1)
    checked.read(1, 2, run=other)
    assert checked.broken == []
    assert not checked.rules.unread({"g": {"t"}})


def test_unanswered_commit_may_be_the_start() -> None:
    checked = Checked()
    checked.commits.add("g", PLACE, 2, 0.0)
    checked.read(2)
    assert checked.broken == []


def repeat_a_callback(checked: Checked) -> None:
    for _ in range(2):
        checked.rules.on_given_up(checked.reader, "revoked", [PLACE])


def read_after_a_loss(checked: Checked) -> None:
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.read(0)


def read_while_paused(checked: Checked) -> None:
    checked.reader.owned[PLACE].is_paused = True
    checked.read(0)


def read_beside_a_new_owner(checked: Checked) -> None:
    checked.now_s = 1.0
    checked.start("reader-2")
    checked.read(0)


def start_at_a_refused_commit(checked: Checked) -> None:
    checked.commit(1, is_stored=False)
    checked.read(1)


def lose_a_commit(checked: Checked) -> None:
    checked.read(0)
    checked.rules.on_committed(checked.reader, {PLACE: 1})


def lose_without_a_fault(checked: Checked) -> None:
    checked.rules.on_given_up(checked.reader, "lost", [PLACE])


def read_after_the_session(checked: Checked) -> None:
    checked.now_s = SESSION_S + 0.1
    checked.read(0)


def commit_late(checked: Checked) -> None:
    checked.read(0)
    for checked.now_s in (0.0, 1.1):
        checked.rules.check_behind(checked.reader, 1.0)


def leave_with_partitions(checked: Checked) -> None:
    checked.rules.begin_leave(checked.reader)
    checked.rules.check_left(checked.reader, {})


def leave_without_a_commit(checked: Checked) -> None:
    checked.read(0)
    checked.rules.begin_leave(checked.reader)
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.rules.check_left(checked.reader, {PLACE: 1})


def revoke_after_the_session(checked: Checked) -> None:
    checked.now_s = SESSION_S + 0.3
    checked.rules.check_revocation(checked.reader, since_s=0.0)


def pass_a_partition(checked: Checked) -> None:
    for _ in range(4):
        checked.rules.on_polled(checked.reader, checked.now_s, {TopicPartition("t", 1)}, {PLACE})
    checked.rules.on_polled(checked.reader, checked.now_s, {PLACE}, {PLACE})


def read_late(checked: Checked) -> None:
    checked.read(0, 1, 2, 3)
    checked.now_s = 2.0
    checked.rules.on_written(PLACE, 4, [b"e"])
    checked.now_s = 3.0
    checked.read(4, value=b"e")


def read_twice(checked: Checked) -> None:
    checked.read(0)
    checked.rules.on_seek(checked.reader, PLACE, 0)
    checked.read(0)


def read_after_the_removal(checked: Checked) -> None:
    checked.rules.on_fenced(checked.reader, since_s=checked.now_s)
    checked.read(0)


def poll_in_vain(checked: Checked) -> None:
    checked.rules.on_rebalance("g")
    checked.rules.on_polled(checked.reader, checked.now_s, set(), {PLACE})
    checked.now_s = 1.0
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.rules.on_assigned(checked.reader, [PLACE])
    checked.rules.on_polled(checked.reader, checked.now_s, set(), {PLACE})


@pytest.mark.parametrize(
    ("break_it", "rule"),
    [
        (lambda checked: checked.read(0, value=b"x"), "content"),
        (lambda checked: checked.read(0, 2), "order"),
        (lambda checked: checked.read(1), "start"),
        (start_at_a_refused_commit, "start"),
        (read_after_a_loss, "owner"),
        (read_while_paused, "owner"),
        (read_beside_a_new_owner, "owner"),
        (lambda checked: checked.rules.on_assigned(checked.reader, [PLACE]), "callbacks"),
        (repeat_a_callback, "callbacks"),
        (lose_a_commit, "commit"),
        (lambda checked: checked.rules.check_last_commits({"g": {"t"}}), "commit"),
        (read_twice, "repeat"),
        (lose_without_a_fault, "callbacks"),
        (leave_with_partitions, "callbacks"),
        (leave_without_a_commit, "commit"),
        (read_after_the_session, "session"),
        (commit_late, "late_commit"),
        (revoke_after_the_session, "callbacks"),
        (pass_a_partition, "fairness"),
        (read_late, "fresh"),
        (read_after_the_removal, "fenced"),
        (poll_in_vain, "idle"),
    ],
)
def test_rule_names_what_breaks_it(break_it: Callable[[Checked], None], rule: str) -> None:
    checked = Checked(may_repeat=False)
    break_it(checked)
    assert checked.broken == [rule]


def test_member_that_leaves_in_a_rebalance_may_lose_partitions() -> None:
    checked = Checked()
    checked.read(0)
    checked.rules.begin_leave(checked.reader)
    checked.rules.on_given_up(checked.reader, "lost", [PLACE])
    checked.rules.check_left(checked.reader, {PLACE: 1})
    assert checked.broken == []


def test_position_that_is_committed_in_time_is_not_late() -> None:
    checked = Checked()
    for offset in range(4):
        checked.now_s = 0.8 * offset
        checked.read(offset)
        checked.rules.check_behind(checked.reader, 1.0)
        checked.commit(offset + 1)
    assert checked.broken == []


def test_commit_is_late_only_after_the_coordinator_holds_none_back() -> None:
    checked = Checked()
    checked.read(0)
    checked.commits.hold("reader-1", 0.0, 4.0)
    checked.commits.hold("reader-1", 1.0, 1.0)
    for checked.now_s in (0.0, 3.9, 4.9):
        checked.rules.check_behind(checked.reader, 1.0)
    assert checked.broken == []
    checked.now_s = 5.1
    checked.rules.check_behind(checked.reader, 1.0)
    assert checked.broken == ["late_commit"]


def test_partition_that_is_assigned_after_a_removal_may_be_read() -> None:
    checked = Checked()
    checked.rules.on_fenced(checked.reader, since_s=checked.now_s)
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.rules.on_assigned(checked.reader, [PLACE])
    checked.read(0)
    assert checked.broken == []


def watched_world(
    directory: Path,
    requests: Callable[[Connection], Awaitable[object]],
    watch_members: Callable[[PartageWorld, WireWatch], None] = lambda world, watch: None,
) -> str:
    """Send requests of a process named ``reader-1``; return what they break."""
    world = PartageWorld(1, directory)
    watch: list[WireWatch] = []

    def make_watch(loop: VirtualLoop) -> WireWatch:
        # without rules about coordinators: the requests are not those of members
        coordinators = CoordinatorHistory(
            world.brokers,
            world.group_settings,
            lambda rule, text: None,
            world.last_pause,
            has_consumer_group=False,
        )
        watch.append(WireWatch(loop, lambda _: None, world.break_rule, set(), coordinators))
        watch[0].limits["reader-1"] = 1000, 100
        watch_members(world, watch[0])
        return watch[0]

    async def send() -> None:
        connection = await Connection.open(Address(world.broker, 9092), ClientOptions())
        await requests(connection)
        connection.close()

    async def test() -> None:
        await world.create_topic("t")
        world.process(send, name="reader-1")
        await world.until(lambda: not world.is_running("reader-1"), timeout_s=10)

    world.record_requests(make_watch)
    try:
        world.run(test)
    except InvariantError as error:
        return str(error).partition(":")[0]
    return ""


async def commit_offsets(connection: Connection, *offsets: int) -> None:
    for offset in offsets:
        partition = OffsetCommitPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
        )
        await connection.send(OFFSET_COMMIT, request, version_max=8)


async def fetch_bytes(connection: Connection, bytes_max: int, partition_max: int) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=partition_max)
    topic = FetchTopic(topic="t", partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=bytes_max, topics=[topic])
    await connection.send(FETCH, request, version_max=12)


@pytest.mark.parametrize(
    ("requests", "rule"),
    [
        (lambda connection: commit_offsets(connection, 0, 0), ""),
        (lambda connection: commit_offsets(connection, 5, 3), "regress"),
        (lambda connection: fetch_bytes(connection, 1000, 100), ""),
        (lambda connection: fetch_bytes(connection, 1001, 100), "fetch_limits"),
        (lambda connection: fetch_bytes(connection, 1000, 101), "fetch_limits"),
    ],
)
def test_rule_about_requests_names_what_breaks_it(
    tmp_path: Path, requests: Callable[[Connection], Awaitable[object]], rule: str
) -> None:
    assert watched_world(tmp_path, requests) == rule


def watch_members(
    world: PartageWorld, watch: WireWatch, prepare: Callable[[DeliveryRules], None]
) -> None:
    """Check the requests of ``reader-1`` by the rules about members, without faults."""
    scenario = draw_scenario(0)
    plan = msgspec.structs.replace(scenario.readers["reader-1"], commits="offsets", group="g")
    rules = DeliveryRules(
        lambda: world.elapsed_s, watch.commits, world.break_rule, may_repeat=True, may_lose=False
    )
    members = MemberRules(
        {"reader-1": plan}, {"t": 1}, rules, lambda: world.elapsed_s, world.break_rule
    )
    watch.on_request = members.on_request
    prepare(rules)


def start_reader(rules: DeliveryRules) -> None:
    rules.start("reader-1", "g", SESSION_S)


def begin_commit(rules: DeliveryRules) -> None:
    rules.start("reader-1", "g", SESSION_S).commit_count = 1


def begin_leave(rules: DeliveryRules) -> None:
    rules.start("reader-1", "g", SESSION_S).leaving_since_s = 0.0


async def wait_and_commit(connection: Connection) -> None:
    await asyncio.sleep(1)
    await commit_offsets(connection, 0)


async def list_all_topics(connection: Connection) -> None:
    await asyncio.sleep(1)
    await connection.send(METADATA, MetadataRequest(topics=None))


async def join(connection: Connection) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=b"")],
    )
    with suppress(ClientError):
        await connection.send(JOIN_GROUP, request, version_max=3, timeout_ms=1_000)


async def join_twice(connection: Connection) -> None:
    await join(connection)
    second = await Connection.open(connection.address, ClientOptions())
    await join(second)
    second.close()


@pytest.mark.parametrize(
    ("requests", "prepare", "rule"),
    [
        (wait_and_commit, start_reader, "commit"),
        (wait_and_commit, begin_commit, ""),
        (list_all_topics, begin_leave, "close"),
        (list_all_topics, start_reader, ""),
        (join_twice, start_reader, "rebalance"),
        (join, start_reader, ""),
    ],
)
def test_rule_about_members_names_what_breaks_it(
    tmp_path: Path,
    requests: Callable[[Connection], Awaitable[object]],
    prepare: Callable[[DeliveryRules], None],
    rule: str,
) -> None:
    broken = watched_world(
        tmp_path, requests, lambda world, watch: watch_members(world, watch, prepare)
    )
    assert broken == rule


class CheckedFetches:
    """Checks the fetches of a reader that owns a partition."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._world: PartageWorld
        self._rules: DeliveryRules
        self._fetches: FetchRetryRules
        self._run: ReaderRun

    def broken(self, requests: Callable[[CheckedFetches, Connection], Awaitable[object]]) -> str:
        """Return the rule that requests break."""
        return watched_world(
            self._directory, lambda connection: requests(self, connection), self._watch
        )

    def _watch(self, world: PartageWorld, watch: WireWatch) -> None:
        self._world, report = world, world.break_rule
        self._rules = DeliveryRules(
            lambda: world.elapsed_s, watch.commits, report, may_repeat=True, may_lose=False
        )
        self._fetches = FetchRetryRules({"reader-1"}, self._rules, lambda: world.elapsed_s, report)
        watch.on_request = self._fetches.on_request
        self._run = self._rules.start("reader-1", "g", SESSION_S)
        self._rules.on_assigned(self._run, [PLACE])

    def seek(self) -> None:
        self._rules.on_seek(self._run, PLACE, 0)

    async def reset_while_it_waits(self, connection: Connection) -> Connection:
        """Reset the connection of a fetch that waits; return a new one."""

        def reset() -> None:
            self._fetches.on_reset("reader-1")
            self._world.reset_connections("reader-1")

        asyncio.get_running_loop().call_later(1, reset)
        with suppress(ClientError):
            await fetch(connection, max_wait_ms=5_000)
        return await Connection.open(connection.address, ClientOptions())


async def fetch(connection: Connection, *, max_wait_ms: int = 0, leader_epoch: int = 0) -> None:
    partition = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=100, current_leader_epoch=leader_epoch
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    await connection.send(FETCH, request, version_max=12)


async def fail_twice(
    checked: CheckedFetches, connection: Connection, *, after_s: float, seeks: bool = False
) -> None:
    await asyncio.sleep(1)  # the partition has been owned for some time
    await fetch(connection, leader_epoch=5)
    await asyncio.sleep(after_s)
    if seeks:
        checked.seek()
    await fetch(connection, leader_epoch=5)


async def fetch_after_a_reset(
    checked: CheckedFetches, connection: Connection, *, topics: list[str] | None
) -> None:
    opened = await checked.reset_while_it_waits(connection)
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    await opened.send(METADATA, MetadataRequest(topics=named))
    await fetch(opened)
    opened.close()


@pytest.mark.parametrize(
    ("requests", "rule"),
    [
        (partial(fail_twice, after_s=0.01), "flood"),
        (partial(fail_twice, after_s=0.1), ""),
        (partial(fail_twice, after_s=0.01, seeks=True), ""),
        (partial(fetch_after_a_reset, topics=[]), "stale"),
        (partial(fetch_after_a_reset, topics=None), "stale"),
        (partial(fetch_after_a_reset, topics=["t"]), ""),
    ],
)
def test_rule_about_failed_fetches_names_what_breaks_it(
    tmp_path: Path,
    requests: Callable[[CheckedFetches, Connection], Awaitable[object]],
    rule: str,
) -> None:
    assert CheckedFetches(tmp_path).broken(requests) == rule


@pytest.mark.parametrize(
    ("at_s", "delay_s", "rule"), [(0.0, 9.0, ""), (0.0, 0.1, "commit"), (9.0, 9.0, "commit")]
)
def test_commit_may_arrive_after_one_that_is_held_back(
    tmp_path: Path, at_s: float, delay_s: float, rule: str
) -> None:
    def prepare(world: PartageWorld, watch: WireWatch) -> None:
        watch.commits.hold("reader-1", at_s, delay_s)
        watch_members(world, watch, start_reader)

    assert watched_world(tmp_path, wait_and_commit, prepare) == rule


def test_member_that_was_paused_may_revoke_late() -> None:
    checked = Checked()
    checked.now_s = SESSION_S + 0.3
    checked.rules.check_revocation(checked.reader, since_s=checked.now_s)
    assert checked.broken == []


def test_member_that_leaves_may_revoke_late() -> None:
    checked = Checked()
    checked.now_s = SESSION_S + 0.3
    checked.rules.begin_leave(checked.reader)
    checked.rules.check_revocation(checked.reader, since_s=0.0)
    assert checked.broken == []


def test_partitions_that_are_served_in_turn_are_not_passed() -> None:
    checked = Checked()
    other = TopicPartition("t", 1)
    for served in [other, PLACE] * 4:
        checked.rules.on_polled(checked.reader, checked.now_s, {served}, {PLACE})
    assert checked.broken == []


def test_poll_in_which_a_partition_is_assigned_again_may_be_empty() -> None:
    checked = Checked()
    checked.now_s = 1.0
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.rules.on_assigned(checked.reader, [PLACE])
    checked.rules.on_polled(checked.reader, 0.5, set(), {PLACE})
    assert checked.broken == []


def test_poll_of_a_member_that_will_join_may_be_empty() -> None:
    checked = Checked()
    checked.now_s = 1.0
    checked.rules.on_rejoin_due("reader-1")
    checked.rules.on_polled(checked.reader, checked.now_s, set(), {PLACE})
    assert checked.broken == []
    checked.rules.on_given_up(checked.reader, "revoked", [PLACE])
    checked.now_s = 2.0
    checked.rules.on_assigned(checked.reader, [PLACE])
    checked.rules.on_polled(checked.reader, checked.now_s, set(), {PLACE})
    assert checked.broken == ["idle"]


def test_record_of_a_busy_reader_may_be_late() -> None:
    checked = Checked()
    checked.rules.on_written(PLACE, 4, [b"e"])
    checked.now_s = 1.0
    checked.read(0, 1, 2, 3)
    checked.read(4, value=b"e")
    assert checked.broken == []


def test_records_that_a_group_has_not_read_are_counted() -> None:
    checked = Checked()
    checked.read(0, 1)
    assert checked.rules.unread({"g": {"t"}, "h": {"t"}, "i": {"u"}}) == {
        "g": {PLACE: 2},
        "h": {PLACE: 4},
    }
