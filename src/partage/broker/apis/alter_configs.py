"""IncrementalAlterConfigs and AlterConfigs, for topics, brokers and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from partage.broker.configs.dynamic_configs import ConfigEdit, ConfigResource, DynamicConfigs
from partage.broker.configs.group_config_keys import GROUP_CONFIG_KEYS
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.overrides import list_setting_default
from partage.broker.topics.topic_admin import TopicAdmin
from partage.log.catalogue.config_keys import CONFIG_KEYS, ConfigType
from partage.log.catalogue.topic_names import TOPIC_NAME_MAX, check_topic_name
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ReplacedConfigsResult,
    ReplacementConfig,
)
from partage.wire.apis.common import ConfigResourceType
from partage.wire.apis.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class _Alteration(NamedTuple):
    """One resource of a request, and the names of its configs in the request."""

    type: int
    name: str
    config_names: Sequence[str]
    null_names: Sequence[str]  # configs without a value, except if they are deleted
    edit: ConfigEdit

    @property
    def resource(self) -> ConfigResource:
        """The resource, if its type has configs."""
        return ConfigResource(ConfigResourceType(self.type), self.name)


_ResultT = TypeVar("_ResultT", AlterConfigsResult, ReplacedConfigsResult)


def _results(
    kind: type[_ResultT],
    alterations: Sequence[_Alteration],
    refusals: Sequence[Refusal | None],
) -> list[_ResultT]:
    return [
        kind(
            error_code=ErrorCode.NONE if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
            resource_type=each.type,
            resource_name=each.name,
        )
        for each, refusal in zip(alterations, refusals, strict=True)
    ]


class ConfigAlterer:
    """Alters configs.

    Args:
        topic_admin: changes the configs of topics.
        dynamic_configs: changes the configs of brokers and groups.
        node_id: the id of this broker.
    """

    def __init__(
        self, topic_admin: TopicAdmin, dynamic_configs: DynamicConfigs, node_id: int
    ) -> None:
        self._topic_admin = topic_admin
        self._dynamic_configs = dynamic_configs
        self._node_id = node_id

    async def alter_incrementally(self, inbound: InboundRequest) -> None:
        """Change single configs, and keep the others (IncrementalAlterConfigs)."""
        request: IncrementalAlterConfigsRequest = inbound.message
        alterations = [
            _Alteration(
                each.resource_type,
                each.resource_name,
                [config.name for config in each.configs],
                [c.name for c in each.configs if c.value is None and c.config_operation != DELETE],
                _incremental_edit(each.resource_type, each.configs),
            )
            for each in request.resources
        ]
        refusals = await self._alter_all(alterations, validate_only=request.validate_only)
        inbound.respond(
            IncrementalAlterConfigsResponse(
                responses=_results(AlterConfigsResult, alterations, refusals)
            )
        )

    async def replace(self, inbound: InboundRequest) -> None:
        """Replace all configs of each resource (AlterConfigs)."""
        request: AlterConfigsRequest = inbound.message
        alterations = [
            _Alteration(
                each.resource_type,
                each.resource_name,
                [config.name for config in each.configs],
                [config.name for config in each.configs if config.value is None],
                _replacing_edit(each.configs),
            )
            for each in request.resources
        ]
        refusals = await self._alter_all(alterations, validate_only=request.validate_only)
        inbound.respond(
            AlterConfigsResponse(responses=_results(ReplacedConfigsResult, alterations, refusals))
        )

    async def _alter_all(
        self, alterations: Sequence[_Alteration], *, validate_only: bool
    ) -> list[Refusal | None]:
        counts = Counter((each.type, each.name) for each in alterations)
        refusals: list[Refusal | None] = []
        edits = dict[ConfigResource, ConfigEdit]()  # of brokers and groups, for one write
        for each in alterations:
            if counts[each.type, each.name] > 1:
                refusal: Refusal | None = _invalid("the request names the resource twice")
            else:
                refusal = _check_names(each) or self._check_resource(each)
            if refusal is None and each.type == ConfigResourceType.TOPIC:
                refusal = await self._topic_admin.alter_configs(
                    each.name, each.edit, validate_only=validate_only
                )
            elif refusal is None:
                edits[each.resource] = each.edit
            refusals.append(refusal)
        refused = dict[ConfigResource, Refusal]()
        if edits:
            refused = await self._dynamic_configs.alter(edits, validate_only=validate_only)
        return [
            refusal or refused.get(each.resource)
            for each, refusal in zip(alterations, refusals, strict=True)
        ]

    def _check_resource(self, wanted: _Alteration) -> Refusal | None:
        match wanted.type:
            case ConfigResourceType.TOPIC:
                if not wanted.name:
                    return _invalid("the topic name must not be empty")
                if fault := check_topic_name(wanted.name):
                    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
            case ConfigResourceType.BROKER:
                if wanted.name not in ("", str(self._node_id)):
                    return _invalid(
                        f"this is broker {self._node_id}, not {wanted.name[:TOPIC_NAME_MAX]!r}; "
                        "send the request to that broker"
                    )
            case ConfigResourceType.GROUP:
                if not wanted.name:
                    return _invalid("the group id must not be empty")
            case _:
                return _invalid(
                    f"resource type {wanted.type} has no configs; only topics, brokers and groups "
                    "have"
                )
        return None


def _check_names(wanted: _Alteration) -> Refusal | None:
    if len(set(wanted.config_names)) < len(wanted.config_names):
        return _invalid("the request names a config of the resource twice")
    if wanted.null_names:
        return _invalid(f"{wanted.null_names[0][:TOPIC_NAME_MAX]}: the value must not be null")
    return None


def _replacing_edit(replacements: Sequence[ReplacementConfig]) -> ConfigEdit:
    def edit(configs: dict[str, str]) -> None:
        configs.clear()
        configs.update({each.name: each.value for each in replacements if each.value is not None})

    return edit


def _incremental_edit(resource_type: int, changes: Sequence[AlterableConfig]) -> ConfigEdit:
    def edit(configs: dict[str, str]) -> Refusal | None:
        refusals = (_apply(change, configs, resource_type) for change in changes)
        return next((refusal for refusal in refusals if refusal is not None), None)

    return edit


def _apply(change: AlterableConfig, configs: dict[str, str], resource_type: int) -> Refusal | None:
    name, value = change.name, change.value
    if change.config_operation == DELETE:
        configs.pop(name, None)
        return None
    assert value is not None  # see `_check_names`
    if change.config_operation == SET:
        configs[name] = value
        return None
    edit = _LIST_EDITS.get(change.config_operation)
    if edit is None:
        return _invalid(f"unknown operation {change.config_operation}")
    default = _list_default(resource_type, name)
    if default is None:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{name[:TOPIC_NAME_MAX]} is not a list config; APPEND and SUBTRACT need one",
        )
    parts = [part for part in configs.get(name, default).split(",") if part]
    configs[name] = ",".join(edit(parts, value.split(",")))
    return None


def _list_default(resource_type: int, name: str) -> str | None:
    """Return the default of a list config; None if there is no such list."""
    if resource_type == ConfigResourceType.BROKER:
        return list_setting_default(name)
    keys = GROUP_CONFIG_KEYS if resource_type == ConfigResourceType.GROUP else CONFIG_KEYS
    key = keys.get(name)
    return key.default if key is not None and key.type is ConfigType.LIST else None


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _without(parts: Sequence[str], others: Sequence[str]) -> list[str]:
    excluded = set(others)  # clients can send lists with thousands of parts
    return [part for part in parts if part not in excluded]


_LIST_EDITS: dict[int, Callable[[list[str], list[str]], list[str]]] = {
    APPEND: lambda parts, new: parts + _without(new, parts),
    SUBTRACT: _without,
}
