"""Write or check the pages of `docs/` that are generated from the code.

    python tools/generate_pages.py [--check]

With `--check` the script writes nothing, and exits with 1 if a page is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from partage.assignors.page import page as assignors_page
from partage.client.consumer.page import fill_tables
from partage.console.page import fill_reference
from partage.coordinator.page import page as groups_page
from partage.member.page import page as members_page
from partage.proposals.page import fill_designs
from partage.spark.page import fill_settings
from partage.transactions.page import page as transactions_page

DOCS = Path(__file__).resolve().parent.parent / "docs"

#: The generator of each page; it gets the current text.
GENERATORS: dict[str, Callable[[str], str]] = {
    "assignors.md": lambda _: assignors_page(),
    "cli.md": fill_reference,
    "consumer.md": fill_tables,
    "designs.md": fill_designs,
    "groups.md": lambda _: groups_page(),
    "members.md": lambda _: members_page(),
    "security.md": fill_tables,
    "spark.md": fill_settings,
    "transactions.md": lambda _: transactions_page(),
}


def main(arguments: list[str]) -> int:
    """Write or check the generated pages; return the exit code."""
    is_check = "--check" in arguments
    stale = []
    for name, generate in GENERATORS.items():
        path = DOCS / name
        current = path.read_text()
        text = generate(current)
        if text == current:
            continue
        stale.append(name)
        if not is_check:
            path.write_text(text)
    for name in stale:
        outcome = "is stale; run tools/generate_pages.py" if is_check else "written"
        print(f"docs/{name}: {outcome}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
