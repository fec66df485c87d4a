"""Help and completion import no command: ``partage --help`` takes 0.1 s instead of 0.7 s."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from partage.console.command_tree import COMMANDS
from partage.console.common.dispatch import CommandFamily, CommandTarget, LazyCommands

#: Limit of all modules with those of Python and typer. With one command there are twice as many.
MODULES_MAX = 300

LISTING = """
import json, sys
from partage.console import main
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--help"], {}),
        (["-h"], {}),
        (["groups", "--help"], {}),
        (["--version"], {}),
        ([], {"_PARTAGE_COMPLETE": "complete_bash", "COMP_WORDS": "partage ", "COMP_CWORD": "1"}),
        (
            [],
            {
                "_PARTAGE_COMPLETE": "complete_bash",
                "COMP_WORDS": "partage groups r",
                "COMP_CWORD": "2",
            },
        ),
    ],
)
def test_listing_commands_imports_none(arguments: list[str], environment: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LISTING, *arguments],
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = json.loads(ran.stderr)
    assert ran.stdout
    own = {each for each in modules if each.startswith("partage.")}
    assert own == {
        "partage.console",
        "partage.console.app",
        "partage.console.command_tree",
        "partage.console.common",
        "partage.console.common.dispatch",
        "partage.console.common.errors",
        "partage.console.common.suggestions",
        "partage.model",
        "partage.model.version",
    }
    heavy = {"asyncio", "confluent_kafka", "msgspec", "rich.console", "pyarrow", "uvloop"}
    assert not heavy & set(modules)
    assert len(modules) < MODULES_MAX


def leaves(
    entries: Mapping[str, CommandTarget | CommandFamily] = COMMANDS,
) -> list[tuple[str, CommandTarget]]:
    found = []
    for name, entry in entries.items():
        if isinstance(entry, CommandFamily):
            found += [(f"{name} {each}", target) for each, target in leaves(entry.commands)]
        else:
            found.append((name, entry))
    return found


@pytest.mark.parametrize(("name", "target"), leaves(), ids=[name for name, _ in leaves()])
def test_summary_equals_help_of_command(name: str, target: CommandTarget) -> None:
    family = LazyCommands()
    family.entries = {name: target}
    last = name.split()[-1]
    family.entries = {last: target}
    command = family.get_command(None, last)
    assert " ".join(command.get_short_help_str(limit=500).split()) == target.summary
