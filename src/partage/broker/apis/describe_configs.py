"""DescribeConfigs, for topics, brokers and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.configs.dynamic_configs import ConfigResource, DynamicConfigs
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.overrides import (
    DYNAMIC_SETTINGS,
    is_static,
    setting_names,
    setting_type,
    setting_value,
)
from partage.broker.topics.log_manager import LogManager
from partage.log.catalogue.config_keys import ConfigType
from partage.log.catalogue.topic_config import (
    ConfigEntry,
    ConfigLayer,
    ConfigSource,
    ConfigSynonym,
    describe_configs,
)
from partage.log.catalogue.topic_names import TOPIC_NAME_MAX
from partage.log.results import Refusal
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.wire.apis.common import ConfigResourceType
from partage.wire.apis.describe_configs import (
    DescribeConfigsEntry,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_DEFAULT_SETTINGS: Final = BrokerSettings()
#: Resources that one turn of the event loop describes; a thread encodes longer responses.
_RESOURCES_PER_TURN: Final = 20


class ConfigDescriber:
    """Describes the configs of topics, of this broker, and of groups.

    Args:
        log_manager: the topics.
        dynamic_configs: the altered configs of brokers and groups.
        node: this broker, with the address that clients connect to.
        address: host and port on which the broker listens.
    """

    def __init__(
        self,
        log_manager: LogManager,
        dynamic_configs: DynamicConfigs,
        node: BrokerNode,
        address: Address,
    ) -> None:
        self._log_manager = log_manager
        self._dynamic_configs = dynamic_configs
        self._node = node
        self._address = address

    async def handle(self, inbound: InboundRequest) -> None:
        """Respond with the configs of each requested resource."""
        request: DescribeConfigsRequest = inbound.message
        # A resource is described once, even if it is named often: a small request must not produce
        # a huge response.
        resources = {(r.resource_type, r.resource_name): r for r in request.resources}
        results = list[DescribeConfigsResult]()
        for count, each in enumerate(resources.values(), 1):
            if count % _RESOURCES_PER_TURN == 0:
                await asyncio.sleep(0)  # a long list must not block other connections
            results.append(self._result(each, request))
        response = DescribeConfigsResponse(results=results)
        if len(results) <= _RESOURCES_PER_TURN:
            inbound.respond(response)
            return

        def encode() -> bytes:
            return b"".join(inbound.api.encode_response(inbound.version, response))

        inbound.respond_encoded([await asyncio.to_thread(encode)])

    def _result(
        self, requested: DescribeConfigsResource, request: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        entries = self._entries(requested.resource_type, requested.resource_name)
        refusal = entries if isinstance(entries, Refusal) else None
        wanted = requested.configuration_keys
        return DescribeConfigsResult(
            error_code=ErrorCode.NONE if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
            resource_type=requested.resource_type,
            resource_name=requested.resource_name,
            configs=[
                _wire_entry(entry, request)
                for entry in (() if isinstance(entries, Refusal) else entries)
                if not wanted or entry.name in wanted
            ],
        )

    def _entries(self, resource_type: int, name: str) -> Sequence[ConfigEntry] | Refusal:
        match resource_type:
            case ConfigResourceType.TOPIC:
                return self._topic_entries(name)
            case ConfigResourceType.BROKER:
                return self._broker_entries(name)
            case ConfigResourceType.GROUP:
                return self._group_entries(name)
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource_type} has no configs; only topics, brokers and groups have",
        )

    def _topic_entries(self, name: str) -> Sequence[ConfigEntry] | Refusal:
        topic = self._log_manager.topic(name)
        if topic is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
        own = ConfigLayer(ConfigSource.DYNAMIC_TOPIC_CONFIG, topic.topic.configs)
        return describe_configs(own, self._dynamic_configs.topic_layers())

    def _group_entries(self, name: str) -> Sequence[ConfigEntry] | Refusal:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "the group id must not be empty")
        configs = self._dynamic_configs.configs_of(ConfigResource(ConfigResourceType.GROUP, name))
        own = ConfigLayer(ConfigSource.GROUP_CONFIG, configs)
        dynamic = self._dynamic_configs
        return describe_configs(own, dynamic.group_layers(), keys=dynamic.group_keys)

    def _broker_entries(self, name: str) -> Sequence[ConfigEntry] | Refusal:
        layers = self._dynamic_configs.broker_layers()
        if not name:  # the defaults of all brokers, as far as clients have set them
            return [
                _broker_entry(key, [ConfigSynonym(key, value, layers[-1].source)])
                for key, value in sorted(layers[-1].values.items())
            ]
        if name != str(self._node.node_id):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self._node.node_id}, not {name[:TOPIC_NAME_MAX]!r}",
            )
        entries = [
            _broker_entry(key, list(_synonyms(key, layers, self._dynamic_configs.static)))
            for key in setting_names()
        ]
        return sorted([*entries, *self._listeners()], key=lambda entry: entry.name)

    def _listeners(self) -> Iterator[ConfigEntry]:
        advertised = Address(self._node.host, self._node.port)
        for name, address in (
            ("listeners", self._address),
            ("advertised.listeners", advertised),
        ):
            value = f"PLAINTEXT://{address}"
            yield ConfigEntry(
                name=name,
                type=ConfigType.LIST,
                synonyms=[ConfigSynonym(name, value, ConfigSource.STATIC_BROKER_CONFIG)],
                doc="",
                is_read_only=True,
            )


def _synonyms(
    name: str, layers: Iterable[ConfigLayer], static: BrokerSettings
) -> Iterator[ConfigSynonym]:
    for layer in layers:
        if name in layer.values:
            yield ConfigSynonym(name, layer.values[name], layer.source)
    if is_static(static, name):
        value = setting_value(static, name)
        yield ConfigSynonym(name, value, ConfigSource.STATIC_BROKER_CONFIG)
    yield ConfigSynonym(name, setting_value(_DEFAULT_SETTINGS, name), ConfigSource.DEFAULT_CONFIG)


def _broker_entry(name: str, synonyms: Sequence[ConfigSynonym]) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        type=setting_type(name),
        synonyms=synonyms,
        doc="",
        is_read_only=name not in DYNAMIC_SETTINGS,
    )


def _wire_entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsEntry:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsEntry(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in synonyms
        ],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
