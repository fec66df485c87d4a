"""Power failures at every single operation of an action, and of the start that follows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from partage.lab.environment.disk import CrashDisk, PowerLossError
from partage.log.catalogue.topic_catalogue import CatalogueChange, TopicCatalogue, apply_change
from partage.log.results import Refusal

from . import crash_images
from .crash_scenarios import SCENARIOS, check_recovery, crashes, state_of

SEEDS = 4


@pytest.mark.parametrize("name", SCENARIOS)
def test_crash_at_any_operation_keeps_durable_records(name: str) -> None:
    for seed in range(SEEDS):
        for host, ended in crashes(SCENARIOS[name], seed):
            check_recovery(name, host, ended)


@pytest.mark.parametrize("name", SCENARIOS)
def test_crash_during_recovery_changes_nothing(name: str) -> None:
    for host, _ in crashes(SCENARIOS[name], 0):
        assert isinstance(host.disk, CrashDisk)
        disk = host.disk.copy()
        host.open()
        state, operations = state_of(host), host.disk.operations - disk.operations
        for operation in range(operations):
            host.disk = disk.copy()
            host.disk.crash_after = operation
            with pytest.raises(PowerLossError):
                host.open()
            host.disk.crash(Random(operation))
            host.open()
            assert state_of(host) == state


def changes_of(topics: TopicCatalogue) -> Iterator[CatalogueChange | Refusal]:
    yield topics.create("flights", bytes([1] * 16), 2, {})
    yield topics.create("weather", bytes([2] * 16), 1, {"retention.ms": "5"})
    yield topics.add_partitions("weather", 3)
    yield topics.delete("flights")
    yield topics.create("flights", bytes([3] * 16), 1, {})


@pytest.mark.parametrize("seed", range(SEEDS))
def test_crash_leaves_old_or_new_catalogue(seed: int) -> None:
    for operation in range(60):
        disk = CrashDisk()
        topics = TopicCatalogue.load(disk)
        before = list(topics)
        disk.crash_after = operation
        try:
            for change in changes_of(topics):
                assert isinstance(change, CatalogueChange)
                apply_change(disk, change)
                before = list(topics)
        except PowerLossError:
            pass
        disk.crash(Random(seed * 1000 + operation))
        found = TopicCatalogue.load(disk)
        assert list(found) in (before, list(topics))
        directories = [name for name in disk.names("") if name.rpartition("-")[0]]
        assert {
            f"{topic.name}-{partition}"
            for topic in found
            for partition in range(topic.partition_count)
        } <= set(directories)
        assert not [name for name in directories if name.endswith(".deleted")]


def test_crash_images_are_recovered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["crash_images", "--images", "150", "--seed", "7"])
    assert crash_images.main() == 0
    assert "all recovered correctly" in capsys.readouterr().out
