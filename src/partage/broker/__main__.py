"""``python -m partage.broker``: a broker in the foreground, without the extra `cli`."""

from __future__ import annotations

import sys

from partage.broker.foreground import BrokerOptionError, BrokerStartError, run_in_foreground
from partage.broker.option_parser import OptionParser


def main() -> None:
    """Run a broker. Exits with code 1 if it fails, and with code 2 if an option is invalid."""
    try:
        run_in_foreground(OptionParser("python -m partage.broker").options(sys.argv[1:]))
    except BrokerOptionError as error:
        _end(str(error), 2)
    except BrokerStartError as error:
        _end(str(error), 1)


def _end(message: str, exit_code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
