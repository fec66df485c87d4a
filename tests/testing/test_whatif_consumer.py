"""``partage lab whatif --consumer``: members that run a user's code in a simulated world."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from partage.lab.whatif.live_group import LiveGroup, LiveMember, LivePartition
from partage.lab.whatif.trial import SampleRecord, Trial, TrialResult
from partage.lab.whatif.trial_pool import call_with_fixed_hashes, run_trials
from partage.model.topic_partition import TopicPartition
from partage.testing.whatif.consumer_function import (
    ConsumerChoiceError,
    ConsumerCodeError,
    ConsumerFunction,
)
from partage.testing.whatif.consumer_trial import probe_consumer, run_consumer_trial
from partage.testing.whatif.record_writer import written_rate

pytestmark = pytest.mark.timeout(300)

CODE = """
import asyncio
import threading
import time
from collections.abc import AsyncIterator

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from confluent_kafka import DeserializingConsumer

from partage import Consumer
from partage.assignors import Assignor

SEEN = []
OPTIONS = []


async def read(servers, options, *, group="g", topic="t", delay_s=0.0):
    async with Consumer(
        servers, group_id=group, auto_offset_reset="earliest", **options
    ) as consumer:
        consumer.subscribe([topic])
        async for record in consumer:
            SEEN.append((record.key, record.value, record.headers))
            await asyncio.sleep(delay_s)


async def innocent(servers, options):
    await read(servers, options)


async def slow(servers, options):
    await read(servers, options, delay_s=0.1)


async def blocked(servers, options):
    await read(servers, options, delay_s=20.0)


async def without_options(servers):
    await read(servers, {})


async def with_aiokafka(servers):
    async with AIOKafkaConsumer("t", bootstrap_servers=servers, group_id="g") as consumer:
        async for record in consumer:
            await asyncio.sleep(0.01)


async def commits_nothing(servers):
    await read(servers, {"enable_auto_commit": False})


async def prints(servers):
    print("loud")
    await read(servers, {})


async def shows_options(servers, options):
    OPTIONS.append(options)
    await read(servers, options)


async def closes_nothing(servers, options):
    consumer = Consumer(servers, group_id="g", **options)
    consumer.subscribe(["t"])
    async for record in consumer:
        pass


async def ends(servers):
    pass


async def ends_later(servers):
    reading = asyncio.ensure_future(read(servers, {}))
    await asyncio.sleep(60)
    reading.cancel()


async def raises(servers):
    raise KeyError("size")


