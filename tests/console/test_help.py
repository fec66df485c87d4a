"""Examples and JSON keys in ``--help`` are correct."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from partage.console.broker.log_command import LogCutReport
from partage.console.cluster.describe import ClusterDescription
from partage.console.command_tree import COMMANDS as COMMAND_TREE
from partage.console.common.dispatch import CommandFamily, CommandTarget
from partage.console.common.output import json_help
from partage.console.configs.commands import ConfigAlterationReport, ConfigDescriptions
from partage.console.groups.commands import GroupDeletionReport as DeletedGroups
from partage.console.groups.commands import GroupList, GroupStates
from partage.console.groups.delete_offsets import OffsetDeletionReport
from partage.console.groups.explain import Explanation
from partage.console.groups.members import GroupMembersList
from partage.console.groups.remove_member import MemberRemovalReport
from partage.console.groups.reset_offsets import OffsetResetReport
from partage.console.lab.trace import TraceReport
from partage.console.page import fill_reference
from partage.console.records.consume import JsonRecord
from partage.console.records.delete import RecordDeletionReport
from partage.console.records.produce import ProduceReport
from partage.console.topics.alter import TopicAlterationReport
from partage.console.topics.commands import (
    TopicCreationReport,
    TopicDetailsList,
    TopicList,
)
from partage.console.topics.delete import TopicDeletionReport

from .cli import CommandResult, PartageCli

COMMANDS = [
    ["topics", "create"],
    ["topics", "list"],
    ["topics", "describe"],
    ["topics", "alter"],
    ["configs", "alter"],
    ["configs", "describe"],
    ["cluster", "describe"],
    ["produce"],
    ["consume"],
    ["groups", "list"],
    ["groups", "describe"],
    ["groups", "members"],
    ["groups", "reset-offsets"],
    ["groups", "delete-offsets"],
    ["groups", "explain"],
    ["groups", "remove-member"],
    ["groups", "delete"],
    ["records", "delete"],
    ["topics", "delete"],
]


def examples(partage: PartageCli, command: list[str]) -> list[str]:
    """Return the lines under "Examples:"."""
    text = partage(*command, "--help").out
    block = text.split("Examples:\n")[1].split("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


def pipeline(partage: PartageCli, line: str) -> CommandResult:
    """Run a shell line, with our commands in this process."""
    done = CommandResult(0, "", "")
    for stage in line.split(" | "):
        command, *arguments = shlex.split(stage)
        if command == "partage":
            done = partage(*arguments, stdin=done.out)
        else:
            out = subprocess.run([command, *arguments], check=True, capture_output=True, text=True)
            done = CommandResult(0, out.stdout, out.stderr)
    return done


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples_and_keys(partage: PartageCli, command: list[str]) -> None:
    text = partage(*command, "--help").out
    assert examples(partage, command)
    assert "--json prints" in text
    assert max(len(line) for line in text.splitlines()) <= 100


#: Commands that run until they are stopped, and print nothing but their address.
SERVERS = {
    "broker",
    "web",
    "proposal broker-side broker",
    "proposal multi-assignor coordinator",
    "proposal single-assignor coordinator",
}


def options_by_command(
    entries: Mapping[str, CommandTarget | CommandFamily] = COMMAND_TREE, words: str = ""
) -> dict[str, set[str]]:
    """Return the options of each command in the tree."""
    found: dict[str, set[str]] = {}
    for name, entry in entries.items():
        if isinstance(entry, CommandFamily):
            found |= options_by_command(entry.commands, f"{words}{name} ")
        else:
            group = typer.main.get_group(import_module(entry.module).app)
            parameters = group.commands[name].params
            found[words + name] = {option for each in parameters for option in each.opts}
    return found


def test_all_commands_but_servers_have_json() -> None:
    options = options_by_command()
    assert len(options) > 30
    assert {name for name, known in options.items() if "--json" not in known} == SERVERS


def test_help_examples_work(
    partage: PartageCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flights.jsonl").write_text('{"key":"JFK","value":"delayed"}\n' * 10)
    partage("topics", "create", "-t", "copy")
    ran = 0
    # In this order each example finds its input, as in a first session.
    for command in COMMANDS:
        if command == ["consume"]:
            partage("produce", "-t", "flights", "-p", 0, stdin="first\nsecond\n")
        if command == ["groups", "explain"]:
            # A static member stays in the group after its end.
            static = ["-X", "group.instance.id=reader-1", "--from-beginning", "--exit"]
            partage("consume", "flights", "--group", "readers", *static)
        for example in examples(partage, command):
            done = pipeline(partage, example)
            assert done.out or "produced" in done.err or "--if-exists" in example, example
            if "--json" in example and "|" not in example:
                for document in done.lines if command == ["consume"] else [done.out]:
                    json.loads(document)
            ran += 1
    assert ran > 45


def test_options_name_their_values_not_their_types() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert not re.findall(r"`-[^`]*<(?:int|float|path|str|text|directory|file)[ >][^`]*`", page)


def test_page_matches_commands() -> None:
    """To update: ``python tools/generate_pages.py``."""
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert fill_reference(text) == text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (TopicList, "{topics: [{topic, partitions, replication_factor, internal}]}"),
        (TopicCreationReport, "{created, existing}"),
        (TopicDeletionReport, "{deleted, failed: [{topic, error}], executed}"),
        (DeletedGroups, "{deleted, failed: [{group, error}], executed}"),
        (GroupList, "{groups: [{group, protocol_type, type, state, members}]}"),
        (
            GroupMembersList,
            "{groups: [{group, state, protocol_type, assignor, "
            "members: [{member_id, group_instance_id, client_id, host, "
            "partitions: [{topic, partitions}], subscription, metadata_bytes, "
            "assignment_bytes, rack, protocol, epoch, target: [{topic, partitions}], "
            "subscribed_regex}], group_epoch, target_epoch}]}",
        ),
        (
            Explanation,
            "{group, generation, leader, assignor, known, repeated, "
            "members: [{member_id, group_instance_id, client_id, subscription, "
            "owned: [{topic, partitions}], generation, rack}], "
            "partitions: [{topic, partition, member_ids, owner_ids, why}], type, state}",
        ),
        (
            OffsetResetReport,
            "{executed, groups: [{group, "
            "offsets: [{topic, partition, current_offset, new_offset}]}]}",
        ),
        (
            ProduceReport,
            "{topic, records, bytes, seconds, failed_count, failed: [{source, line, error}]}",
        ),
        (
            TopicDetailsList,
            "{topics: [{topic, topic_id, internal, replication_factor, configs, "
            "partitions: [{partition, leader, replicas, isr, earliest_offset, latest_offset}]}]}",
        ),
        (
            GroupStates,
            "{groups: [{group, protocol_type, type, protocol, state, "
            "coordinator: {id, host, port}, "
            "members: [{member_id, group_instance_id, client_id, host, "
            "partitions: [{topic, partitions}], subscription, metadata_bytes, assignment_bytes, "
            "rack, protocol, epoch, target: [{topic, partitions}], subscribed_regex}], "
            "offsets: [{topic, partition, current_offset, log_end_offset, lag, "
            "leader_epoch, metadata, member_id}], total_lag, group_epoch, "
            "target_epoch}]}",
        ),
        (
            OffsetDeletionReport,
            "{group, executed, offsets: [{topic, partition, offset, error}]}",
        ),
        (
            MemberRemovalReport,
            "{group, executed, members: [{member_id, group_instance_id, client_id, error}]}",
        ),
        (
            RecordDeletionReport,
            "{executed, partitions: [{topic, partition, earliest_offset, new_earliest_offset, "
            "error}]}",
        ),
        (
            ConfigDescriptions,
            "{entities: [{entity_type, entity_name, configs: [{name, value, source, is_default, "
            "is_read_only, is_sensitive}]}]}",
        ),
        (
            ConfigAlterationReport,
            "{executed, entities: [{entity_type, entity_name, added, deleted, error}]}",
        ),
        (
            TopicAlterationReport,
            "{executed, topics: [{topic, partitions, added, deleted, error}]}",
        ),
        (
            ClusterDescription,
            "{cluster_id, controller_id, topics, partitions, partitions_without_leader, "
            "brokers: [{id, host, port, rack, is_controller, leaders}]}",
        ),
        (
            LogCutReport,
            "{truncations: [{path, position, length, reason, kept_in}]}",
        ),
        (
            TraceReport,
            "{seed, options, steps: [{step, kind, at_ms, kept}], history: [{at_ms, text}], "
            "rule, description, command}",
        ),
        (
            JsonRecord,
            "{topic, partition, offset, timestamp, timestamp_type, key, value, "
            "headers: [{key, value, encoding}], key_encoding, value_encoding}",
        ),
    ],
)
def test_json_keys_are_stable(document: type[msgspec.Struct], words: str) -> None:
    """Programs depend on these keys: keys may be added, but not changed."""
    assert json_help(document) == f"--json prints {words}"


def test_version(partage: PartageCli) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", partage("--version").out)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("partage.console.broker.command", ["confluent_kafka", "rich.console"]),
        ("partage.console.topics.commands", ["partage.broker", "uvloop"]),
    ],
)
def test_command_imports_only_its_dependencies(module: str, absent: list[str]) -> None:
    program = f"import sys, partage.console.app, {module}; print(*sys.modules)"
    loaded: Any = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not set(absent) & set(loaded)


@pytest.mark.parametrize("missing", ["typer", "rich", "confluent_kafka"])
def test_partage_without_cli_packages_names_extra(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from partage.console import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "broker"], capture_output=True, text=True, check=False
    )
    line = "partage needs typer, rich and confluent-kafka: pip install 'partage[cli]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", line)


@pytest.mark.parametrize(
    ("missing", "command", "line"),
    [
        (
            "pyarrow",
            ["pipeline", "rebalances", "-o", "report"],
            "error: this command needs pyarrow: pip install 'partage[arrow]'\n",
        ),
        (
            "matplotlib",
            ["lab", "whatif", "readers", "--picture", "readers.png"],
            "error: --picture needs matplotlib: pip install 'partage[plot]'\n",
        ),
    ],
)
def test_command_without_its_package_names_extra(
    missing: str, command: list[str], line: str
) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import partage.console as c; c.main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", line)


def test_pictures_need_no_spark() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert [re.split(r"[>=]", each)[0] for each in extras["plot"]] == [
        "partage[cli]",
        "markdown-it-py",
        "matplotlib",
    ]
