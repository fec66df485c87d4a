"""The configs of brokers and groups that clients have altered, and their effect.

Broker configs have two levels, as in Kafka: those of one broker, and the defaults of all brokers of
the cluster. Both override the settings with which the broker was started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from partage.broker.configs.config_store import DECISIONS_PER_TURN, ConfigDecision, ConfigStore
from partage.broker.configs.group_config_keys import (
    altered_group_defaults,
    check_together,
    consumer_group_defaults,
    group_config_keys,
    parse_group_config,
)
from partage.broker.overrides import (
    DYNAMIC_SETTINGS,
    OverrideError,
    apply_overrides,
    setting_names,
    topic_defaults,
)
from partage.coordinator.consumer_group.events import GroupConfig
from partage.log.catalogue.topic_config import ConfigLayer, ConfigSource, check_configs
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.printable import printable
from partage.model.settings import BrokerSettings
from partage.store.zk_schema import ConfigsDoc
from partage.wire.apis.common import ConfigResourceType

log = logging.getLogger(__name__)

#: Edits the configs of a resource, or returns the reason for a refusal.
ConfigEdit = Callable[[dict[str, str]], Refusal | None]

_BROKER: Final = "broker"
_GROUP: Final = "group"
_NONE: Final[Mapping[str, str]] = {}
_LOGGED_MAX: Final = 10  # resources of one request that the log names
#: Settings of Kafka that `partage.broker.overrides` lacks: they are options of the command.
_LISTENERS: Final = ("listeners", "advertised.listeners")
_SHOWN_MAX: Final = 100  # characters of a client's text that an error message repeats


class ConfigResource(NamedTuple):
    """A broker or a group. A broker without a name means the defaults of all brokers."""

    type: ConfigResourceType
    name: str

    @property
    def key(self) -> str:
        """The key of the resource in the store."""
        is_broker = self.type is ConfigResourceType.BROKER
        return f"{_BROKER if is_broker else _GROUP}:{self.name}"


class DynamicConfigs:
    """The altered configs as of the last change that was read.

    Args:
        static: the settings with which the broker was started.
        use_settings: called with the settings in effect when they change.
        on_group_configs_changed: called when `group_configs` or `assignment_interval_ms` has
            changed.
        assignors: the assignors that groups may select; the names in the settings by default.
    """

    def __init__(
        self,
        static: BrokerSettings,
        use_settings: Callable[[BrokerSettings], None],
        on_group_configs_changed: Callable[[], None] = lambda: None,
        assignors: Sequence[str] | None = None,
    ) -> None:
        self.static = static
        #: The configs that groups may have.
        self.group_keys = group_config_keys(static.groups.consumer, assignors)
        self._use_settings = use_settings
        self._on_group_configs_changed = on_group_configs_changed
        self._group_configs: Mapping[str, GroupConfig] = {}
        self._assignment_interval_ms = static.groups.consumer.assignment_interval_ms
        self._broker = ConfigResource(ConfigResourceType.BROKER, str(static.node_id))
        self._defaults = ConfigResource(ConfigResourceType.BROKER, "")
        self._doc = ConfigsDoc()
        self._store: ConfigStore | None = None

    def set_store(self, store: ConfigStore) -> None:
        """Set the store of later changes."""
        self._store = store

    def on_read(self, doc: ConfigsDoc) -> None:
        """Apply the configs that the store has read or changed."""
        before, self._doc = self._doc, doc
        keys = (self._defaults.key, self._broker.key)
        interval_ms = self._assignment_interval_ms
        if any(before.resources.get(key) != doc.resources.get(key) for key in keys):
            settings = self._effective_settings()
            interval_ms = settings.groups.consumer.assignment_interval_ms
            self._use_settings(settings)
        group_configs = self._parse_group_configs(before)
        if (group_configs, interval_ms) != (self._group_configs, self._assignment_interval_ms):
            self._group_configs, self._assignment_interval_ms = group_configs, interval_ms
            self._on_group_configs_changed()

    def group_configs(self) -> Mapping[str, GroupConfig]:
        """Return the altered configs of groups with the consumer protocol, by group id."""
        return self._group_configs

    def assignment_interval_ms(self) -> int:
        """Return the default of ``consumer.assignment.interval.ms``, which may be altered."""
        return self._assignment_interval_ms

    def group_layers(self) -> list[ConfigLayer]:
        """Return the broker's defaults of group configs, by the group config's name."""
        altered = [
            ConfigLayer(layer.source, altered_group_defaults(layer.values))
            for layer in self.broker_layers()
        ]
        defaults = consumer_group_defaults(self.static.groups.consumer)
        return [*altered, ConfigLayer(ConfigSource.STATIC_BROKER_CONFIG, defaults)]

    def configs_of(self, resource: ConfigResource) -> Mapping[str, str]:
        """Return the altered configs of a broker or group."""
        return self._doc.resources.get(resource.key, _NONE)

    def group_ids(self) -> list[str]:
        """Return the groups with altered configs."""
        prefix = f"{_GROUP}:"
        return [key.removeprefix(prefix) for key in self._doc.resources if key.startswith(prefix)]

    def broker_layers(self) -> list[ConfigLayer]:
        """Return the altered configs of this broker and of all brokers, strongest first."""
        return [
            ConfigLayer(ConfigSource.DYNAMIC_BROKER_CONFIG, self.configs_of(self._broker)),
            ConfigLayer(
                ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.configs_of(self._defaults)
            ),
        ]

    def topic_layers(self) -> list[ConfigLayer]:
        """Return the defaults of topic configs by the topic config's name, strongest first."""
        layers = [
            ConfigLayer(layer.source, topic_defaults(layer.values))
            for layer in self.broker_layers()
        ]
        static = ConfigLayer(ConfigSource.STATIC_BROKER_CONFIG, self.static.topic_defaults)
        return [*layers, static]

    async def alter(
        self, edits: Mapping[ConfigResource, ConfigEdit], *, validate_only: bool
    ) -> dict[ConfigResource, Refusal]:
        """Change the configs of some brokers and groups with one write; return the refusals.

        Refuses with INVALID_REQUEST (brokers) or INVALID_CONFIG (groups) if a config is invalid.
        """
        decisions = {
            resource.key: partial(self._decide, resource, edit) for resource, edit in edits.items()
        }
        if validate_only:
            refused = await self._validate(decisions)
        else:
            assert self._store is not None
            refused = await self._store.change(decisions)
            self._log_changes([each for each in edits if each.key not in refused])
        return {each: refused[each.key] for each in edits if each.key in refused}

    def _decide(
        self, resource: ConfigResource, edit: ConfigEdit, current: Mapping[str, str]
    ) -> Mapping[str, str] | Refusal:
        configs = dict(current)
        return edit(configs) or self._check(resource, configs) or configs

    async def _validate(self, decisions: Mapping[str, ConfigDecision]) -> dict[str, Refusal]:
        refused = dict[str, Refusal]()
        for count, (key, decide) in enumerate(decisions.items(), 1):
            if count % DECISIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            decided = decide(self._doc.resources.get(key, _NONE))
            if isinstance(decided, Refusal):
                refused[key] = decided
        return refused

    def _log_changes(self, resources: Sequence[ConfigResource]) -> None:
        for resource in resources[:_LOGGED_MAX]:
            configs = str(dict(self.configs_of(resource)))[: 5 * _SHOWN_MAX]
            key = printable(resource.key[:_SHOWN_MAX])
            log.info("altered configs: resource=%s configs=%s", key, configs)
        if len(resources) > _LOGGED_MAX:
            log.info("altered configs of more groups: count=%d", len(resources) - _LOGGED_MAX)

    def _parse_group_configs(self, before: ConfigsDoc) -> dict[str, GroupConfig]:
        """Return the configs of all groups; those of unchanged groups are not parsed again."""
        found: dict[str, GroupConfig] = {}
        for group_id in self.group_ids():
            key = f"{_GROUP}:{group_id}"
            configs = self._doc.resources[key]
            known = self._group_configs.get(group_id)
            if known is None or before.resources.get(key) != configs:
                known = parse_group_config(configs, self.static.groups.consumer)
            if known is not None:
                found[group_id] = known
        return found

    def _check(self, resource: ConfigResource, configs: Mapping[str, str]) -> Refusal | None:
        if resource.type is ConfigResourceType.GROUP:
            refusal = check_configs(configs, self.group_keys, "group")
            if refusal is not None:
                return refusal
            fault = check_together(configs, self.static.groups.consumer)
            return None if fault is None else Refusal(ErrorCode.INVALID_CONFIG, fault)
        # As in Kafka, INVALID_REQUEST and not INVALID_CONFIG (KAFKA-13609).
        static = sorted(configs.keys() - DYNAMIC_SETTINGS)
        known = {*setting_names(), *_LISTENERS}
        unknown = [each for each in static if each not in known]
        if unknown:
            import difflib  # only for a refused config

            name = unknown[0][:_SHOWN_MAX]
            near = difflib.get_close_matches(name, setting_names(), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return Refusal(ErrorCode.INVALID_REQUEST, f"unknown broker config {name!r}{hint}")
        if static:
            names = ", ".join(name[:_SHOWN_MAX] for name in static[:10])
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"cannot update these configs dynamically: {names}; set them when the broker "
                "starts, with --override",
            )
        try:
            apply_overrides(self.static, configs)
        except OverrideError as error:
            return Refusal(ErrorCode.INVALID_REQUEST, str(error)[: 3 * _SHOWN_MAX])
        return None

    def _effective_settings(self) -> BrokerSettings:
        settings = self.static
        for layer in reversed(self.broker_layers()):
            for name, value in layer.values.items():
                try:
                    settings = apply_overrides(settings, {name: value})
                except OverrideError as error:  # written by another version of the broker
                    log.error("ignored an altered broker config: %s", printable(str(error)))
        return settings
