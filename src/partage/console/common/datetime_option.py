"""Parsing of options with a date and time, such as ``--to-datetime`` and ``--since``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from partage.console.common.errors import usage_error

_DATETIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?")


def parse_datetime(text: str, option: str) -> int:
    """Return a date and time in ms since the epoch; UTC without a zone, as in Kafka's tool.

    Args:
        text: The date and time.
        option: Name of the option, for the error message.

    Raises:
        CommandError: The text is not a date and time.
    """
    try:
        if not _DATETIME.fullmatch(text):
            raise ValueError
        at = datetime.fromisoformat(text)
    except ValueError:
        raise usage_error(
            f"invalid {option} {text!r}; use YYYY-MM-DDTHH:MM:SS.sss, with Z or +HH:MM if it "
            "is not UTC"
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
