"""Settings of topics, brokers and groups: the requests that read and change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.suggestions import missing_names

#: Kafka's names of the entity types, as in ``kafka-configs.sh``.
ENTITY_TYPES: Final = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "groups": ResourceType.GROUP,
}
_DOUBT: Final = "check with partage configs describe whether it was changed"


class Entity(NamedTuple):
    """A topic, a broker or a group. ``type`` is one of `ENTITY_TYPES`."""

    type: str
    name: str

    @property
    def title(self) -> str:
        """The entity for messages, such as ``topic flights``."""
        return f"{self.type.removesuffix('s')} {self.name}"

    @property
    def resource(self) -> ConfigResource:
        """The entity for requests of librdkafka."""
        return ConfigResource(ENTITY_TYPES[self.type], self.name)


class ConfigValue(msgspec.Struct, frozen=True):
    """A setting. ``value`` is null if the broker does not show it, as with passwords."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


def select_entities(
    names_by_type: Mapping[str, Sequence[str] | None],
    entity_type: str | None,
    entity_names: Sequence[str] | None,
) -> list[Entity]:
    """Return the entities that the options name; none if only an entity type is given.

    Args:
        names_by_type: Names from ``--topic``, ``--broker`` and ``--group``.
        entity_type: Value of ``--entity-type``.
        entity_names: Values of ``--entity-name``.

    Raises:
        CommandError: The options name no entity type, or several.
    """
    named = [
        Entity(kind, name)
        for kind, names in names_by_type.items()
        for name in dict.fromkeys(names or [])
    ]
    if entity_type is not None:
        if entity_type not in ENTITY_TYPES:
            raise usage_error(
                f"unknown --entity-type {entity_type!r}; use {', '.join(ENTITY_TYPES)}"
            )
        named += [Entity(entity_type, name) for name in dict.fromkeys(entity_names or [])]
    elif entity_names:
        raise usage_error("--entity-name requires --entity-type")
    for each in named:
        if not each.name:
            raise usage_error(f"the name of a {each.type.removesuffix('s')} must not be empty")
    kinds = {each.type for each in named} | ({entity_type} if entity_type else set())
    if len(kinds) != 1:
        raise usage_error(
            "name entities of one type, with --topic, --broker, --group, or with --entity-type and "
            "--entity-name"
        )
    return named


def describe_configs(
    cluster: ClusterClient, entities: Sequence[Entity]
) -> list[tuple[Entity, list[ConfigValue]]]:
    """Return the settings of each entity, sorted by name.

    Raises:
        CommandError: An entity does not exist, or a broker does not respond.
    """
    require_brokers(cluster, entities)
    together = [each.resource for each in entities if each.type != "brokers"]
    # librdkafka accepts only one broker in a request.
    requests = [[each.resource] for each in entities if each.type == "brokers"]
    answers = {
        (resource.restype, resource.name): answer
        for resources in [*([together] if together else []), *requests]
        for resource, answer in cluster.admin.describe_configs(
            resources, request_timeout=cluster.timeout_s
        ).items()
    }
    found = []
    for entity in entities:
        answer = answers[ENTITY_TYPES[entity.type], entity.name]
        refusal = cluster.refusal_of(answer)
        if refusal is not None:
            raise CommandError(
                f"cannot describe {entity.title}: {_reason(cluster, entity, refusal)}"
            )
        entries = sorted(answer.result().values(), key=lambda each: each.name)
        found.append((entity, [_value(entry) for entry in entries]))
    return found


def require_brokers(cluster: ClusterClient, entities: Sequence[Entity]) -> None:
    """Raise an error if a broker is not in the cluster; librdkafka would wait for it.

    Args:
        cluster: Cluster of the entities.
        entities: Entities of any type.

    Raises:
        CommandError: A broker is unknown or down, or no broker responds.
    """
    live = [str(each) for each in sorted(cluster.metadata().brokers)]
    missing = [each.name for each in entities if each.type == "brokers"]
    missing = [each for each in missing if each not in live]
    if missing:
        raise CommandError(
            f"no live broker has the id {', '.join(missing)}; the live brokers are "
            f"{', '.join(live)}"
        )


def alter_configs(
    cluster: ClusterClient,
    entity: Entity,
    added: Mapping[str, str],
    deleted: Sequence[str],
    *,
    is_dry_run: bool,
) -> str | None:
    """Change settings of an entity. Return the reason if a name is unknown or the broker refuses.

    Args:
        cluster: Cluster of the entity.
        entity: Entity to change.
        added: New values by name.
        deleted: Names of settings that return to their defaults.
        is_dry_run: True if the broker only checks the change.

    Raises:
        CommandError: The broker does not respond.
    """
    if unknown := _unknown_settings(cluster, entity, deleted):
        return unknown
    entries = [_change(name, value, AlterConfigOpType.SET) for name, value in added.items()]
    entries += [_change(name, None, AlterConfigOpType.DELETE) for name in deleted]
    resource = ConfigResource(ENTITY_TYPES[entity.type], entity.name, incremental_configs=entries)
    (answer,) = cluster.admin.incremental_alter_configs(
        [resource], validate_only=is_dry_run, request_timeout=cluster.timeout_s
    ).values()
    refusal = cluster.refusal_of(answer, _DOUBT)
    return None if refusal is None else _reason(cluster, entity, refusal)


def _unknown_settings(cluster: ClusterClient, entity: Entity, names: Sequence[str]) -> str | None:
    """Return an error for names that are no settings of an entity; None if there are none.

    A broker accepts the deletion of any name.
    """
    if not names:
        return None
    try:
        ((_, configs),) = describe_configs(cluster, [entity])
    except CommandError:
        return None  # the broker gives the reason when it refuses the change
    known = [config.name for config in configs]
    unknown = [name for name in names if name not in known]
    return missing_names("setting", unknown, known) if unknown else None


def parse_changes(given: Sequence[str], option: str) -> dict[str, str]:
    """Return settings by name from ``NAME=VALUE,NAME=[VALUE,VALUE]``, as Kafka's tools write them.

    Args:
        given: Texts from the command line.
        option: Name of the option, for the error message.

    Raises:
        CommandError: A text has another form.
    """
    found: dict[str, str] = {}
    for text in given:
        for pair in _split(text):
            name, equals, value = pair.partition("=")
            if not equals or not name.strip():
                raise usage_error(
                    f"{option} requires NAME=VALUE, not {pair!r}; write a value with commas as "
                    "NAME=[VALUE,VALUE]"
                )
            if value.startswith("[") and value.endswith("]"):
                value = value[1:-1]
            found[name.strip()] = value
    return found


def _split(text: str) -> list[str]:
    """Return the parts between commas that are not inside square brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _reason(cluster: ClusterClient, entity: Entity, refusal: KafkaError) -> str:
    """Return the text of a broker's error; it suggests similar names for a missing topic."""
    if entity.type == "topics" and refusal.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return missing_names("topic", [entity.name], cluster.metadata().topics)
    return error_text(refusal)


def _change(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def _value(entry: ConfigEntry) -> ConfigValue:
    # librdkafka gives the source as a number.
    source = ConfigSource(entry.source).name
    return ConfigValue(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        source=source,
        is_default=bool(entry.is_default) or source == ConfigSource.DEFAULT_CONFIG.name,
        is_read_only=bool(entry.is_read_only),
        is_sensitive=bool(entry.is_sensitive),
    )
