"""The options of addresses and of the log, for the processes of all designs."""

from __future__ import annotations

import logging
import sys

from partage.console.common.errors import usage_error
from partage.model.addresses import Address, AddressParseError, parse_address


def address_option(option: str, text: str) -> Address:
    """Return the address in the value of an option; raise a usage error if it is none.

    Args:
        option: The name of the option, for the error.
        text: The value, such as ``127.0.0.1:9192``.
    """
    try:
        return parse_address(text)
    except AddressParseError as error:
        raise usage_error(f"{option}: {error}") from None


def log_to_stderr(level: int) -> None:
    """Write log records from ``level`` on to stderr, and those of asyncio from WARNING on."""
    logging.basicConfig(
        stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
