"""Deduplication and files of an archive after any number of kills, without Spark."""

from __future__ import annotations

import datetime
import fcntl
import os
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partage.console.pipelines.spark_runner import print_report
from partage.pipelines.archive.batches import BatchArchiver
from partage.pipelines.archive.deduplication import batch_ranges, unarchived_spans
from partage.pipelines.archive.directory import (
    ArchiveDirectory,
    ArchiveDirectoryError,
    StagingDirectory,
)
from partage.pipelines.archive.manifest import (
    ArchivedFile,
    ArchivedRange,
    ArchiveReport,
    Manifest,
    ManifestEntry,
    ManifestError,
    PartitionReport,
)
from partage.pipelines.join.job import JoinOptions
from partage.pipelines.join.window import JoinWindow
from partage.pipelines.offset_spans import OffsetSpan

DAY_0 = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)


def entry(number, *taken, files=(), **changed):
    settings = {"at_ms": 0, "by": "test", **changed}
    return ManifestEntry(
        number=number, taken=[ArchivedRange(*one) for one in taken], files=list(files), **settings
    )


class TestManifest:
    def test_report_sums_entries(self):
        manifest = Manifest(
            [
                entry(
                    0,
                    ("t", 0, 0, 10, 10),
                    ("t", 1, 5, 7, 1),
                    files=[ArchivedFile("a", "b", 11, 99)],
                ),
                entry(1, ("t", 0, 10, 12, 2), files=[ArchivedFile("c", "d", 2, 1)], refused=4),
            ]
        )
        assert manifest.missing_spans("t", 0, OffsetSpan(8, 20)) == [OffsetSpan(12, 20)]
        assert manifest.missing_spans("u", 0, OffsetSpan(8, 20)) == [OffsetSpan(8, 20)]
        assert manifest.report("dir") == ArchiveReport(
            "dir",
            rows=13,
            files=2,
            bytes=100,
            batches=2,
            refused=4,
            partitions=[
                PartitionReport("t", 0, 12, [(0, 12)]),
                PartitionReport("t", 1, 1, [(5, 7)]),
            ],
        )

    @pytest.mark.parametrize(
        ("bad", "story"),
        [
            (entry(1, ("t", 0, 9, 12, 3)), "has offsets 9 to 12 of t-0, some of which are"),
            (entry(1, ("t", 1, 0, 5, 5), ("t", 1, 4, 6, 2)), "some of which are already archived"),
            (entry(2, ("t", 0, 10, 12, 2)), "found entry 2 instead of entry 1"),
            (entry(1, ("t", 0, 12, 12, 0)), "has an invalid range"),
            (entry(1, ("t", 0, 10, 12, 3)), "has an invalid range"),
            (entry(1, ("t", 0, 10, 12, 2, "b0")), "topic 't' was deleted and recreated"),
            (entry(1, ("t", 0, 10, 12, 2), version=2), "has version 2; this program reads 1"),
        ],
    )
    def test_invalid_entry_is_rejected_without_change(self, bad, story):
        manifest = Manifest([entry(0, ("t", 0, 0, 10, 10, "a0"))])
        before = manifest.report("")
        with pytest.raises(ManifestError, match=story):
            manifest.apply(bad)
        assert manifest.report("") == before
        manifest.apply(entry(1, ("t", 0, 10, 12, 2)))


def test_batch_with_known_offsets_archives_new_ones():
    manifest = Manifest([entry(0, ("t", 0, 5, 8, 3))])
    ranges = batch_ranges(
        [(("t", 0), OffsetSpan(0, 4)), (("t", 0), OffsetSpan(6, 10)), (("t", 1), OffsetSpan(2, 3))]
    )
    assert ranges == {("t", 0): OffsetSpan(0, 10), ("t", 1): OffsetSpan(2, 3)}
    assert unarchived_spans(manifest, ranges) == {
        ("t", 0): [OffsetSpan(0, 5), OffsetSpan(8, 10)],
        ("t", 1): [OffsetSpan(2, 3)],
    }


