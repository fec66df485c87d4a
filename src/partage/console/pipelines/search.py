"""``partage search``: full-text search in the indexes of ``partage pipeline index``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.table import print_table
from partage.recipes.errors import InvalidQueryError, SearchIndexError
from partage.recipes.search import LIMIT_MAX, Hit
from partage.recipes.search import search as run_search

app = command_app()

_SHOWN: Final = 160
"""Maximum length of an excerpt in the table; ``--json`` prints the whole excerpt."""


class SearchReport(msgspec.Struct, frozen=True):
    """Output of ``partage search --json``, best matches first."""

    hits: list[Hit]


@app.command("search", epilog=json_help(SearchReport))
def search(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIRECTORY",
            help="Directory with indexes, or the parent of several members' directories.",
            show_default=False,
        ),
    ],
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words to find.", show_default=False)
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Search only this topic; repeatable."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, max=LIMIT_MAX, help="Maximum number of results."
        ),
    ] = 10,
    fts5: Annotated[
        bool, typer.Option("--fts5", help="QUERY is in FTS5 syntax: AND, OR, NOT, NEAR.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Search indexed topics, also while they are being indexed. Best matches come first.

    A record matches if it contains all words of QUERY, in any order and case. Words in double
    quotes must be adjacent. A word that ends with * is a prefix.

    \b
    Examples:
      partage search indexes N14228
      partage search indexes '"dest iah" UA' --topic flights --limit 3
      partage search indexes/a '2013-01* JFK' --json
      partage search indexes 'n14228 OR n24211' --fts5
    """
    try:
        hits = run_search(directory, query, limit=limit, topics=topic, is_fts5=fts5)
    except InvalidQueryError as error:
        raise usage_error(str(error)) from error
    except SearchIndexError as error:
        raise CommandError(str(error)) from error
    if json:
        print_json(SearchReport(hits))
        return
    if hits:
        print_table(
            ["TOPIC", "PARTITION", "OFFSET", "TIME", "KEY", "EXCERPT"],
            [
                (hit.topic, hit.partition, hit.offset, _time(hit), hit.key, _excerpt(hit))
                for hit in hits
            ],
            optional=["TIME", "KEY"],
            wrapped=True,
        )
    more = "; there may be more, increase --limit" if len(hits) == limit else ""
    note(f"found {count(len(hits), 'record')}{more}")


def _time(hit: Hit) -> str | None:
    if hit.timestamp < 0:
        return None
    try:
        return datetime.fromtimestamp(hit.timestamp / 1000, UTC).isoformat(" ", "seconds")[:19]
    except (OverflowError, ValueError, OSError):  # A producer can send any timestamp.
        return str(hit.timestamp)


def _excerpt(hit: Hit) -> str:
    """Return the excerpt on one line."""
    line = " ".join(hit.excerpt.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
