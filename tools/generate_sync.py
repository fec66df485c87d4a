"""Generate the blocking classes from the asyncio sources.

    python tools/generate_sync.py           write the generated modules
    python tools/generate_sync.py --check   exit with 1 if one is not up to date

The asyncio module is the source. `async` and `await` are dropped, and the names and texts in
`GENERATED` are replaced. What waits differently is in a pair of modules with the same names, one
for asyncio and one for blocking code; the generated module imports from the second.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "partage"

#: Special methods and exceptions.
NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
}


class Generated(NamedTuple):
    """A generated module: its source, its path, and the texts to replace."""

    source: str
    target: str
    replacements: tuple[tuple[str, str], ...]


GENERATED = (
    Generated(
        "client/consumer/consumer.py",
        "client/consumer/sync_consumer.py",
        (
            ('"""The asyncio consumer."""', '"""The blocking consumer."""'),
            ("consumer.async_support import", "consumer.sync_support import"),
            ("AsyncConsumerBase", "SyncConsumerBase"),
            (
                "on asyncio; `partage.sync.Consumer` is the blocking variant.",
                "for code without asyncio.",
            ),
            (
                "It is an asynchronous context manager and an asynchronous iterator of records::",
                "It is a context manager and an iterator of records::",
            ),
            ("        async with Consumer(", "        with Consumer("),
            ("            async for record in", "            for record in"),
            (
                "One task at a time may use a consumer, but any task may",
                "One thread at a time may use a consumer, but any thread may",
            ),
        ),
    ),
    Generated(
        "recipes/processor.py",
        "recipes/sync_processor.py",
        (
            (
                '"""A processor that joins topics partition by partition, in a group."""',
                '"""A blocking processor that joins topics partition by partition, in a group."""',
            ),
            (
                "joins topics; on asyncio, a context manager. Waiting tasks run concurrently.",
                "joins topics; a context manager for code without asyncio.",
            ),
            ("        async with Processor(", "        with Processor("),
            ("            await processor.run()", "            processor.run()"),
            ("After a cancelled run, no", "After an interrupted run, no"),
            ("As `partage.Consumer`.", "As `partage.sync.Consumer`."),
            ("As `partage.Consumer.poll`.", "As `partage.sync.Consumer.poll`."),
            ("    Consumer,\n", ""),
            (
                "from partage.client.errors import",
                "from partage.client.consumer.sync_consumer import Consumer\n"
                "from partage.client.errors import",
            ),
            ("recipes.async_support import", "recipes.sync_support import"),
            ("import partitions_of", "import partitions_of_sync"),
            (" partitions_of(self", " partitions_of_sync(self"),
        ),
    ),
)


def to_sync(source: str, replacements: tuple[tuple[str, str], ...]) -> str:
    """Return the blocking form of a module.

    Raises:
        ValueError: A text to replace does not occur in the source.
    """
    for old, new in replacements:
        if old not in source:
            raise ValueError(f"{old!r} does not occur in the source")
        source = source.replace(old, new)
    lines = source.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type != tokenize.NAME:
            continue
        row, column = token.start[0] - 1, token.start[1]
        before, after = lines[row][:column], lines[row][token.end[1] :]
        if token.string in ("async", "await"):
            lines[row] = before + after.lstrip()
        elif token.string in NAMES:
            lines[row] = before + NAMES[token.string] + after
    return "\n".join(lines)


def render(module: Generated) -> str:
    """Return the text of a generated module, formatted."""
    text = to_sync((PACKAGE / module.source).read_text(), module.replacements)
    note = f"# Generated from {Path(module.source).name} by tools/generate_sync.py; do not edit."
    docstring = re.match(r'""".*?"""\n', text, re.DOTALL)
    assert docstring is not None, f"{module.source} begins with a docstring"
    text = f"{docstring[0]}\n{note}\n{text[docstring.end() :]}"
    for command in (["check", "--fix", "--select", "I,F401"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet"]
        path = str(PACKAGE / module.target)
        done = subprocess.run(
            [*ruff, "--stdin-filename", path, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Write or check the generated modules; return the exit code."""
    stale = []
    for module in GENERATED:
        text, path = render(module), PACKAGE / module.target
        if not path.exists() or path.read_text() != text:
            stale.append(module.target)
            if "--check" not in arguments:
                path.write_text(text)
    for target in stale:
        print(f"{target}: {'is stale; run make sync' if '--check' in arguments else 'written'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