async def raises_on_record(servers):
    async with Consumer(servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        async for record in consumer:
            int(record.value)


async def joins_another_group(servers):
    await read(servers, {}, group="other")


async def joins_no_group(servers):
    await asyncio.sleep(10_000)


async def subscribes_to_another_topic(servers, options):
    await read(servers, options, topic="u")


async def is_one_static_member(servers):
    while True:
        try:
            await read(servers, {"group_instance_id": "a"})
        except Exception:  # whatever a consumer raises that another one has fenced
            await asyncio.sleep(20)


async def starts_a_thread(servers):
    threading.Thread(target=print).start()


async def sleeps(servers):
    time.sleep(1)


async def uses_librdkafka(servers):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"})
    consumer.subscribe(["t"])
    while True:
        consumer.poll(1)


async def uses_deserializers(servers):
    DeserializingConsumer({"bootstrap.servers": servers, "group.id": "g"}).poll(1)


async def never_waits(servers):
    while True:
        await asyncio.sleep(0)


async def needs_more(servers, database):
    pass


async def takes_nothing():
    pass


async def generates(servers):
    yield 1


def blocks(servers):
    pass


class Reader:
    pass


class Backwards(Assignor):
    name = "backwards"

    def assign(self, members, topics):
        last = max(each.member_id for each in members)
        everything = {name: range(topic.partition_count) for name, topic in topics.items()}
        return {each.member_id: everything if each.member_id == last else {} for each in members}
"""


@pytest.fixture(autouse=True)
def user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user, ``reading``."""
    (tmp_path / "reading.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("reading", None)


def member(number: int, *owned: int, instance: str | None = None) -> LiveMember:
    return LiveMember(
        member_id=f"c-{number:08x}",
        client_id="c",
        topics=("t",),
        instance_id=instance,
        assigned=tuple(TopicPartition("t", index) for index in owned),
    )


def group(
    *members: LiveMember,
    rate: float = 5.0,
    lag: int = 0,
    speed: float = 1_000,
    topics: str = "t",
) -> LiveGroup:
    return LiveGroup(
        name="g",
        assignor="range",
        members=members or (member(1, 0, 1), member(2, 2), member(3, 3)),
        partitions=tuple(
            LivePartition(topic=topic, index=index, lag=lag, rate=rate)
            for topic in topics
            for index in range(4)
        ),
        speed=speed,
        session_timeout_ms=10_000,
        max_poll_interval_ms=60_000,
    )


def _ignore(number: int, share: float) -> None:
    """Ignore the progress."""


def trial(function: str, event: str = "rebalance", assignor: str = "", **fields) -> Trial:
    arguments = {"group": group(), "joining_members": 1, **fields}
    return Trial(event=event, assignor=assignor, consumer=f"reading:{function}", **arguments)


def run(*arguments: str, **fields) -> TrialResult:
    return run_consumer_trial(trial(*arguments, **fields))


class TestTrials:
    def test_rebalance_of_innocent_consumer_moves_nothing(self):
        result = run("innocent")
        assert (result.assignor, result.session_timeout_ms) == ("cooperative-sticky", 45_000)
        assert (result.rebalances, result.handovers, result.moved_partitions) == (1, 0, 0)
        assert (result.unread_s, result.unread_partitions) == (0, 0)

    def test_group_starts_in_an_assignment_of_no_assignor(self):
        """Member ids keep their live order, so range assigns as it would to the live group."""
        live = group(member(9, 0), member(1, 3), member(5, 2), member(7, 1))
        result = run("innocent", assignor="range", group=live)
        assert (result.assignor, result.moved_partitions) == ("range", 4)
        settled = group(member(9, 3), member(1, 0), member(5, 1), member(7, 2))
        assert run("innocent", assignor="range", group=settled).moved_partitions == 0

    def test_lost_member_is_noticed_after_the_session_of_the_code(self):
        result = run("without_options", "crash")
        assert result.detail == "c-00000001, with 2 partitions"
        assert result.handovers == 2
        assert 42 < result.longest_unread_s < 49

    def test_session_timeout_is_an_option_of_the_code(self):
        fields = {"consumer_options": ("session_timeout_ms",)}
        result = run("innocent", "crash", **fields)
        assert result.session_timeout_ms == 10_000
        assert 6 < result.longest_unread_s < 13

    def test_options_have_racks_and_poll_interval(self):
        live = group(replace(member(1, 0, 1, 2, 3), rack="east"))
        run("shows_options", group=live, consumer_options=("max_poll_interval_ms",))
        assert sys.modules["reading"].OPTIONS == [
            {"client_rack": "east", "max_poll_interval_ms": 60_000}
        ]

    def test_restart_of_aiokafka_moves_partitions(self):
        result = run("with_aiokafka", "restart")
        assert (result.assignor, result.session_timeout_ms) == ("roundrobin", 10_000)
        assert result.rebalances == 6, "each member leaves, and joins again"
        assert result.avoidable_handovers > 0
        assert result.unread_partitions == 0
        assert result.stable_after_s is not None

    def test_static_member_restarts_without_rebalance(self):
        live = group(member(1, 0, 1, instance="a"), member(2, 2, 3, instance="b"))
        result = run("innocent", "restart", group=live)
        assert (result.rebalances, result.handovers) == (0, 0)
        assert result.unread_s == pytest.approx(20, abs=2), "4 partitions, 5 s each"

    def test_restart_without_close_waits_for_the_session(self):
        """The end of a process ends its heartbeats, even if the consumer was not closed."""
        live = group(member(1, 0, 1), member(2, 2, 3))
        result = run("closes_nothing", "restart", group=live)
        assert result.unread_partitions == 0
        assert 40 < result.longest_unread_s < 50

    def test_joining_member_gets_partitions(self):
        live = group(member(1, 0, 1, 2, 3))
        result = run("innocent", "join", group=live)
        assert (result.moved_partitions, result.handovers) == (2, 2)
        assert result.detail == "1 member that subscribes to t"

    @pytest.mark.parametrize("event", ["rebalance", "crash", "restart", "join"])
    def test_consumer_protocol_starts_in_live_assignment(self, event):
        live = group(member(1, 3), member(2, 2, 1), member(3, 0))
        result = run("innocent", event, "uniform", group=live)
        assert (result.assignor, result.session_timeout_ms) == ("uniform", 10_000)
        assert result.unread_partitions == 0
        assert result.stable_after_s is not None
        if event == "rebalance":
            assert (result.rebalances, result.moved_partitions) == (1, 0)
        if event == "crash":
            assert (result.handovers, result.rebalances) == (2, 1)

    def test_assignor_of_user_decides(self):
        result = run("innocent", assignor="reading:Backwards")
        assert result.assignor == "reading:Backwards"
        assert result.moved_partitions == 3, "the last member gets all partitions"

    def test_processing_delays_a_handover(self):
        """The member that has all partitions joins again in its next poll."""
        live = group(member(1, 0, 1, 2, 3), lag=100)
        fast = run("innocent", "join", "range", group=live)
        late = run("blocked", "join", "range", group=live)
        assert late.stable_after_s > fast.stable_after_s + 5

    def test_code_gets_copies_of_live_records(self):
        samples = (
            SampleRecord(topic="t", partition=0, key=b"k", value=b"v", headers=(("h", b"1"),)),
            SampleRecord(topic="t", partition=1, value=b"w"),
        )
        run("innocent", "join", samples=samples, group=group(lag=3))
        seen = {(key, value) for key, value, _ in sys.modules["reading"].SEEN}
        assert seen == {(b"k", b"v"), (None, b"w")}
        assert any(headers for _, _, headers in sys.modules["reading"].SEEN)

    def test_large_records_are_written_slowly(self):
        """At most 500 kB per second of virtual time, so that the simulation fits in memory."""
        samples = (SampleRecord(topic="t", partition=0, value=bytes(1_500_000)),)
        live = group(rate=1_000.0, lag=1_000)
        assert written_rate(live.partitions, samples) == pytest.approx(1 / 3)
        assert written_rate(live.partitions, ()) == 500
        run("innocent", "join", samples=samples, group=live)
        assert 5 < len(sys.modules["reading"].SEEN) < 40

    def test_topic_that_cannot_be_created_is_refused(self):
        live = replace(group(), partitions=(LivePartition(topic="__consumer_offsets", index=0),))
        with pytest.raises(ConsumerCodeError, match="cannot run reading:innocent in a simulation"):
            run("innocent", group=live)

    def test_prints_of_code_are_not_in_the_output(self, capsys):
        run("prints")
        out, err = capsys.readouterr()
        assert (out, "loud" in err) == ("", True)


class TestSpeed:
    def test_speed_of_slow_code_is_measured(self):
        assert probe_consumer(trial("slow")).speed == pytest.approx(10, rel=0.05)

    def test_speed_of_aiokafka_is_measured(self):
        assert probe_consumer(trial("with_aiokafka")).speed == pytest.approx(100, rel=0.05)

    def test_code_without_waits_has_no_speed(self):
        probe = probe_consumer(trial("innocent"))
        assert (probe.speed, probe.has_committed) == (None, True)

    def test_code_without_commits_has_no_speed(self):
        probe = probe_consumer(trial("commits_nothing"))
        assert (probe.speed, probe.has_committed) == (None, False)

    def test_slow_code_has_another_lag_forecast(self):
        """Two partitions get 5 records/s each, and one member reads at most 10 records/s."""
        probe = probe_consumer(trial("slow"))
        fast = run("slow", "crash")
        slow = run("slow", "crash", group=group(speed=probe.speed))
        assert fast.caught_up_after_s is not None
        assert slow.caught_up_after_s is None or slow.caught_up_after_s > 2 * fast.caught_up_after_s
        assert slow.lag_by_second != fast.lag_by_second


class TestRepeatability:
    def test_trials_are_repeated_byte_by_byte(self):
        """The order of sets differs between processes, unless their hashes are fixed."""
        trials = [trial(name, "restart") for name in ("innocent", "with_aiokafka")]
        outputs, environment = set(), dict(os.environ)
        for _ in range(2):
            results = run_trials(trials, 1, _ignore, run_consumer_trial, has_fixed_hashes=True)
            probe = call_with_fixed_hashes(probe_consumer, trials[1])
            outputs.add(msgspec.json.encode([*results, probe]))
        assert len(outputs) == 1
        assert os.environ == environment

    def test_other_processes_raise_the_error(self):
        with pytest.raises(ConsumerCodeError, match="reading:ends ended before it joined group g"):
            call_with_fixed_hashes(probe_consumer, trial("ends"))


class TestInvalidCode:
    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("reading", "--consumer 'reading' is not module:function"),
            ("reading:", "--consumer 'reading:' is not module:function"),
            ("nowhere:main", "there is no module 'nowhere' for nowhere:main: its directory must"),
            ("reading:missing", "module 'reading' has no 'missing'"),
            ("reading:blocks", "reading:blocks is not a coroutine function (async def) but a fun"),
            ("reading:Reader", "reading:Reader is not a coroutine function (async def) but the c"),
            ("reading:generates", "reading:generates is not a coroutine function (async def) but"),
            ("reading:SEEN", "reading:SEEN is not a coroutine function (async def) but an object"),
            ("reading:takes_nothing", "reading:takes_nothing has no positional parameter: whatif"),
            ("reading:needs_more", "reading:needs_more needs other arguments (database): name a"),
        ],
    )
    def test_path_without_consumer_is_refused(self, path, message):
        with pytest.raises(ConsumerChoiceError) as caught:
            ConsumerFunction(path)
        assert str(caught.value).startswith(message)

    def test_module_that_raises_is_refused(self, tmp_path):
        (tmp_path / "broken.py").write_text("1 / 0\n")
        with pytest.raises(
            ConsumerChoiceError, match=r"ZeroDivisionError: .* \(broken.py, line 1\)"
        ):
            ConsumerFunction("broken:main")

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            ("ends", "ended before it joined group g: it must run until it is cancelled"),
            ("raises", r"failed: KeyError: 'size' \(reading.py, line \d+\)"),
            ("raises_on_record", r"failed: ValueError: .* b'red' \(reading.py, line \d+\)"),
            ("joins_another_group", "joins group other instead of g: give its consumer the"),
            ("joins_no_group", "does not join group g within 120 s of virtual time"),
            ("subscribes_to_another_topic", "subscribes to u, but member c-00000001 of group g"),
            ("is_one_static_member", "2 of 3 processes do not join group g within 120 s"),
            ("starts_a_thread", r"failed: a thread is not possible in a simulated world; .*line"),
            ("sleeps", r"failed: time.sleep\(\) is not possible in a simulated world; "),
            ("uses_librdkafka", "failed: a consumer of confluent-kafka is not possible in a sim"),
            ("uses_deserializers", "failed: a consumer of confluent-kafka is not possible in a "),
            ("never_waits", "cannot be simulated: 200000 turns of the loop without a pause"),
        ],
    )
    def test_code_that_is_no_member_is_refused(self, function, message):
        samples = (SampleRecord(topic="t", partition=0, value=b"red"),)
        with pytest.raises(ConsumerCodeError, match=f"reading:{function}:? {message}"):
            probe_consumer(trial(function, samples=samples, group=group(topics="tu")))

    def test_failure_during_the_event_ends_the_trial(self):
        live = group(rate=0.02)  # the first record is written after 50 s
        with pytest.raises(ConsumerCodeError, match=r"raises_on_record failed: TypeError"):
            run("raises_on_record", "crash", group=live)

    def test_end_during_the_event_ends_the_trial(self):
        message = "reading:ends_later ended: it must run until it is cancelled"
        with pytest.raises(ConsumerCodeError, match=message):
            run("ends_later", "crash")
