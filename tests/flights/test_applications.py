"""Loader, timeline and applications of the demo; ``make demo`` runs all of it."""

import threading
from collections import Counter

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka import Consumer, TopicPartition

from examples.flights import applications
from examples.flights.applications import Application, ApplicationError, Applications
from examples.flights.archive_results import Entries, archived_rows, rows_by_partition
from examples.flights.csv_records import PARTITIONS, FlightRecord
from examples.flights.loader import PacedRows, create_topics, load
from examples.flights.timeline import (
    ArchivedRows,
    OwnershipInterval,
    OwnershipTimeline,
    TimelineEvent,
    stayed,
)
from examples.flights.timeline_chart import draw_timeline
from partage.pipelines.archive.directory import entry_path
from partage.pipelines.archive.manifest import ArchivedRange, ManifestEntry


def rows(count):
    return [FlightRecord(b"%d" % n, b"x", n) for n in range(count)]


def test_load_partitions_keys_like_java(partage_broker):
    servers = partage_broker.bootstrap_servers
    create_topics(servers, ["t"])
    assert load(servers, "t", rows(300), lambda handed: None) == 300
    wanted = Counter((murmur2(b"%d" % n) & 0x7FFFFFFF) % PARTITIONS for n in range(300))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 2})
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition("t", partition), 30)[1]
        for partition in range(PARTITIONS)
    }
    consumer.close()
    assert ends == wanted


class TestPaced:
    def test_only_released_rows_are_yielded(self):
        paced = PacedRows(rows(3000), rate=1_000_000, released=1000)
        came = []
        reader = threading.Thread(target=lambda: came.extend(paced), daemon=True)
        found = iter(paced)
        assert [next(found).timestamp_ms for _ in range(1000)] == list(range(1000))
        paced.release(500)
        assert [next(found).timestamp_ms for _ in range(500)] == list(range(1000, 1500))
        reader.start()
        reader.join(0.05)
        assert reader.is_alive()  # It waits for the release.
        paced.hurry()
        reader.join(30)
        assert [row.timestamp_ms for row in came] == list(range(3000))

    def test_stop_ends_iteration(self):
        paced = PacedRows(rows(3000), rate=1_000_000, released=10)
        found = iter(paced)
        next(found)
        paced.stop()
        assert list(found) == []


class TestTimeline:
    def test_interval_ends_at_poll_with_other_owner(self):
        timeline = OwnershipTimeline()
        timeline.add_owners(1, {"ada": (0, 1)})
        timeline.add_owners(2, {"ada": (0, 1)})
        timeline.add_owners(3, {"ada": (0,), "ben": (1,)})
        timeline.add_owners(4, {"ben": (0, 1)})
        timeline.add_event("ada is killed", 3.5)
        assert timeline.owned == [
            OwnershipInterval(0, "ada", 1, 4),
            OwnershipInterval(0, "ben", 4, 4),
            OwnershipInterval(1, "ada", 1, 3),
            OwnershipInterval(1, "ben", 3, 4),
        ]
        assert timeline.events == [TimelineEvent("ada is killed", 3.5)]

    def test_stayed_counts_unmoved_partitions(self):
        assert stayed({"ada": (0, 1), "ben": (2, 3)}, {"ada": (0, 1, 2), "cleo": (3,)}) == 2

    def test_timeline_chart_is_drawn(self, tmp_path):
        timeline = OwnershipTimeline()
        timeline.add_owners(0, {"ada": (0, 1, 2)})
        timeline.add_owners(9, {"ada": (0,), "ben": (1, 2)})
        timeline.add_event("ben joins", 5)
        ticks = [ArchivedRows(0, "ada", 3.0, 10), ArchivedRows(1, "other", 8.0, 1)]
        draw_timeline(timeline, ticks, ("ada", "ben"), tmp_path / "owners.png")
        content = (tmp_path / "owners.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") == 1650

    def test_empty_timeline_chart_is_drawn(self, tmp_path):
        draw_timeline(OwnershipTimeline(), [], (), tmp_path / "owners.png")
        assert (tmp_path / "owners.png").stat().st_size > 1000


class TestResult:
    def test_archived_rows_name_application(self, tmp_path):
        (tmp_path / "_manifest").mkdir()
        taken = [ArchivedRange("flights", 1, 0, 5, 5), ArchivedRange("flights", 0, 2, 3, 1)]
        entries = Entries(tmp_path)
        assert entries.refresh() == []
        for number, by in enumerate(["ada", "ben"]):
            entry = ManifestEntry(number=number, taken=taken, files=[], at_ms=2500, by=by)
            entry_path(tmp_path, number).write_bytes(msgspec.json.encode(entry))
            assert [one.by for one in entries.refresh()] == ["ada", "ben"][: number + 1]
            entry_path(tmp_path, number).write_bytes(b"is not read again")
        assert archived_rows(entries.refresh()[:1], lambda at_ms: at_ms / 1000) == [
            ArchivedRows(1, "ada", 2.5, 5),
            ArchivedRows(0, "ada", 2.5, 1),
        ]

    def test_rows_by_partition_counts_file_rows(self, tmp_path):
        (tmp_path / "topic=flights").mkdir()
        for name, partition, offsets in (("a", 0, [0, 1]), ("b", 1, [5]), ("c", 0, [1])):
            table = pa.table({"partition": [partition] * len(offsets), "offset": offsets})
            pq.write_table(table, tmp_path / "topic=flights" / f"{name}.parquet")
        assert rows_by_partition(tmp_path) == {0: [0, 1, 1], 1: [5]}


def test_failed_application_is_reported(partage_broker, tmp_path, monkeypatch):
    """Without a working Java, an application ends immediately with an error."""
    monkeypatch.setenv("PARTAGE_JAVA", "nowhere")
    servers = partage_broker.bootstrap_servers
    with Applications(servers, "g", PARTITIONS, tmp_path) as running:
        running.start("ada", tmp_path / "joined", tmp_path / "delays.parquet")
        with pytest.raises(ApplicationError, match=r"ada: .*\nSee also .*ada\.log"):
            running.wait_until_stable(within_s=60)


def test_ended_application_can_be_killed(partage_broker, tmp_path, monkeypatch):
    monkeypatch.setenv("PARTAGE_JAVA", "nowhere")
    one = Application("ada", [partage_broker.bootstrap_servers, *"abcd"], tmp_path / "log")
    one.wait(60)
    one.kill()
    with Applications(partage_broker.bootstrap_servers, "g", PARTITIONS, tmp_path) as running:
        running.start("ben", tmp_path / "joined", tmp_path / "delays.parquet")
        running._running["ben"].wait(60)
        with pytest.raises(ApplicationError, match="ben: "):
            running.finish("ben", within_s=60)


def test_unstable_group_is_reported(partage_broker, tmp_path, monkeypatch):
    monkeypatch.setattr(applications, "_POLL_S", 0.01)
    with (
        Applications(partage_broker.bootstrap_servers, "g", PARTITIONS, tmp_path) as none,
        pytest.raises(
            ApplicationError,
            match=r"after 0\.1 s: the applications have not become stable; "
            r"partitions by owner: none\nThe machine may be too busy\. See also .*\.log",
        ),
    ):
        none.wait_until_stable(within_s=0.1)
