"""DescribeConfigs and IncrementalAlterConfigs, for topics and for the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.overrides import current_values
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.topic_admin import TopicAdmin
from partage.log.catalogue.config_keys import CONFIG_KEYS, ConfigType
from partage.log.catalogue.topic_config import ConfigEntry, ConfigSource, describe_configs
from partage.log.catalogue.topic_names import TOPIC_NAME_MAX
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.describe_configs import (
    DescribeConfigsEntry,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from partage.wire.apis.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_TOPIC = 2
_BROKER = 4
_NO_SUCH_TOPIC = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")


def describe(inbound: InboundRequest, log_manager: LogManager, node: BrokerNode) -> None:
    """Respond with the configs of each requested resource."""
    request: DescribeConfigsRequest = inbound.message
    # A resource is described once, even if it is named often: a small request must not produce a
    # huge response.
    resources = {(r.resource_type, r.resource_name): r for r in request.resources}
    inbound.respond(
        DescribeConfigsResponse(
            results=[
                _describe_resource(
                    resource,
                    log_manager,
                    node,
                    request.include_synonyms,
                    request.include_documentation,
                )
                for resource in resources.values()
            ]
        )
    )


def _describe_resource(
    requested: DescribeConfigsResource,
    log_manager: LogManager,
    node: BrokerNode,
    synonyms: bool,
    docs: bool,
) -> DescribeConfigsResult:
    entries = _entries(requested, log_manager, node, synonyms, docs)
    if isinstance(entries, Refusal):
        return DescribeConfigsResult(
            error_code=entries.code,
            error_message=entries.message,
            resource_type=requested.resource_type,
            resource_name=requested.resource_name,
            configs=[],
        )
    wanted = requested.configuration_keys
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
        configs=[entry for entry in entries if wanted is None or entry.name in wanted],
    )


def _entries(
    requested: DescribeConfigsResource,
    log_manager: LogManager,
    node: BrokerNode,
    synonyms: bool,
    docs: bool,
) -> Iterable[DescribeConfigsEntry] | Refusal:
    if requested.resource_type == _BROKER:
        if requested.resource_name not in ("", str(node.node_id)):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {node.node_id}, not {requested.resource_name[:TOPIC_NAME_MAX]!r}",
            )
        return [_broker_entry(name, value) for name, value in current_values(log_manager.settings)]
    if requested.resource_type != _TOPIC:
        return Refusal(ErrorCode.INVALID_REQUEST, "only topics and brokers have configs")
    topic = log_manager.topic(requested.resource_name)
    if topic is None:
        return _NO_SUCH_TOPIC
    defaults = log_manager.settings.topic_defaults
    return [
        _topic_entry(entry, _synonyms(entry, defaults) if synonyms else [], docs)
        for entry in describe_configs(topic.topic.configs, defaults)
    ]


def _synonyms(entry: ConfigEntry, defaults: Mapping[str, str]) -> list[DescribeConfigsSynonym]:
    """Return the sources of the value, and the values that would apply without them, strongest
    first.
    """
    behind: list[tuple[str, str, int]] = []
    if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG:
        behind.append((entry.name, entry.value, entry.source))
    if entry.name in defaults and entry.server_name:
        behind.append((entry.server_name, defaults[entry.name], ConfigSource.STATIC_BROKER_CONFIG))
    behind.append((entry.server_name or entry.name, entry.default, ConfigSource.DEFAULT_CONFIG))
    return [
        DescribeConfigsSynonym(name=name, value=value, source=source)
        for name, value, source in behind
    ]


def _topic_entry(
    entry: ConfigEntry, synonyms: list[DescribeConfigsSynonym], docs: bool
) -> DescribeConfigsEntry:
    return DescribeConfigsEntry(
        name=entry.name,
        value=entry.value,
        read_only=False,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.doc if docs else None,
    )


def _broker_entry(name: str, value: str) -> DescribeConfigsEntry:
    return DescribeConfigsEntry(
        name=name,
        value=value,
        read_only=True,
        config_source=ConfigSource.STATIC_BROKER_CONFIG,
        is_sensitive=False,
        synonyms=[],
    )


async def alter(inbound: InboundRequest, changes: TopicAdmin) -> None:
    """Change single configs of topics. Broker configs are set when the broker starts."""
    request: IncrementalAlterConfigsRequest = inbound.message
    results = []
    for resource in request.resources:
        refusal = await _alter_resource(resource, changes, request.validate_only)
        results.append(
            AlterConfigsResult(
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    inbound.respond(IncrementalAlterConfigsResponse(responses=results))


async def _alter_resource(
    requested: AlterConfigsResource, changes: TopicAdmin, validate_only: bool
) -> Refusal | None:
    if requested.resource_type != _TOPIC:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "only topic configs can be changed; broker configs are set when the broker starts",
        )

    def edit(configs: dict[str, str]) -> Refusal | None:
        refusals = (_apply(change, configs) for change in requested.configs)
        return next((refusal for refusal in refusals if refusal is not None), None)

    return await changes.alter_configs(requested.resource_name, edit, validate_only=validate_only)


def _apply(change: AlterableConfig, configs: dict[str, str]) -> Refusal | None:
    name, value = change.name, change.value
    if change.config_operation == DELETE:
        configs.pop(name, None)
        return None
    if value is None:
        return Refusal(
            ErrorCode.INVALID_CONFIG, f"{name[:TOPIC_NAME_MAX]}: the value must not be null"
        )
    if change.config_operation == SET:
        configs[name] = value
        return None
    edit = _LIST_EDITS.get(change.config_operation)
    key = CONFIG_KEYS.get(name)
    if edit is None or key is None or key.type is not ConfigType.LIST:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{name[:TOPIC_NAME_MAX]} is not a list config; APPEND and SUBTRACT need one",
        )
    parts = [part for part in configs.get(name, key.default).split(",") if part]
    configs[name] = ",".join(edit(parts, value.split(",")))
    return None


_LIST_EDITS: dict[int, Callable[[list[str], list[str]], list[str]]] = {
    APPEND: lambda parts, new: parts + [part for part in new if part not in parts],
    SUBTRACT: lambda parts, old: [part for part in parts if part not in old],
}
