"""The result of one world of the production shells, of any kind."""

from __future__ import annotations

import msgspec


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one world.

    Attributes:
        seed: Its seed.
        rule: The broken rule; None if none was broken.
        description: How it was broken.
        records: The number of records that were written.
        reads: The number of records that were read in all groups; in worlds of recipes, that of the
            steps of work.
        faults: The drawn faults.
        story: What happened, a line for each event.
    """

    seed: int
    rule: str | None
    description: str
    records: int
    reads: int
    faults: list[str]
    story: list[str]
