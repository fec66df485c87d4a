"""The extras of ``pip install 'partage[EXTRA]'``: each works without the packages of the others."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

import partage
from partage.console.command_tree import COMMANDS
from partage.console.common.dispatch import CommandFamily, CommandTarget

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENT = re.compile(r"([A-Za-z0-9_-]+)(?:\[([a-z]+)\])?")
#: Name of the import if it differs from the name of the package.
IMPORT_NAMES = {
    "confluent-kafka": "confluent_kafka",
    "google-re2": "re2",
    "markdown-it-py": "markdown_it",
}

#: The extra that a module needs, by the beginning of the module's name. All other modules need only
#: the base install.
NEEDS = {
    "partage.broker.cluster.cluster_membership": "zookeeper",
    "partage.broker.cluster.kazoo_session": "zookeeper",
    "partage.broker.cluster.registry_view": "zookeeper",
    "partage.broker.cluster.tls": "zookeeper",
    "partage.client.arrow": "arrow",
    "partage.console.": "cli",
    "partage.lab.spark_swarm": "spark",
    "partage.pipelines.rebalances.": "arrow",
    "partage.proposals.comparison.page": "plot",
    "partage.proposals.comparison.result_table": "arrow",
    "partage.proposals.comparison.spark_cells": "arrow",
    "partage.proposals.sockets.broker_side.foreground": "zookeeper",
    "partage.proposals.sockets.broker_side.push_broker": "zookeeper",
    "partage.proposals.sockets.broker_side.topic_watch": "zookeeper",
    "partage.proposals.sockets.broker_side.zookeeper_nodes": "zookeeper",
    "partage.spark.": "spark",
    "partage.testing.recipe_worlds.": "world",
    "partage.testing.shell_worlds.": "world",
    "partage.testing.topic_worlds.": "world",
    "partage.testing.whatif.": "world",
    "partage.testing.world.": "world",
    "partage.testing.world_swarm": "world",
    "partage.web.app": "web",
    "partage.web.server": "web",
}
RUN = """
import json, sys
blocked, arguments = json.loads(sys.argv[1])
sys.modules |= dict.fromkeys(blocked)
from partage.console.app import main
sys.argv[1:] = arguments
main()
"""
HELP = """
import json, sys
blocked, commands = json.loads(sys.argv[1])
sys.modules |= dict.fromkeys(blocked)
from partage.console.app import app
for command in commands:
    try:
        app([*command.split(), "--help"], standalone_mode=False)
    except ModuleNotFoundError as error:
        sys.exit(f"{command}: {error}")
"""
IMPORT = """
import importlib, json, sys
blocked, modules = json.loads(sys.argv[1])
sys.modules |= dict.fromkeys(blocked)
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"{module}: {error}")
"""


def packages(extra: str) -> set[str]:
    """Return the import names of the packages of an extra, with those of extras that it names."""
    found: set[str] = set()
    for text in PROJECT["optional-dependencies"][extra]:
        match = REQUIREMENT.match(text)
        assert match is not None, text
        name, other = match.groups()
        found |= packages(other) if name == "partage" else {IMPORT_NAMES.get(name, name)}
    return found


EXTRAS = {name: packages(name) for name in PROJECT["optional-dependencies"]}
OPTIONAL = set().union(*EXTRAS.values())
MODULES = [each.name for each in pkgutil.walk_packages(partage.__path__, "partage.")]


def command_names(
    entries: Mapping[str, CommandTarget | CommandFamily] = COMMANDS,
) -> list[str]:
    """Return the names of all commands, with those of their families."""
    found = []
    for name, entry in entries.items():
        if isinstance(entry, CommandFamily):
            found += [f"{name} {each}" for each in command_names(entry.commands)]
        else:
            found.append(name)
    return found


def usable(installed: set[str]) -> list[str]:
    """Return the modules that work with the base install and these packages."""
    return [
        module
        for module in MODULES
        if all(EXTRAS[need] <= installed for name, need in NEEDS.items() if module.startswith(name))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("installed", [set(), *EXTRAS.values()], ids=["base", *EXTRAS])
def test_extra_imports_its_modules(installed: set[str]) -> None:
    modules = usable(installed)
    assert {"partage.sync", "partage.errors", "partage.testing.plugin"} <= {*modules}
    given = json.dumps([sorted(OPTIONAL - installed), modules])
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT, given], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""


def test_each_command_has_help_with_extra_cli_only() -> None:
    given = json.dumps([sorted(OPTIONAL - EXTRAS["cli"]), command_names()])
    ran = subprocess.run(
        [sys.executable, "-c", HELP, given], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout.count("Usage: ") == len(command_names())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["pipeline", "rebalances", "-o", "x"],
            "this command needs pyspark: pip install 'partage[spark]'",
        ),
        (
            ["pipeline", "rebalances", "-o", "x", "--local"],
            "this command needs pyarrow: pip install 'partage[arrow]'",
        ),
        (
            ["proposal", "broker-side", "frozen", "--state", "zookeeper://h:1/p"],
            "this command needs kazoo: pip install 'partage[zookeeper]'",
        ),
    ],
    ids=["rebalances", "rebalances-local", "broker-side"],
)
def test_command_without_its_extra_names_the_extra(
    arguments: list[str], error: str, tmp_path: Path
) -> None:
    given = json.dumps([sorted(OPTIONAL - EXTRAS["cli"]), arguments])
    ran = subprocess.run(
        [sys.executable, "-c", RUN, given],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (ran.returncode, ran.stderr) == (1, f"error: {error}\n")


def test_each_extra_but_lazy_ones_is_needed_by_a_module() -> None:
    """The packages of ``sasl`` and ``pkcs12`` are imported when they are used.

    Without ``re2``, the broker supports fewer regular expressions.
    """
    assert {*NEEDS.values()} == EXTRAS.keys() - {"sasl", "pkcs12", "re2"}


#: What a page must name so that a reader can run its examples, by the package that they import.
ADVICE = {
    "anyio": r"pip install .*anyio",
    "confluent_kafka": r"pip install .*(confluent-kafka|\[cli|spark\])",
    "pyarrow": r"partage\[arrow\]",
    "pyspark": r"pip install .*spark\]",
    "pytest": r"pip install .*pytest",
}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem
)
def test_page_names_packages_of_its_examples(page: Path) -> None:
    text = page.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    imported = set(re.findall(r"^\s*(?:from|import) (\w+)", "\n".join(blocks), re.MULTILINE))
    for package in imported & ADVICE.keys():
        assert re.search(ADVICE[package], text), package
