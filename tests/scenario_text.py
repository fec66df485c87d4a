"""Text files of scenarios: commands, and below each command its effects, indented."""

from __future__ import annotations

from collections.abc import Callable, Iterable

_INDENT = "    "


def replay(text: str, run: Callable[[str], Iterable[str]]) -> str:
    """Return the text of a scenario with the actual effects.

    Lines that begin with ``#`` are comments, and empty lines separate blocks.

    Args:
        text: The scenario with its expected effects.
        run: Runs a command, and returns a line for each effect.
    """
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = []
        for line in block.split("\n"):
            if line.startswith(_INDENT):
                continue
            lines.append(line)
            if not line.startswith("#"):
                lines += [_INDENT + effect for effect in run(line)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