def stage(place: Path, ranges: dict[int, OffsetSpan], gaps: frozenset[int]) -> None:
    """Stage files as Spark does: one for each partition and date, with four offsets a day."""
    for partition, span in ranges.items():
        days: dict[str, list[int]] = {}
        for offset in range(*span):
            if offset not in gaps:
                day = DAY_0 + datetime.timedelta(days=offset // 4)
                days.setdefault(day.strftime("%Y-%m-%d"), []).append(offset)
        for date, offsets in days.items():
            directory = place / "topic=t" / f"date={date}"
            directory.mkdir(parents=True, exist_ok=True)
            table = pa.table(
                {
                    "value": [b"%d" % offset for offset in offsets],
                    "partition": pa.array([partition] * len(offsets), pa.int32()),
                    "offset": pa.array(offsets, pa.int64()),
                    "timestamp": [DAY_0] * len(offsets),
                }
            )
            pq.write_table(table, directory / f"part-{partition}-{os.urandom(4).hex()}.parquet")
    place.mkdir(parents=True, exist_ok=True)
    (place / "_SUCCESS").touch()


def readable(root: Path) -> Counter[tuple[int, int]]:
    """Return the rows that a reader of the directory sees."""
    found: Counter[tuple[int, int]] = Counter()
    for path in root.glob("topic=*/**/*.parquet"):
        rows = pq.ParquetFile(path).read(columns=["partition", "offset"]).to_pylist()
        found.update((row["partition"], row["offset"]) for row in rows)
    return found


class Killed(BaseException):
    """A kill; derived from BaseException, so that no handler cleans up."""


class Run:
    """A run of the archive that can be killed at its nth disk operation."""

    def __init__(self, root: Path) -> None:
        self.directory = ArchiveDirectory(root)
        self.directory.remove_stale_staging()
        self.staging = StagingDirectory(root)
        self.batches = BatchArchiver(self.directory, self.staging, "test", lambda: 7)

    def die(self) -> None:
        self.staging._lock.close()  # as the operating system does


RANGE = st.tuples(st.integers(0, 2), st.integers(0, 24), st.integers(1, 12))
STEP = st.tuples(
    st.integers(0, 1), st.lists(RANGE, min_size=1, max_size=3), st.none() | st.integers(0, 40)
)


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, max_size=8), gaps=st.frozensets(st.integers(0, 36), max_size=8))
def test_kills_and_overlaps_leave_one_row_per_record(tmp_path, steps, gaps):
    root = tmp_path / "archive"
    shutil.rmtree(root, ignore_errors=True)
    runs = [Run(root), Run(root)]
    promised: set[tuple[int, int]] = set()
    for who, ranges, killed_at in steps:
        batch: dict[int, OffsetSpan] = {}
        for partition, first, size in ranges:
            batch[partition] = OffsetSpan(first, first + size)
        records = {(p, o) for p, span in batch.items() for o in range(*span) if o not in gaps}
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, killed_at)
            try:
                runs[who].batches.archive_batch("0", lambda place, b=batch: stage(place, b, gaps))
                promised |= records
            except Killed:
                patch.undo()
                runs[who].die()
                runs[who] = Run(root)
        seen = readable(root)
        assert max(seen.values(), default=1) == 1
        assert promised <= seen.keys()
    # The next run completes unfinished moves and removes all leftovers.
    for run in runs:
        run.die()
    last = Run(root)
    seen = readable(root)
    assert max(seen.values(), default=1) == 1
    report = last.directory.manifest.report("")
    assert report.rows == len(seen)
    assert report.files == len(list(root.glob("topic=*/**/*.parquet")))
    covered = {(p.partition, o) for p in report.partitions for s in p.spans for o in range(*s)}
    assert {(p, o) for p, o in covered if o not in gaps} == seen.keys() >= promised
    assert [path.name for path in (root / "_staging").iterdir()] == [last.staging.path.name]
    assert all(path.suffix == ".json" for path in (root / "_manifest").iterdir())
    last.staging.close(last.directory)


def kill_at(patch: pytest.MonkeyPatch, touches: int | None) -> None:
    """Raise `Killed` before the nth system call that changes the archive."""
    if touches is None:
        return
    left = [touches]

    def dying(call):
        def run(*args, **kwargs):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return call(*args, **kwargs)

        return run

    patch.setattr(os, "fsync", dying(os.fsync))
    patch.setattr(os, "link", dying(os.link))
    patch.setattr(os, "rename", dying(os.rename))
    patch.setattr(Path, "rename", dying(Path.rename))
    patch.setattr(Path, "unlink", dying(Path.unlink))
    patch.setattr(shutil, "rmtree", lambda *args, **kwargs: left[0] and _rmtree(*args, **kwargs))


_rmtree = shutil.rmtree


