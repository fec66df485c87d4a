"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from partage.broker.hosted import Hosted, HostedTopic
from partage.broker.inbound import Inbound
from partage.broker.neighbours import Neighbours
from partage.broker.topic_changes import TopicChanges, waited_until_s
from partage.log.catalogue.topic_config import ConfigEntry, describe_configs
from partage.log.results import Refusal
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
_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")


async def create_topics(
    inbound: Inbound, hosted: Hosted, neighbours: Neighbours, changes: TopicChanges
) -> None:
    """Create topics, or see whether they could be; all together wait as long as the client does."""
    request: CreateTopicsRequest = inbound.message
    until_s = waited_until_s(request.timeout_ms)
    repeated = _repeated(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        if topic.name in repeated:
            results.append(_not_created(topic.name, _TWICE))
        else:
            may_change = None if request.validate_only else changes
            results.append(await _create(topic, hosted, neighbours, may_change, until_s))
        await asyncio.sleep(0)  # a long list holds nobody else up
    inbound.respond(CreateTopicsResponse(topics=results))


async def _create(
    asked: CreatableTopic,
    hosted: Hosted,
    neighbours: Neighbours,
    changes: TopicChanges | None,
    until_s: float,
) -> CreateTopicsResult:
    refusal = await _refusal(asked, neighbours)
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
    if changes is None:
        return CreateTopicsResult(
            name=asked.name,
            error_code=ErrorCode.NONE,
            num_partitions=count,
            replication_factor=_REPLICAS,
            configs=_configs(own, hosted),
        )
    assigned = sorted(asked.assignments, key=lambda a: a.partition_index)
    brokers = [broker for each in assigned for broker in each.broker_ids]
    created = await changes.create(asked.name, count, own, brokers, until_s)
    if isinstance(created, Refusal):
        return _not_created(asked.name, created)
    return _created(created, hosted)


async def _refusal(asked: CreatableTopic, neighbours: Neighbours) -> Refusal | None:
    """What no broker here does: replicas beside the one that holds a partition."""
    if asked.assignments:
        if asked.num_partitions != _THE_BROKERS_OWN or (
            asked.replication_factor != _THE_BROKERS_OWN
        ):
            return Refusal(
                ErrorCode.INVALID_REQUEST, "with assignments, both numbers have to be -1"
            )
        numbers = sorted(a.partition_index for a in asked.assignments)
        if numbers != list(range(len(numbers))) or not await _is_one_broker_each(
            [a.broker_ids for a in asked.assignments], neighbours
        ):
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions count from 0, and each has one broker that is up for its replicas",
            )
    elif asked.replication_factor not in (_THE_BROKERS_OWN, _REPLICAS):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor}: partitions are not replicated here, "
            "each is held by one broker",
        )
    return None


async def _is_one_broker_each(assigned: list[list[int]], neighbours: Neighbours) -> bool:
    return all(len(brokers) == 1 for brokers in assigned) and await neighbours.are_up(
        {broker for (broker,) in assigned}
    )


def _not_created(name: str, refusal: Refusal) -> CreateTopicsResult:
    return CreateTopicsResult(name=name, error_code=refusal.code, error_message=refusal.message)


def _created(made: HostedTopic, hosted: Hosted) -> CreateTopicsResult:
    return CreateTopicsResult(
        name=made.name,
        topic_id=made.topic.topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=made.partition_count,
        replication_factor=_REPLICAS,
        configs=_configs(made.topic.configs, hosted),
    )


def _configs(own: Mapping[str, str], hosted: Hosted) -> list[CreatedTopicConfig]:
    return [_config(entry) for entry in describe_configs(own, hosted.settings.topic_defaults)]


def _config(entry: ConfigEntry) -> CreatedTopicConfig:
    return CreatedTopicConfig(
        name=entry.name,
        value=entry.value,
        read_only=False,
        config_source=entry.source,
        is_sensitive=False,
    )


async def delete_topics(inbound: Inbound, hosted: Hosted, changes: TopicChanges) -> None:
    """Delete topics; the groups have forgotten them when it is answered."""
    request: DeleteTopicsRequest = inbound.message
    asked = request.topics if inbound.version >= 6 else _by_name(request.topic_names)
    results = [await _delete(topic, hosted, changes) for topic in asked]
    await changes.forgotten()
    inbound.respond(DeleteTopicsResponse(responses=results))


def _by_name(names: list[str]) -> list[DeleteTopicsTopic]:
    return [DeleteTopicsTopic(name=name) for name in names]


async def _delete(
    asked: DeleteTopicsTopic, hosted: Hosted, changes: TopicChanges
) -> DeleteTopicsResult:
    name = asked.name
    if name is None:
        known = hosted.topic_by_id(asked.topic_id)
        if known is None:
            return DeleteTopicsResult(
                name=None, topic_id=asked.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
        name = known.name
    deleted = await changes.delete(name)
    if isinstance(deleted, Refusal):
        return DeleteTopicsResult(name=name, error_code=deleted.code, error_message=deleted.message)
    return DeleteTopicsResult(name=name, topic_id=deleted.topic.topic_id, error_code=ErrorCode.NONE)


async def create_partitions(
    inbound: Inbound, hosted: Hosted, neighbours: Neighbours, changes: TopicChanges
) -> None:
    """Give topics more partitions, or see whether they could have them."""
    request: CreatePartitionsRequest = inbound.message
    repeated = _repeated(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        if topic.name in repeated:
            results.append(_not_grown(topic.name, _TWICE))
        else:
            may_change = None if request.validate_only else changes
            results.append(await _grow(topic, hosted, neighbours, may_change))
    inbound.respond(CreatePartitionsResponse(results=results))


async def _grow(
    asked: CreatePartitionsTopic,
    hosted: Hosted,
    neighbours: Neighbours,
    changes: TopicChanges | None,
) -> CreatePartitionsResult:
    refusal = hosted.check_partitions(asked.name, asked.count)
    if refusal is None and hosted.is_internal(asked.name):
        refusal = Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{asked.name} keeps its partitions: they say where each group is",
        )
    if refusal is None and asked.assignments is not None:
        refusal = await _refused_assignments(asked, hosted, neighbours)
    if refusal is None and changes is not None:
        brokers = [broker for each in asked.assignments or () for broker in each.broker_ids]
        grown = await changes.add_partitions(asked.name, asked.count, brokers)
        refusal = grown if isinstance(grown, Refusal) else None
    if refusal is not None:
        return _not_grown(asked.name, refusal)
    return CreatePartitionsResult(name=asked.name, error_code=ErrorCode.NONE)


async def _refused_assignments(
    asked: CreatePartitionsTopic, hosted: Hosted, neighbours: Neighbours
) -> Refusal | None:
    topic, assignments = hosted.topic(asked.name), asked.assignments or []
    added = asked.count - (topic.partition_count if topic else 0)
    if len(assignments) == added and await _is_one_broker_each(
        [a.broker_ids for a in assignments], neighbours
    ):
        return None
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{added} partitions are added, and each has one broker that is up for its replicas",
    )


def _not_grown(name: str, refusal: Refusal) -> CreatePartitionsResult:
    return CreatePartitionsResult(name=name, error_code=refusal.code, error_message=refusal.message)


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}
