"""``partage configs``: describe and alter settings of topics, brokers and groups."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.completion import complete_groups, complete_topics
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption, with_cluster
from partage.console.common.output import json_help, print_json
from partage.console.common.table import print_table
from partage.console.configs.entities import (
    ENTITY_TYPES,
    ConfigValue,
    Entity,
    alter_configs,
    describe_configs,
    parse_changes,
    require_brokers,
    select_entities,
)

app = command_app()

TopicEntityOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="Topic; repeatable.",
        autocompletion=complete_topics,
    ),
]
BrokerEntityOption = Annotated[
    list[str] | None, typer.Option("--broker", metavar="ID", help="Broker id; repeatable.")
]
GroupEntityOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        "-G",
        metavar="GROUP",
        help="Group; repeatable.",
        autocompletion=complete_groups,
    ),
]
EntityTypeOption = Annotated[
    str | None,
    typer.Option(
        "--entity-type",
        metavar="TYPE",
        help=f"Type of the entities, as in Kafka's tools: {', '.join(ENTITY_TYPES)}.",
        autocompletion=lambda: list(ENTITY_TYPES),
    ),
]
EntityNameOption = Annotated[
    list[str] | None,
    typer.Option("--entity-name", metavar="NAME", help="Entity of that type; repeatable."),
]


class EntityConfigs(msgspec.Struct, frozen=True):
    """An entity with its settings."""

    entity_type: str
    entity_name: str
    configs: list[ConfigValue]


class ConfigDescriptions(msgspec.Struct, frozen=True):
    """Output of ``partage configs describe --json``."""

    entities: list[EntityConfigs]


class ConfigAlteration(msgspec.Struct, frozen=True):
    """The changes of an entity, and the error if they were refused."""

    entity_type: str
    entity_name: str
    added: dict[str, str]
    deleted: list[str]
    error: str | None


class ConfigAlterationReport(msgspec.Struct, frozen=True):
    """Output of ``partage configs alter --json``; ``executed`` is false for a dry run."""

    executed: bool
    entities: list[ConfigAlteration]


@app.command("describe", epilog=json_help(ConfigDescriptions))
@with_cluster()
def describe(
    cluster: ClusterClient,
    topic: TopicEntityOption = None,
    broker: BrokerEntityOption = None,
    group: GroupEntityOption = None,
    entity_type: EntityTypeOption = None,
    entity_name: EntityNameOption = None,
    all_configs: Annotated[
        bool, typer.Option("--all", help="Include settings with default values.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show settings of topics, brokers or groups that differ from the defaults.

    With only --entity-type topics or --entity-type brokers, all of them are shown. --json always
    prints all settings.

    \b
    Examples:
      partage configs describe --topic flights
      partage configs describe --entity-type brokers --all
      partage configs describe --entity-type topics --entity-name flights --json
    """
    names_by_type = {"topics": topic, "brokers": broker, "groups": group}
    entities = select_entities(names_by_type, entity_type, entity_name)
    if not entities:
        entities = _all_entities(cluster, entity_type)
    described = [
        EntityConfigs(entity.type, entity.name, configs)
        for entity, configs in describe_configs(cluster, entities)
    ]
    if json:
        print_json(ConfigDescriptions(described))
        return
    for number, each in enumerate(described):
        if number:
            print()
        shown = [config for config in each.configs if all_configs or not config.is_default]
        title = Entity(each.entity_type, each.entity_name).title
        print(title if shown else f"{title}: all settings have default values")
        if shown:
            print_table(
                ["NAME", "VALUE", "SOURCE", "READ-ONLY"],
                [
                    (
                        config.name,
                        "(hidden)" if config.is_sensitive else config.value,
                        config.source,
                        "yes" if config.is_read_only else "no",
                    )
                    for config in shown
                ],
                optional=["READ-ONLY", "SOURCE"],
            )


@app.command("alter", epilog=json_help(ConfigAlterationReport))
@with_cluster()
def alter(
    cluster: ClusterClient,
    topic: TopicEntityOption = None,
    broker: BrokerEntityOption = None,
    group: GroupEntityOption = None,
    entity_type: EntityTypeOption = None,
    entity_name: EntityNameOption = None,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config",
            metavar="NAME=VALUE",
            help="Setting, or several separated by commas; a value with commas is NAME=[A,B]; "
            "repeatable.",
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="NAME",
            help="Setting that returns to its default, or several separated by commas; repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The broker checks the change, but does not make it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Change settings of topics, brokers or groups.

    \b
    Examples:
      partage configs alter --topic flights --add-config retention.ms=86400000
      partage configs alter --topic flights --add-config "cleanup.policy=[compact,delete]" --dry-run
      partage configs alter --topic flights --delete-config retention.ms
    """
    added = parse_changes(add_config or [], "--add-config")
    deleted = [
        name.strip() for text in delete_config or [] for name in text.split(",") if name.strip()
    ]
    if not added and not deleted:
        raise usage_error("configs alter requires --add-config or --delete-config")
    if both := sorted(added.keys() & set(deleted)):
        raise usage_error(f"--add-config and --delete-config both name {', '.join(both)}")
    names_by_type = {"topics": topic, "brokers": broker, "groups": group}
    entities = select_entities(names_by_type, entity_type, entity_name)
    if not entities:
        raise usage_error(f"name the {entity_type} to change with --entity-name")
    require_brokers(cluster, entities)
    report = ConfigAlterationReport(
        not dry_run,
        [
            ConfigAlteration(
                entity.type,
                entity.name,
                added,
                deleted,
                alter_configs(cluster, entity, added, deleted, is_dry_run=dry_run),
            )
            for entity in entities
        ],
    )
    _print_alterations(report, json)


def _all_entities(cluster: ClusterClient, entity_type: str | None) -> list[Entity]:
    metadata = cluster.metadata()
    if entity_type == "topics":
        return [Entity("topics", name) for name in sorted(metadata.topics)]
    if entity_type == "brokers":
        return [Entity("brokers", str(number)) for number in sorted(metadata.brokers)]
    raise usage_error(f"name the {entity_type} with --entity-name")


def _print_alterations(report: ConfigAlterationReport, json: bool) -> None:
    if json:
        print_json(report)
    verb = "altered" if report.executed else "would alter"
    failed = []
    for each in report.entities:
        title = Entity(each.entity_type, each.entity_name).title
        if each.error is not None:
            failed.append(f"{title} was not altered: {each.error}")
        elif not json:
            print(f"{verb} {title}")
    if failed:
        raise CommandError("; ".join(failed))
