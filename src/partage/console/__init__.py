"""Command line; the top layer."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib.util import find_spec

#: The packages of the extra `cli`, which all commands need.
_PACKAGES = ("typer", "rich", "confluent_kafka")


def main() -> None:
    """Run the ``partage`` command. Exits with code 1 if a package of the extra `cli` is missing.

    Until the modules of the command are imported, Ctrl-C ends the process without a traceback.
    """
    _open_closed_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # `LazyCommands` restores the handler
    if any(find_spec(name) is None for name in _PACKAGES):
        sys.exit("partage needs typer, rich and confluent-kafka: pip install 'partage[cli]'")
    if sys.argv[1:2] == ["broker"] and sys.platform != "win32":  # there the command says why not
        gc.disable()  # the modules are no garbage; the broker enables the collector
        from partage.console.broker.quick_start import start
        from partage.console.common.signals import restore_interrupts

        restore_interrupts()
        if start(sys.argv[2:]):
            return
        gc.enable()
    from partage.console.app import main as run

    run()


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise, a socket could get its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
