"""Runs every row in every scene, and every story; reads and writes the result as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from interop.oracle import membership, static_rows, offsets, stories, static, waits  # isort: skip
from interop.oracle.actors import Stage
from interop.oracle.connection import ConnectionClosedError
from interop.oracle.registry import STORIES, tell
from interop.oracle.rows import ROWS, Row
from interop.oracle.scenes import NAMELESS, SCENES

#: Row and scene, or a story's name and "".
Cell = tuple[str, str]

#: Cells mostly wait for parked requests, so a large number of them runs in parallel.
WORKERS = 12

#: The import registers their rows and stories, in this order.
CONTENTS = (membership, static_rows, offsets, stories, static, waits)


def cells() -> list[Cell]:
    """Return all cells and stories, in the order of the output."""
    table = [(row.name, scene) for row in ROWS for scene in row.scenes]
    return table + [(name, "") for name in STORIES]


def run(
    bootstrap: str, topic: str, wanted: Iterable[Cell] | None = None, *, patience_s: float = 1.0
) -> dict[Cell, str]:
    """Ask the broker; ``topic`` has to exist. Cells have a line, stories several."""
    rows = {row.name: row for row in ROWS}
    chosen = list(cells() if wanted is None else wanted)

    def one(cell: Cell) -> str:
        name, scene = cell
        with Stage(bootstrap, topic, patience_s=patience_s) as stage:
            if scene:
                return _cell(stage, rows[name], scene)
            return tell(stage, name)

    # Stories that wait for session timeouts take longest, so they start first.
    order = sorted(chosen, key=lambda cell: cell[1] != "")
    with ThreadPoolExecutor(WORKERS) as pool:
        found = dict(zip(order, pool.map(one, order), strict=True))
    return {cell: found[cell] for cell in chosen}


def _cell(stage: Stage, row: Row, scene_name: str) -> str:
    scene = SCENES[scene_name](stage)
    try:
        said = row.send(scene)
    except ConnectionClosedError:
        said = "the connection is closed"
    return f"{said} -> {stage.state()}" if tells_state(row, scene_name) else said


def tells_state(row: Row, scene_name: str) -> bool:
    """Return True if a cell includes the group's state."""
    return scene_name not in row.unsettled + NAMELESS


def as_text(found: Mapping[Cell, str]) -> str:
    """Return the result as text: a heading for each row or story, below it scenes or lines."""
    lines = []
    heading = None
    width = max(len(scene) for scene in SCENES)
    for (name, scene), said in found.items():
        if name != heading:
            lines += ["", f"## {name}"]
            heading = name
        if scene:
            lines.append(f"{scene:<{width}}  {said}")
        else:
            lines += said.splitlines()
    return "\n".join(lines).lstrip() + "\n"


def from_text(text: str) -> dict[Cell, str]:
    """Parse the output of `as_text`."""
    found: dict[Cell, str] = {}
    width = max(len(scene) for scene in SCENES)
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line:
            scene = line[:width].strip()
            if heading in STORIES:
                before = found.get((heading, ""))
                found[heading, ""] = line if before is None else f"{before}\n{line}"
            else:
                found[heading, scene] = line[width + 2 :]
    return found
