"""The catalogue of topics."""

from __future__ import annotations

import pytest

from partage.log.catalogue.topic_catalogue import (
    NEW_PARTITIONS_MAX,
    CatalogueChange,
    TopicCatalogue,
    apply_change,
)
from partage.log.errors import DamagedFileError
from partage.log.layout import CATALOGUE_FILE, CHECKPOINT_FILE
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.model.errors import ErrorCode

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))


class Catalogue:
    """A catalogue on a disk that makes each change durable."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.topics = TopicCatalogue.load(self.disk)

    def apply(self, change: CatalogueChange | Refusal) -> None:
        assert isinstance(change, CatalogueChange), change
        apply_change(self.disk, change)

    def again(self) -> TopicCatalogue:
        return TopicCatalogue.load(self.disk)


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


def code(result: CatalogueChange | Refusal | None) -> ErrorCode | None:
    return result.code if isinstance(result, Refusal) else None


def test_topics_survive_restart(catalogue: Catalogue) -> None:
    catalogue.apply(catalogue.topics.create("flights", A, 3, {"retention.ms": "5"}))
    catalogue.apply(catalogue.topics.create("weather", B, 1, {}))
    catalogue.apply(catalogue.topics.add_partitions("weather", 2))
    catalogue.apply(catalogue.topics.set_configs("flights", {"segment.bytes": "1000"}))
    for topics in (catalogue.topics, catalogue.again()):
        flights, weather = topics
        assert (flights.name, flights.topic_id, flights.partition_count) == ("flights", A, 3)
        assert flights.configs == {"segment.bytes": "1000"}
        assert weather.partition_count == 2
        assert topics.by_id(B) == topics.get("weather") == weather
        assert topics.by_id(C) is None
        assert len(topics) == 2
        assert "weather" in topics
    assert catalogue.disk.names("") == [
        "flights-0",
        "flights-1",
        "flights-2",
        CATALOGUE_FILE,
        "weather-0",
        "weather-1",
    ]


def test_deleted_topic_frees_its_name(catalogue: Catalogue) -> None:
    catalogue.apply(catalogue.topics.create("flights", A, 2, {}))
    catalogue.disk.write("flights-1/x", 0, [b"x"])
    change = catalogue.topics.delete("flights")
    catalogue.apply(change)
    assert isinstance(change, CatalogueChange)
    assert change.removals == [f"flights-{n}.{A.hex()}.deleted" for n in range(2)]
    assert catalogue.disk.names("") == [*change.removals, CATALOGUE_FILE]
    catalogue.apply(catalogue.topics.create("flights", B, 1, {}))
    assert catalogue.disk.names("flights-0") == []
    assert catalogue.topics.by_id(A) is None
    assert [topic.topic_id for topic in catalogue.again()] == [B]
    assert catalogue.disk.names("") == ["flights-0", CATALOGUE_FILE]


def test_interrupted_deletion_is_completed(catalogue: Catalogue) -> None:
    catalogue.apply(catalogue.topics.create("flights", A, 2, {}))
    change = catalogue.topics.delete("flights")
    assert isinstance(change, CatalogueChange)
    catalogue.disk.write(CATALOGUE_FILE, 0, [change.content])
    catalogue.disk.truncate(CATALOGUE_FILE, len(change.content))
    assert len(catalogue.again()) == 0
    assert catalogue.disk.names("") == [CATALOGUE_FILE]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * 250, "with space", "slash/", "ümlaut", "a\n", "a\0"]
)
def test_illegal_name_is_refused(catalogue: Catalogue, name: str) -> None:
    refused = catalogue.topics.create(name, A, 1, {})
    assert code(refused) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "...", "-"])
def test_legal_name_is_accepted(catalogue: Catalogue, name: str) -> None:
    catalogue.apply(catalogue.topics.create(name, A, 1, {}))
    change = catalogue.topics.delete(name)
    catalogue.apply(change)
    assert isinstance(change, CatalogueChange)
    assert all(len(path) <= 255 for path in change.removals)


def test_dot_and_underscore_collide(catalogue: Catalogue) -> None:
    catalogue.apply(catalogue.topics.create("a.b", A, 1, {}))
    refused = catalogue.topics.create("a_b", B, 1, {})
    assert code(refused) is ErrorCode.INVALID_TOPIC_EXCEPTION
    catalogue.apply(catalogue.topics.create("a-b", B, 1, {}))


def test_refused_change_leaves_catalogue_unchanged(catalogue: Catalogue) -> None:
    topics = catalogue.topics
    catalogue.apply(topics.create("a", A, 2, {}))
    for result, expected in (
        (topics.create("a", B, 1, {}), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topics.create("b", B, 0, {}), ErrorCode.INVALID_PARTITIONS),
        (topics.create("b", B, NEW_PARTITIONS_MAX + 1, {}), ErrorCode.POLICY_VIOLATION),
        (topics.create("b", B, 1, {"x": "y"}), ErrorCode.INVALID_CONFIG),
        (topics.check_create("b", 1, {"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topics.delete("b"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topics.add_partitions("b", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topics.add_partitions("a", 2), ErrorCode.INVALID_PARTITIONS),
        (topics.add_partitions("a", NEW_PARTITIONS_MAX + 3), ErrorCode.POLICY_VIOLATION),
        (topics.set_configs("b", {}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topics.set_configs("a", {"segment.ms": "0"}), ErrorCode.INVALID_CONFIG),
    ):
        assert code(result) is expected
    (only,) = topics
    assert (only.partition_count, only.configs) == (2, {})


def test_coordinator_topics_are_internal(catalogue: Catalogue) -> None:
    catalogue.apply(catalogue.topics.create("__consumer_offsets", A, 1, {}))
    catalogue.apply(catalogue.topics.create("mine", B, 1, {}))
    assert [topic.is_internal for topic in catalogue.topics] == [True, False]


def test_damaged_catalogue_is_refused(catalogue: Catalogue) -> None:
    catalogue.apply(catalogue.topics.create("flights", A, 2, {}))
    content = catalogue.disk.read(CATALOGUE_FILE, 0, 10_000)
    for bad, why in (
        (content[:-9], "cannot be read"),
        (content.replace(b"flights", b"flightz"), "checksum"),
        (content.replace(b'"version": 1', b'"version": 2'), "version 2"),
        (b"", "cannot be read"),
    ):
        catalogue.disk.truncate(CATALOGUE_FILE, 0)
        catalogue.disk.write(CATALOGUE_FILE, 0, [bad])
        with pytest.raises(DamagedFileError, match=why):
            catalogue.again()


def test_missing_catalogue_with_logs_is_refused(catalogue: Catalogue) -> None:
    catalogue.disk.write(CHECKPOINT_FILE, 0, [bytes(64)])
    assert len(catalogue.again()) == 0
    catalogue.disk.write(CHECKPOINT_FILE, 64, [b"x"])
    with pytest.raises(DamagedFileError, match="missing"):
        catalogue.again()