class TestDirectory:
    def test_foreign_directory_is_rejected(self, tmp_path):
        (tmp_path / "letter.txt").touch()
        with pytest.raises(ArchiveDirectoryError, match="is not empty, and it is not an archive"):
            ArchiveDirectory(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]

    def test_create_false_creates_nothing(self, tmp_path):
        with pytest.raises(ArchiveDirectoryError, match="there is no archive in"):
            ArchiveDirectory(tmp_path / "a", create=False)
        assert not (tmp_path / "a").exists()

    def test_damaged_entry_is_named(self, tmp_path):
        ArchiveDirectory(tmp_path / "a")
        path = tmp_path / "a" / "_manifest" / "00000000.json"
        path.write_bytes(b"{")
        with pytest.raises(ManifestError, match=r"00000000\.json cannot be read"):
            ArchiveDirectory(tmp_path / "a")
        path.write_bytes(msgspec.json.encode(entry(3)))
        with pytest.raises(
            ManifestError, match=r"00000000\.json: found entry 3 instead of entry 0"
        ):
            ArchiveDirectory(tmp_path / "a")

    def test_concurrent_publish_succeeds_for_one_run(self, tmp_path):
        first, second = (Run(tmp_path / "a") for _ in range(2))
        taken = ("t", 0, 0, 4, 4)
        assert first.directory.publish(entry(0, taken), first.staging)
        assert not second.directory.publish(entry(0, taken), second.staging)
        assert second.batches.archive_batch(
            "0", lambda at: stage(at, {0: OffsetSpan(2, 6)}, frozenset())
        )
        first.directory.refresh()
        report = first.directory.manifest.report("")
        assert [one.spans for one in report.partitions] == [[(0, 6)]]
        assert report.refused == 2
        assert set(readable(tmp_path / "a")) == {(0, 4), (0, 5)}
        first.staging.close(first.directory)
        second.staging.close(second.directory)

    def test_recreated_topic_is_rejected(self, tmp_path):
        run = Run(tmp_path / "a")
        bring = run.batches.archive_batch
        assert bring("0", lambda at: stage(at, {0: OffsetSpan(0, 4)}, frozenset()), {"t": "a0"})
        for ids in ({"t": "a0"}, {"t": ""}, {}):  # same id, or unknown id
            assert not bring("1", lambda at: stage(at, {0: OffsetSpan(0, 4)}, frozenset()), ids)
        with pytest.raises(ManifestError, match="recreated since it was archived; use another"):
            bring("2", lambda at: stage(at, {0: OffsetSpan(0, 4)}, frozenset()), {"t": "b0"})
        run.staging.close(run.directory)
        with pytest.raises(ManifestError, match="recreated"):  # a new run knows it too
            ArchiveDirectory(tmp_path / "a").manifest.check_topics({"t": "b0"})

    def test_entry_of_other_kind_is_rejected(self, tmp_path):
        def options(**changed):
            given = {"servers": "", "left": "t", "right": "u", "group": "g", "output": tmp_path}
            return JoinOptions(**given | {"window": JoinWindow(within_ms=1, late_ms=2)} | changed)

        run = Run(tmp_path / "a")
        late = ArchiveDirectory(tmp_path / "a", options().kind)  # still empty
        assert run.batches.archive_batch(
            "0", lambda at: stage(at, {0: OffsetSpan(0, 4)}, frozenset())
        )
        with pytest.raises(
            ArchiveDirectoryError, match="by another pipeline or with other options"
        ):
            late.refresh()
        with pytest.raises(ArchiveDirectoryError, match="use another --output"):
            ArchiveDirectory(tmp_path / "a", options().kind)
        run.staging.close(run.directory)
        assert ArchiveDirectory(tmp_path / "a", kind=None).manifest.next_number == 1

        joined = ArchiveDirectory(tmp_path / "j", options().kind)
        staging = StagingDirectory(joined.path)
        bring = BatchArchiver(joined, staging, "test", lambda: 7).archive_batch
        assert bring("0", lambda at: stage(at, {0: OffsetSpan(0, 4)}, frozenset()))
        staging.close(joined)
        ArchiveDirectory(tmp_path / "j", options(group="h", is_once=True).kind)
        others = [{"right": "v"}, {"window": JoinWindow(0, 2)}, {"window": JoinWindow(1, 3)}]
        for changed in others:
            with pytest.raises(
                ArchiveDirectoryError, match=r"within 0\.001 s, late 0\.002 s; this run"
            ):
                ArchiveDirectory(tmp_path / "j", options(**changed).kind)
        with pytest.raises(ArchiveDirectoryError, match="this run: archive"):
            ArchiveDirectory(tmp_path / "j")

    def test_staging_of_live_run_is_kept(self, tmp_path):
        living, dead = Run(tmp_path / "a"), Run(tmp_path / "a")
        dead.die()
        ArchiveDirectory(tmp_path / "a").remove_stale_staging()
        assert living.staging.path.exists()
        assert not dead.staging.path.exists()
        living.staging.close(living.directory)
        assert not living.staging.path.exists()

    @pytest.mark.parametrize("call", [(Path, "open"), (fcntl, "flock"), (Path, "rename")])
    def test_kill_during_staging_creation_is_cleaned_up(self, tmp_path, call):
        ArchiveDirectory(tmp_path / "a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*call, killing)
            with pytest.raises(Killed):
                StagingDirectory(tmp_path / "a")
        assert list((tmp_path / "a" / "_staging").iterdir())
        ArchiveDirectory(tmp_path / "a").remove_stale_staging()
        assert not list((tmp_path / "a" / "_staging").iterdir())

    @pytest.mark.parametrize("call", [(Path, "open"), (fcntl, "flock")])
    def test_cleanup_during_staging_creation_is_harmless(self, tmp_path, call):
        root = tmp_path / "a"
        ArchiveDirectory(root)
        original = getattr(*call)
        with pytest.MonkeyPatch.context() as patch:

            def cleared(*args):
                patch.undo()
                ArchiveDirectory(root).remove_stale_staging()
                assert not list((root / "_staging").iterdir())
                return original(*args)

            patch.setattr(*call, cleared)
            staging = StagingDirectory(root)
        directory = ArchiveDirectory(root)
        directory.remove_stale_staging()
        assert [staging.path] == list((root / "_staging").iterdir())
        staging.close(directory)

    def test_failed_move_is_completed_later(self, tmp_path):
        """The disk fails between the entry and its moves; the error is raised, no row is lost."""
        run = Run(tmp_path / "a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", failing)
            with pytest.raises(OSError, match="disk full"):
                run.batches.archive_batch(
                    "0", lambda at: stage(at, {0: OffsetSpan(0, 6)}, frozenset())
                )
        assert not readable(tmp_path / "a")
        run.staging.close(run.directory)
        ArchiveDirectory(tmp_path / "a").remove_stale_staging()
        assert readable(tmp_path / "a") == Counter((0, offset) for offset in range(6))
        assert not list((tmp_path / "a" / "_staging").iterdir())

    @pytest.mark.parametrize("call", [(os, "fsync"), (Path, "unlink"), (Path, "read_bytes")])
    def test_error_after_publish_loses_no_rows(self, tmp_path, call):
        run = Run(tmp_path / "a")
        link = os.link
        with pytest.MonkeyPatch.context() as patch:

            def linked(*args):
                link(*args)
                patch.setattr(*call, failing)

            patch.setattr(os, "link", linked)
            with pytest.raises(OSError, match="disk full"):
                run.batches.archive_batch(
                    "0", lambda at: stage(at, {0: OffsetSpan(0, 6)}, frozenset())
                )
        run.staging.close(run.directory)
        ArchiveDirectory(tmp_path / "a").remove_stale_staging()
        assert readable(tmp_path / "a") == Counter((0, offset) for offset in range(6))
        assert not list((tmp_path / "a" / "_staging").iterdir())

    def test_files_of_dead_run_are_moved_before_cleanup(self, tmp_path):
        early, dying = ArchiveDirectory(tmp_path / "a"), Run(tmp_path / "a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", failing)
            with pytest.raises(OSError, match="disk full"):
                dying.batches.archive_batch(
                    "0", lambda at: stage(at, {0: OffsetSpan(0, 6)}, frozenset())
                )
        dying.die()
        early.remove_stale_staging()
        assert readable(tmp_path / "a") == Counter((0, offset) for offset in range(6))


def killing(*args):
    raise Killed


def failing(*args):
    raise OSError("disk full")


def test_report_prints_first_and_last_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    partition = PartitionReport("flights", 3, 7, [(0, 1), (4, 10)])
    print_report(ArchiveReport("archive", 7, 2, 900, 2, 0, [partition]), json=False)
    assert capsys.readouterr().out.splitlines()[1] == "flights          3     7  0 4-9"
