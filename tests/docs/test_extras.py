"""The extras of ``pip install 'partage[EXTRA]'``: each works without the packages of the others."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import partage

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
    "partage.console.pipelines.rebalances": "arrow",
    "partage.console.proposal.broker_side": "zookeeper",
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
    "partage.testing.shell_worlds.": "world",
    "partage.testing.world.": "world",
    "partage.web.app": "web",
    "partage.web.server": "web",
}
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
