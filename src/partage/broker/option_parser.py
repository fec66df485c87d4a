"""The options of a broker in the foreground on a command line, parsed with the standard library."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from partage.broker.foreground_options import OPTION_HELP, ForegroundOptions, SyncMode

#: Columns of the help.
_WIDTH: Final = 100


def _directory(text: str) -> Path:
    """Return the path of a directory; an empty path would be the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return Path(text)


class OptionParser(argparse.ArgumentParser):
    """A parser of the options.

    Args:
        prog: The command, for the usage line.
        add_help: True for the option ``--help``.
    """

    def __init__(self, prog: str, *, add_help: bool = True) -> None:
        super().__init__(
            prog=prog,
            description="Run a broker for Kafka clients until Ctrl-C or SIGTERM.",
            allow_abbrev=False,
            add_help=add_help,
            # Without a width, each option would ask for that of the terminal, by an import of 2 ms.
            formatter_class=partial(argparse.HelpFormatter, width=_WIDTH),
        )
        defaults = ForegroundOptions()
        add, text = self.add_argument, OPTION_HELP
        add("--listen", metavar="HOST:PORT", default=defaults.listen, help=text["listen"])
        add(
            "--data-dir",
            metavar="DIR",
            type=_directory,
            default=defaults.data_dir,
            help=text["data_dir"],
        )
        add("--ephemeral", action="store_true", help=text["ephemeral"])
        modes = [mode.value for mode in SyncMode]
        add("--sync", choices=modes, default=defaults.sync.value, help=text["sync"])
        add(
            "--override",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help=text["override"],
        )
        add("--advertised", metavar="HOST:PORT", help=text["advertised"])
        add("--broker-id", metavar="N", type=int, help=text["broker_id"])
        add("--state", metavar="zookeeper://HOST:PORT/PATH", help=text["state"])
        add("--verbose", "-v", action="store_true", help=text["verbose"])

    def options(self, arguments: Sequence[str]) -> ForegroundOptions:
        """Return the options. Calls `error`, which ends the process, if one is invalid."""
        for argument in arguments:
            option, _, value = argument.partition("=")
            # Python 3.11 returns an empty list for it instead of a text.
            if value == "--" and option.startswith("--"):
                self.error(f"argument {option}: invalid value: '--'")
        given = vars(self.parse_args(arguments))
        return ForegroundOptions(**{**given, "sync": SyncMode(given["sync"])})
