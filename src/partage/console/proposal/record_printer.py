"""The output of members: their records, one per line."""

from __future__ import annotations

import sys
from collections.abc import Callable

from partage.client.consumer import Record
from partage.console.records.group_reader import MessageAdapter
from partage.console.records.record_json import to_json


def record_printer(json: bool) -> Callable[[list[Record]], None]:
    """Return a function that prints records on stdout: their values, or lines of JSON.

    It raises BrokenPipeError after the reader of stdout has closed it.
    """

    def deliver(records: list[Record]) -> None:
        out = sys.stdout.buffer
        for record in records:
            line = to_json(MessageAdapter(record)) if json else record.value or b""
            out.write(line + b"\n")
        out.flush()

    return deliver
