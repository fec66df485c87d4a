"""Modules that commands import: help takes 0.1 s instead of 0.7 s, and so does a broker's start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping

import msgspec
import pytest
import typer

from partage.broker.option_parser import OptionParser
from partage.console.broker.command import app as broker_app
from partage.console.broker.quick_start import start
from partage.console.command_tree import COMMANDS
from partage.console.common.dispatch import CommandFamily, CommandTarget, LazyCommands

#: Limit of all modules with those of Python and typer. With one command there are twice as many.
MODULES_MAX = 300

#: Limit of the modules of a broker, of which Python and asyncio have 200.
BROKER_MODULES_MAX = 600

#: Modules that no start of a broker needs. Some are imported at first use.
HEAVY = {
    *("typer", "pydantic", "rich", "confluent_kafka"),
    *("cramjam", "re2", "kazoo", "pyarrow", "scramp", "cryptography", "greenlet"),
    *("importlib.metadata", "email", "zipfile", "shutil", "difflib", "json", "random"),
    *("partage.broker.cluster.kazoo_session", "partage.broker.cluster.peer_connection"),
    *("partage.broker.transactions.cluster_markers", "partage.client", "partage.web"),
}

BROKER = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
COMMAND
main()
"""

STOPPED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "uvloop":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
from partage.console import main
main()
"""

INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from partage.console import main
main()
"""

LIBRDKAFKA = """
from partage.console.topics import commands
def interrupted(cluster):
    raise SystemError("result with an exception set") from KeyboardInterrupt()
commands.describe_topics = interrupted
from partage.console import main
main()
"""

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
        "partage.console.common.signals",
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


@pytest.mark.parametrize(
    "command",
    [
        "from partage.console import main",
        "from partage.broker.__main__ import main",
    ],
)
def test_broker_starts_without_heavy_modules(command: str) -> None:
    """A start takes 0.1 s; each of these modules would add 2 to 60 ms."""
    is_console = "console" in command
    with subprocess.Popen(
        [
            *(sys.executable, "-c", BROKER.replace("COMMAND", command)),
            *(["broker"] if is_console else []),
            *("--ephemeral", "--listen", "127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("127.0.0.1:")
        broker.send_signal(signal.SIGTERM)
        modules = {*broker.communicate()[1].splitlines()[-1].split()}
    assert broker.returncode == 0
    heavy = {*HEAVY, "crc32c"} if "partage.wire.records._checksum" in modules else HEAVY
    assert not heavy & modules
    assert len(modules) < BROKER_MODULES_MAX


def test_help_of_broker_does_not_import_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LISTING, "broker", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--data-dir" in ran.stdout
    assert not {"partage.broker.broker", "asyncio"} & {*json.loads(ran.stderr)}


def test_ctrl_c_before_the_event_loop_ends_broker_with_one_line() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STOPPED, "broker", "--ephemeral", "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (130, "error: stopped\n")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("typer", ["--help"]),
        ("partage.console.topics.commands", ["topics", "list"]),
        ("partage.console.broker.quick_start", ["broker", "--ephemeral"]),
    ],
)
def test_ctrl_c_during_imports_ends_command_without_traceback(
    module: str, arguments: list[str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.replace("MODULE", module), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_after_imports_ends_command_with_exit_code() -> None:
    """The handler of Ctrl-C is back, so that commands can commit and leave groups."""
    module = "partage.proposals.sockets.broker_side.zookeeper_nodes"  # imported by the command
    code = INTERRUPTED.replace("MODULE", module)
    command = ["proposal", "broker-side", "frozen", "--state", "zookeeper://127.0.0.1:1/p"]
    ran = subprocess.run(
        [sys.executable, "-c", code, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (130, "")


def test_ctrl_c_that_librdkafka_replaces_ends_command_with_exit_code() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LIBRDKAFKA, "topics", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (130, "")


def test_quick_start_has_options_of_command() -> None:
    """``partage broker`` starts with the parser of ``python -m partage.broker``."""
    full = {
        frozenset(option.opts): getattr(option, "help", None)
        for option in typer.main.get_command(broker_app).params
    }
    quick = {
        frozenset(action.option_strings): action.help
        for action in OptionParser("partage broker", add_help=False)._actions
    }
    assert quick == full


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--listen=[::1]:1 --listen :2",
        "--listen= --advertised= --state=",
        "--data-dir x=y --data-dir=-v",
        "--sync os --sync=disk",
        "--override a --override=b=c=d --override a=--",
        "--broker-id -5 --broker-id=+7",
        "-vv --ephemeral --ephemeral --verbose -v",
    ],
)
def test_quick_start_understands_options_like_command(line: str) -> None:
    arguments = line.split()
    command = typer.main.get_command(broker_app)
    with command.make_context("broker", [*arguments]) as context:
        full = {**context.params, "override": context.params["override"] or []}
    quick = OptionParser("partage broker", add_help=False).options(arguments)
    assert msgspec.structs.asdict(quick) == full


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--help"], ["-h"], ["--listen"], ["--sync", "x"], ["y"], ["--no-ephemeral"]),
        *(["--listen=--"], ["--broker-id=--"], ["--sync=--"], ["--override=--"], ["--sync=OS"]),
        *(["--data-dir="], ["--data-dir", ""]),
    ],
)
def test_quick_start_leaves_help_and_refusals_to_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not start(arguments)
    assert capsys.readouterr() == ("", "")
