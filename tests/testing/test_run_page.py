"""The page that plays the run of a failed world."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from partage import Consumer
from partage.model.topic_partition import TopicPartition
from partage.testing import PartageWorld
from partage.testing.world.request_recorder import OwnedPartition, RecordedRequest
from partage.testing.world.run_page import RecordedRun, format_run_page
from partage.testing.world.story import StoryEvent
from testing import user_workers

ORDERS_0 = TopicPartition("orders", 0)


def recorded_run(**changes) -> RecordedRun:
    fields = {
        "title": "test_orders.py::test_it",
        "seed": 7,
        "error": "AssertionError: lost",
        "command": "pytest 'test_orders.py::test_it' --world-seed 7",
        "faults": ["at 4.0 s: kill worker-1, 1.0 s"],
        "faults_drawn": 3,
        "events": [
            StoryEvent(0, "broker-1", "started", "started"),
            StoryEvent(0.1, "worker-1", "started", "started"),
            StoryEvent(1, "world", "cut worker-1 from broker-1", "fault"),
            StoryEvent(2, "world", "the cut between worker-1 and broker-1 is healed", "healed"),
            StoryEvent(4, "worker-1", "killed", "killed"),
            StoryEvent(99, "worker-1", "after the failure"),
        ],
        "requests": [
            RecordedRequest(3, "worker-1", "OffsetCommit", "commit", "", {ORDERS_0: 5}, 3.1),
        ],
        "owned": [
            OwnedPartition("worker-1", "workers", ORDERS_0, 0.5, 4),
            OwnedPartition("worker-2", "workers", ORDERS_0, 3.5, 60),
        ],
        "failed_at_s": 60.0,
    }
    return RecordedRun(**(fields | changes))


def data_of(page: str) -> dict:
    (found,) = re.findall(r'<script type="application/json" id="run">(.*?)</script>', page)
    return json.loads(found)


def titles_of(page: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", page)


def test_page_has_error_plan_command_and_events() -> None:
    page = format_run_page(recorded_run())
    assert "AssertionError: lost" in page
    assert "1 of 3 faults" in page
    assert "pytest &#x27;test_orders.py::test_it&#x27; --world-seed 7" in page
    assert "<td>cut worker-1 from broker-1</td>" in page
    assert "<td>OffsetCommit orders-0 → 5</td>" in page


def test_page_needs_no_other_file() -> None:
    page = format_run_page(recorded_run())
    assert not re.search(r"\b(?:src|href)=|https?:|@import|url\((?!#)", page)
    assert "default-src 'none'" in page


def test_text_of_the_run_is_escaped() -> None:
    attack = "</script><script>alert(1)</script>"
    run = recorded_run(
        title=attack,
        error=attack,
        events=[StoryEvent(0, attack, attack, "started")],
        requests=[RecordedRequest(3, attack, attack, "other", attack, {})],
    )
    page = format_run_page(run)
    assert attack not in page
    assert page.count("</script>") == 2
    assert data_of(page)["processes"][0]["name"] == attack


def test_time_line_has_processes_cuts_and_both_owners() -> None:
    titles = titles_of(format_run_page(recorded_run()))
    assert "worker-1: running from 0.100 s to 4.000 s" in titles
    assert "worker-1: killed from 4.000 s to 60.000 s" in titles
    assert "cut worker-1 from broker-1" in titles
    assert "worker-1 owned orders-0 in group workers from 0.500 s to 4.000 s" in titles
    assert "worker-2 owned orders-0 in group workers from 3.500 s to 60.000 s" in titles
    assert "3.000 s: worker-1 committed offset 5" in titles


def test_events_after_the_failure_are_left_out() -> None:
    assert "after the failure" not in format_run_page(recorded_run())


def test_time_without_events_is_shortened() -> None:
    page = format_run_page(recorded_run())
    assert "56.0 s without events" in titles_of(page)
    scale = data_of(page)["scale"]
    assert scale[0] == [0, 0]
    assert scale[-1] == [60, 1]
    (kill,) = [share for at_s, share in scale if at_s == 4]
    assert kill == pytest.approx(0.97)


def test_failure_at_time_zero_has_a_page() -> None:
    run = recorded_run(events=[], requests=[], owned=[], failed_at_s=0.0)
    assert "failed at 0.000 s" in format_run_page(run)


def test_recorder_does_not_change_the_story(tmp_path: Path, monkeypatch) -> None:
    stories, recorders = [], []
    run = PartageWorld.run

    def run_and_keep(world: PartageWorld, test) -> None:
        if stories:
            world.record_requests()
        run(world, test)
        stories.append(world.story)
        recorders.append(world.recorder)

    monkeypatch.setattr(PartageWorld, "run", run_and_keep)
    for _ in range(2):
        user_workers.find_lost_orders(user_workers.saves_with_aiokafka, 3, tmp_path)
    assert stories[0] == stories[1]
    recorder = recorders[1]
    assert {"produce", "fetch", "commit", "group"} <= {each.kind for each in recorder.requests}
    owned = recorder.owned_partitions()
    assert {each.partition for each in owned} == {TopicPartition("orders", n) for n in range(4)}
    assert {each.process for each in owned} == set(user_workers.WORKERS)


async def read_orders(servers: str) -> None:
    """Read a topic in a group with the consumer protocol."""
    async with Consumer(servers, group_id="g", group_protocol="consumer") as reader:
        reader.subscribe(["orders"])
        async for _ in reader:
            pass


def test_consumer_protocol_has_owners_too(tmp_path: Path) -> None:
    world = PartageWorld(1, tmp_path)
    world.record_requests()

    async def scenario() -> None:
        await world.create_topic("orders", partitions=2)
        world.process(lambda: read_orders(world.bootstrap_servers), name="worker-1")
        await world.until(lambda: len(world.recorder.owned_partitions()) == 2)
        world.kill("worker-1")

    world.run(scenario)
    owned = world.recorder.owned_partitions()
    assert {each.partition.partition for each in owned} == {0, 1}
    assert all(each.to_s > each.from_s for each in owned)


def test_partitions_assigned_after_the_join_stay_owned(tmp_path: Path) -> None:
    """With the consumer protocol, a member first reports that it owns no partition."""
    world = PartageWorld(1, tmp_path)
    world.record_requests()

    def owners() -> set[str]:
        now_s = world.elapsed_s
        return {each.process for each in world.recorder.owned_partitions() if each.to_s == now_s}

    async def scenario() -> None:
        await world.create_topic("orders", partitions=2)
        world.process(lambda: read_orders(world.bootstrap_servers), name="worker-1")
        world.process(lambda: read_orders(world.bootstrap_servers), name="worker-2")
        await asyncio.sleep(60)
        assert owners() == {"worker-1", "worker-2"}

    world.run(scenario)
