"""``partage broker`` with valid options, without typer.

The import of typer and pydantic takes 60 ms, half as long as the start of a broker. So the standard
library parses the options. It accepts those of the command (`command`), which handles all that it
refuses: the command prints help, and names the option that is invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from partage.broker.foreground_options import ForegroundOptions
from partage.broker.option_parser import OptionParser
from partage.console.common.errors import (
    EXIT_STOPPED,
    CommandError,
    errors_on_stderr,
    usage_error,
)


class _RefusedError(Exception):
    """Raised if options are invalid, or ask for help."""


class _Parser(OptionParser):
    """A parser that prints nothing."""

    def error(self, message: str) -> NoReturn:
        raise _RefusedError


def start(arguments: Sequence[str]) -> bool:
    """Run a broker until it is stopped.

    Exits with a message on stderr if the broker cannot start or continue.

    Args:
        arguments: The options on the command line.

    Returns:
        False, without a broker, if the options are invalid or ask for help.
    """
    try:
        options = _Parser("partage broker", add_help=False).options(arguments)
    except _RefusedError:
        return False
    with errors_on_stderr():
        try:
            run_broker(options)
        except KeyboardInterrupt:
            raise CommandError("stopped", EXIT_STOPPED) from None
    return True


def run_broker(options: ForegroundOptions) -> None:
    """Run a broker until it is stopped.

    Raises:
        CommandError: An option is invalid, or the broker cannot start or continue.
    """
    # Imported here, so that help does not wait for the broker's modules.
    from partage.broker.foreground import BrokerOptionError, BrokerStartError, run_in_foreground

    try:
        run_in_foreground(options)
    except BrokerOptionError as error:
        raise usage_error(str(error)) from None
    except BrokerStartError as error:
        raise CommandError(str(error)) from None
