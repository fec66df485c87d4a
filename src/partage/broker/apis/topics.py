"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.configs.dynamic_configs import DynamicConfigs
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LocalTopic, LogManager
from partage.broker.topics.topic_admin import (
    CatchUp,
    TopicAdmin,
    catch_up_once,
    check_current,
    request_deadline_s,
)
from partage.log.catalogue.topic_config import (
    ConfigEntry,
    ConfigLayer,
    ConfigSource,
    describe_configs,
)
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

_BROKER_DEFAULT = -1  # in num_partitions and replication_factor: use the broker's default
_REPLICAS = 1
_UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
_DUPLICATE_TOPIC = Refusal(ErrorCode.INVALID_REQUEST, "the request names the topic twice")


async def create_topics(
    inbound: InboundRequest,
    log_manager: LogManager,
    cluster_view: ClusterView,
    changes: TopicAdmin,
    dynamic_configs: DynamicConfigs,
) -> None:
    """Create topics, or with `validate_only` only check them.

    All topics of the request share the client's timeout.
    """
    request: CreateTopicsRequest = inbound.message
    until_s = request_deadline_s(request.timeout_ms)
    repeated = _duplicates(topic.name for topic in request.topics)
    catch_up = catch_up_once(changes)
    layers = dynamic_configs.topic_layers()
    results = []
    for topic in request.topics:
        if topic.name in repeated:
            results.append(_not_created(topic.name, _DUPLICATE_TOPIC))
        else:
            results.append(
                await _create(
                    topic,
                    log_manager,
                    cluster_view,
                    changes,
                    catch_up,
                    until_s,
                    layers,
                    validate_only=request.validate_only,
                )
            )
        await asyncio.sleep(0)  # a long list must not block other connections
    inbound.respond(CreateTopicsResponse(topics=results))


async def _create(
    requested: CreatableTopic,
    log_manager: LogManager,
    cluster_view: ClusterView,
    changes: TopicAdmin,
    catch_up: CatchUp,
    until_s: float,
    layers: Sequence[ConfigLayer],
    *,
    validate_only: bool,
) -> CreateTopicsResult:
    refusal = await _check_replication(requested, cluster_view)
    if refusal is not None:
        return _not_created(requested.name, refusal)
    count = requested.num_partitions
    if requested.assignments:
        count = len(requested.assignments)
    elif count == _BROKER_DEFAULT:
        count = log_manager.settings.partitions_default
    configs = {config.name: config.value for config in requested.configs}
    refusal = await check_current(
        lambda: log_manager.check_create(requested.name, count, configs), catch_up
    )
    if refusal is not None:
        return _not_created(requested.name, refusal)
    own = {name: value for name, value in configs.items() if value is not None}
    if validate_only:
        return CreateTopicsResult(
            name=requested.name,
            error_code=ErrorCode.NONE,
            num_partitions=count,
            replication_factor=_REPLICAS,
            configs=_configs(own, layers),
        )
    assigned = sorted(requested.assignments, key=lambda a: a.partition_index)
    brokers = [broker for each in assigned for broker in each.broker_ids]
    created = await changes.create(requested.name, count, own, brokers, until_s)
    if isinstance(created, Refusal):
        return _not_created(requested.name, created)
    return _created(created, layers)


async def _check_replication(
    requested: CreatableTopic, cluster_view: ClusterView
) -> Refusal | None:
    """Return an error if the request asks for replicas: each partition is stored on one broker."""
    if requested.assignments:
        if requested.num_partitions != _BROKER_DEFAULT or (
            requested.replication_factor != _BROKER_DEFAULT
        ):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                "num_partitions and replication_factor must be -1 if assignments are given",
            )
        numbers = sorted(a.partition_index for a in requested.assignments)
        if numbers != list(range(len(numbers))) or not await _is_one_broker_each(
            [a.broker_ids for a in requested.assignments], cluster_view
        ):
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partition indexes must be 0, 1, 2, ...; assign each partition to exactly one "
                "live broker",
            )
    elif requested.replication_factor not in (_BROKER_DEFAULT, _REPLICAS):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {requested.replication_factor} is not supported: each partition "
            "is stored on one broker; use 1 or -1",
        )
    return None


async def _is_one_broker_each(assigned: list[list[int]], cluster_view: ClusterView) -> bool:
    return all(len(brokers) == 1 for brokers in assigned) and await cluster_view.are_up(
        {broker for (broker,) in assigned}
    )


def _not_created(name: str, refusal: Refusal) -> CreateTopicsResult:
    return CreateTopicsResult(name=name, error_code=refusal.code, error_message=refusal.message)


def _created(made: LocalTopic, layers: Sequence[ConfigLayer]) -> CreateTopicsResult:
    return CreateTopicsResult(
        name=made.name,
        topic_id=made.topic.topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=made.partition_count,
        replication_factor=_REPLICAS,
        configs=_configs(made.topic.configs, layers),
    )


