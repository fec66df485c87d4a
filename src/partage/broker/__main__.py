"""``python -m partage.broker``: a broker in the foreground, without the extra `cli`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from partage.broker.foreground import (
    OPTION_HELP,
    BrokerOptionError,
    BrokerStartError,
    ForegroundOptions,
    SyncMode,
    run_in_foreground,
)


def main() -> None:
    """Run a broker. Exits with code 1 if it fails, and with code 2 if an option is invalid."""
    try:
        run_in_foreground(_parse_options(sys.argv[1:]))
    except BrokerOptionError as error:
        _end(str(error), 2)
    except BrokerStartError as error:
        _end(str(error), 1)


def _parse_options(arguments: list[str]) -> ForegroundOptions:
    defaults = ForegroundOptions()
    parser = argparse.ArgumentParser(
        prog="python -m partage.broker",
        description="Run a broker for Kafka clients until Ctrl-C or SIGTERM.",
        allow_abbrev=False,
    )
    add, text = parser.add_argument, OPTION_HELP
    add("--listen", metavar="HOST:PORT", default=defaults.listen, help=text["listen"])
    add("--data-dir", type=Path, default=defaults.data_dir, help=text["data_dir"])
    add("--ephemeral", action="store_true", help=text["ephemeral"])
    modes = [mode.value for mode in SyncMode]
    add("--sync", choices=modes, default=defaults.sync.value, help=text["sync"])
    add("--override", metavar="NAME=VALUE", action="append", default=[], help=text["override"])
    add("--advertised", metavar="HOST:PORT", help=text["advertised"])
    add("--broker-id", metavar="N", type=int, help=text["broker_id"])
    add("--state", metavar="zookeeper://HOST:PORT/PATH", help=text["state"])
    add("--verbose", "-v", action="store_true", help=text["verbose"])
    given = vars(parser.parse_args(arguments))
    return ForegroundOptions(**{**given, "sync": SyncMode(given["sync"])})


def _end(message: str, exit_code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
