"""Requests that tests send often: topics, Produce, Fetch and ListOffsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from partage.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResult,
)
from partage.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsResult,
    DeleteTopicsTopic,
)
from partage.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
)
from partage.wire.apis.list_offsets import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from partage.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from partage.wire.apis.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
)
from partage.wire.records.decoder import decode_records
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .raw_client import RawClient

NOW_MS = 1_760_000_000_000
LAST_VERSION_BY_NAME = 12  # the last version of Fetch with topic names


def creatable_topic(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    """Return a topic for CreateTopics; in config names write ``_`` for ``.``."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(raw: RawClient, name: str, partitions: int = 1, **configs: str) -> CreateTopicsResult:
    (result,) = raw.request(
        CREATE_TOPICS, CreateTopicsRequest(topics=[creatable_topic(name, partitions, **configs)])
    ).topics
    assert result.error_code == 0, result.error_message
    return result


def delete(raw: RawClient, name: str) -> DeleteTopicsResult:
    (result,) = raw.request(
        DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicsTopic(name=name)], timeout_ms=1000)
    ).responses
    assert result.error_code == 0, result.error_message
    return result


def metadata(
    raw: RawClient, *names: str, version: int = 12, may_create: bool = False
) -> MetadataResponse:
    """Request metadata of the given topics, or of all topics if none is given."""
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)
    return raw.request(METADATA, request, version)


def batch(*values: bytes, **options: Any) -> bytes:
    """Return a record batch with these values; each value is also its key."""
    records = [
        SimpleRecord(value, value, timestamp_ms=NOW_MS + at) for at, value in enumerate(values)
    ]
    return encode_batch(records, **options)


def produce_request(
    topic: str, *batches: bytes, partition: int = 0, acks: int = -1, **options: Any
) -> ProduceRequest:
    records = [b"".join(batches)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            ProduceTopic(
                name=topic, partition_data=[ProducePartition(index=partition, records=records)]
            )
        ],
        **options,
    )


def produce_result(response: Any) -> ProducePartitionResult:
    """Return the only partition of a Produce response."""
    ((result,),) = [topic.partition_responses for topic in response.responses]
    assert isinstance(result, ProducePartitionResult)
    return result


def produce(
    raw: RawClient, topic: str, *batches: bytes, version: int | None = None, **options: Any
) -> ProducePartitionResult:
    return produce_result(
        raw.request(PRODUCE, produce_request(topic, *batches, **options), version)
    )


def fetch_request(
    topic: str | bytes,
    offsets: Sequence[int] = (0,),
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 30,
    partition_max_bytes: int = 1 << 30,
    **options: Any,
) -> FetchRequest:
    """Return a Fetch request for a topic, by name or id; one offset for each of its first
    partitions.
    """
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchTopic(
                topic=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else bytes(16),
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for index, offset in enumerate(offsets)
                ],
            )
        ],
        **options,
    )


def fetch_results(response: Any) -> list[FetchPartitionResult]:
    """Return the partitions of a Fetch response with one topic."""
    assert response.error_code == 0
    (topic,) = response.responses
    results: list[FetchPartitionResult] = topic.partitions
    return results


def fetch(
    raw: RawClient,
    topic: str | bytes,
    offsets: Sequence[int] = (0,),
    *,
    version: int | None = None,
    **options: Any,
) -> list[FetchPartitionResult]:
    if version is None:
        version = LAST_VERSION_BY_NAME if isinstance(topic, str) else FETCH.version_max
    return fetch_results(raw.request(FETCH, fetch_request(topic, offsets, **options), version))


def values(result: FetchPartitionResult, from_offset: int = 0) -> list[bytes | None]:
    """Return the values of the fetched records."""
    assert result.error_code == 0, result.error_code
    return [record[3] for record in decode_records(content(result), from_offset)]


def content(result: FetchPartitionResult) -> bytes:
    return b"".join(result.records or ())


def list_offset(
    raw: RawClient, topic: str, timestamp_ms: int = LATEST, *, partition: int = 0, version: int = 9
) -> ListOffsetsPartitionResult:
    asked = ListOffsetsPartition(partition_index=partition, timestamp_ms=timestamp_ms)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    ((result,),) = [t.partitions for t in raw.request(LIST_OFFSETS, request, version).topics]
    return result


def offset_range(raw: RawClient, topic: str) -> tuple[int, int]:
    """Return the first and the next offset of partition 0."""
    return list_offset(raw, topic, EARLIEST).offset, list_offset(raw, topic, LATEST).offset