def _configs(own: Mapping[str, str], layers: Sequence[ConfigLayer]) -> list[CreatedTopicConfig]:
    own_layer = ConfigLayer(ConfigSource.DYNAMIC_TOPIC_CONFIG, own)
    return [_config(entry) for entry in describe_configs(own_layer, layers)]


def _config(entry: ConfigEntry) -> CreatedTopicConfig:
    return CreatedTopicConfig(
        name=entry.name,
        value=entry.value,
        read_only=False,
        config_source=entry.source,
        is_sensitive=False,
    )


async def delete_topics(
    inbound: InboundRequest, log_manager: LogManager, changes: TopicAdmin
) -> None:
    """Delete topics; respond when the groups' offsets for them are deleted durably."""
    request: DeleteTopicsRequest = inbound.message
    requested = request.topics if inbound.version >= 6 else _by_name(request.topic_names)
    catch_up = catch_up_once(changes)
    results = [await _delete(topic, log_manager, changes, catch_up) for topic in requested]
    await changes.wait_offsets_deleted()
    inbound.respond(DeleteTopicsResponse(responses=results))


def _by_name(names: list[str]) -> list[DeleteTopicsTopic]:
    return [DeleteTopicsTopic(name=name) for name in names]


async def _delete(
    requested: DeleteTopicsTopic, log_manager: LogManager, changes: TopicAdmin, catch_up: CatchUp
) -> DeleteTopicsResult:
    name = requested.name
    if name is None:
        refusal = await check_current(
            lambda: None if log_manager.topic_by_id(requested.topic_id) else _UNKNOWN_ID, catch_up
        )
        known = log_manager.topic_by_id(requested.topic_id)
        if refusal is not None or known is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if refusal is None else refusal.code
            return DeleteTopicsResult(name=None, topic_id=requested.topic_id, error_code=code)
        name = known.name
    deleted = await changes.delete(name)
    if isinstance(deleted, Refusal):
        return DeleteTopicsResult(name=name, error_code=deleted.code, error_message=deleted.message)
    return DeleteTopicsResult(name=name, topic_id=deleted.topic.topic_id, error_code=ErrorCode.NONE)


async def create_partitions(
    inbound: InboundRequest, log_manager: LogManager, cluster_view: ClusterView, changes: TopicAdmin
) -> None:
    """Add partitions to topics, or with `validate_only` only check the request."""
    request: CreatePartitionsRequest = inbound.message
    catch_up = catch_up_once(changes)
    repeated = _duplicates(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        if topic.name in repeated:
            results.append(_not_grown(topic.name, _DUPLICATE_TOPIC))
        else:
            results.append(
                await _create_partitions(
                    topic,
                    log_manager,
                    cluster_view,
                    changes,
                    catch_up,
                    validate_only=request.validate_only,
                )
            )
    inbound.respond(CreatePartitionsResponse(results=results))


async def _create_partitions(
    requested: CreatePartitionsTopic,
    log_manager: LogManager,
    cluster_view: ClusterView,
    changes: TopicAdmin,
    catch_up: CatchUp,
    *,
    validate_only: bool,
) -> CreatePartitionsResult:
    refusal = await check_current(
        lambda: log_manager.check_add_partitions(requested.name, requested.count), catch_up
    )
    if refusal is None and log_manager.is_internal(requested.name):
        refusal = Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{requested.name!r} cannot grow: its partition count determines each group's "
            "coordinator",
        )
    if refusal is None and requested.assignments is not None:
        refusal = await _check_assignments(requested, log_manager, cluster_view)
    if refusal is None and not validate_only:
        brokers = [broker for each in requested.assignments or () for broker in each.broker_ids]
        grown = await changes.add_partitions(requested.name, requested.count, brokers)
        refusal = grown if isinstance(grown, Refusal) else None
    if refusal is not None:
        return _not_grown(requested.name, refusal)
    return CreatePartitionsResult(name=requested.name, error_code=ErrorCode.NONE)


async def _check_assignments(
    requested: CreatePartitionsTopic, log_manager: LogManager, cluster_view: ClusterView
) -> Refusal | None:
    topic, assignments = log_manager.topic(requested.name), requested.assignments or []
    added = requested.count - (topic.partition_count if topic else 0)
    if len(assignments) == added and await _is_one_broker_each(
        [a.broker_ids for a in assignments], cluster_view
    ):
        return None
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{added} partitions are added; assign each of them to exactly one live broker",
    )


def _not_grown(name: str, refusal: Refusal) -> CreatePartitionsResult:
    return CreatePartitionsResult(name=name, error_code=refusal.code, error_message=refusal.message)


def _duplicates(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}
