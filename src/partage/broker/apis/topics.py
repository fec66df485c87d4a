"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from partage.broker.hosted import Hosted, HostedTopic
from partage.broker.inbound import Inbound
from partage.log.config import ConfigEntry, describe_configs
from partage.log.outcomes import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreatePartitionsTopic,
)
from partage.wire.apis.create_topics import (
    CreatableTopic,
    CreatedTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResult,
)
from partage.wire.apis.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicsResult,
    DeleteTopicsTopic,
)

_THE_BROKERS_OWN = -1  # for a number that the broker is to choose
_REPLICAS = 1


async def create_topics(inbound: Inbound, hosted: Hosted) -> None:
    """Create topics, or see whether they could be."""
    request: CreateTopicsRequest = inbound.message
    names = [topic.name for topic in request.topics]
    results = []
    for topic in request.topics:
        if names.count(topic.name) > 1:
            twice = Refusal(ErrorCode.INVALID_REQUEST, f"{topic.name} is in the request twice")
            results.append(_not_created(topic.name, twice))
        else:
            results.append(await _create(topic, hosted, request.validate_only))
    inbound.respond(CreateTopicsResponse(topics=results))


async def _create(asked: CreatableTopic, hosted: Hosted, validate_only: bool) -> CreateTopicsResult:
    refusal = _refusal(asked)
    if refusal is not None:
        return _not_created(asked.name, refusal)
    count = asked.num_partitions
    if asked.assignments:
        count = len(asked.assignments)
    elif count == _THE_BROKERS_OWN:
        count = hosted.settings.partitions_default
    configs = {config.name: config.value for config in asked.configs}
    refusal = hosted.check_create(asked.name, count, configs)
    if refusal is not None:
        return _not_created(asked.name, refusal)
    own = {name: value for name, value in configs.items() if value is not None}
    if validate_only:
        return CreateTopicsResult(
            name=asked.name,
            error_code=ErrorCode.NONE,
            num_partitions=count,
            replication_factor=_REPLICAS,
            configs=[_config(entry) for entry in describe_configs(own)],
        )
    created = await hosted.create(asked.name, count, own)
    return _not_created(asked.name, created) if isinstance(created, Refusal) else _created(created)


def _refusal(asked: CreatableTopic) -> Refusal | None:
    """What a cluster of one cannot do: replicas anywhere else."""
    if asked.assignments:
        if asked.num_partitions != _THE_BROKERS_OWN or (
            asked.replication_factor != _THE_BROKERS_OWN
        ):
            return Refusal(
                ErrorCode.INVALID_REQUEST, "with assignments, both numbers have to be -1"
            )
        numbers = sorted(a.partition_index for a in asked.assignments)
        if numbers != list(range(len(numbers))) or any(
            len(a.broker_ids) != _REPLICAS for a in asked.assignments
        ):
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions count from 0, and each has this one broker for its replicas",
            )
    elif asked.replication_factor not in (_THE_BROKERS_OWN, _REPLICAS):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor} is larger than the one broker that "
            "there is",
        )
    return None


def _not_created(name: str, refusal: Refusal) -> CreateTopicsResult:
    return CreateTopicsResult(name=name, error_code=refusal.code, error_message=refusal.message)


def _created(hosted: HostedTopic) -> CreateTopicsResult:
    return CreateTopicsResult(
        name=hosted.name,
        topic_id=hosted.topic.topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=len(hosted.partitions),
        replication_factor=_REPLICAS,
        configs=[_config(entry) for entry in describe_configs(hosted.topic.configs)],
    )


def _config(entry: ConfigEntry) -> CreatedTopicConfig:
    return CreatedTopicConfig(
        name=entry.name,
        value=entry.value,
        read_only=False,
        config_source=entry.source,
        is_sensitive=False,
    )


async def delete_topics(inbound: Inbound, hosted: Hosted) -> list[str]:
    """Delete topics; the names of those that are gone."""
    request: DeleteTopicsRequest = inbound.message
    asked = request.topics if inbound.version >= 6 else _by_name(request.topic_names)
    gone, results = [], []
    for topic in asked:
        result = await _delete(topic, hosted)
        results.append(result)
        if not result.error_code and result.name is not None:
            gone.append(result.name)
    inbound.respond(DeleteTopicsResponse(responses=results))
    return gone


def _by_name(names: list[str]) -> list[DeleteTopicsTopic]:
    return [DeleteTopicsTopic(name=name) for name in names]


async def _delete(asked: DeleteTopicsTopic, hosted: Hosted) -> DeleteTopicsResult:
    name = asked.name
    if name is None:
        known = hosted.topic_by_id(asked.topic_id)
        if known is None:
            return DeleteTopicsResult(
                name=None, topic_id=asked.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
        name = known.name
    deleted = await hosted.delete(name)
    if isinstance(deleted, Refusal):
        return DeleteTopicsResult(name=name, error_code=deleted.code, error_message=deleted.message)
    return DeleteTopicsResult(name=name, topic_id=deleted.topic.topic_id, error_code=ErrorCode.NONE)


async def create_partitions(inbound: Inbound, hosted: Hosted) -> None:
    """Give topics more partitions, or see whether they could have them."""
    request: CreatePartitionsRequest = inbound.message
    results = [await _grow(topic, hosted, request.validate_only) for topic in request.topics]
    inbound.respond(CreatePartitionsResponse(results=results))


async def _grow(
    asked: CreatePartitionsTopic, hosted: Hosted, validate_only: bool
) -> CreatePartitionsResult:
    refusal = hosted.check_partitions(asked.name, asked.count)
    if refusal is None and hosted.is_internal(asked.name):
        refusal = Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{asked.name} keeps its partitions: they say where each group is",
        )
    if refusal is None and not validate_only:
        grown = await hosted.add_partitions(asked.name, asked.count)
        refusal = grown if isinstance(grown, Refusal) else None
    if refusal is not None:
        return CreatePartitionsResult(
            name=asked.name, error_code=refusal.code, error_message=refusal.message
        )
    return CreatePartitionsResult(name=asked.name, error_code=ErrorCode.NONE)
