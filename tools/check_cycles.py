"""Check that the modules of `src/partage` do not import each other in cycles.

    python tools/check_cycles.py

Imports inside functions and under `TYPE_CHECKING` count too. The script prints each cycle, and
exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
ROOT = "partage"


def module_name(path: Path) -> str:
    """Return the dotted name of the module in a file below `SOURCE`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(path: Path, module: str) -> Iterator[str]:
    """Yield the dotted names that a module imports; the last part may be a class or a function."""
    package = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, node.module] if node.module else base
            yield from (".".join([*base, alias.name]) for alias in node.names)


def import_graph(source: Path) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    paths = {module_name(path): path for path in sorted(source.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        found = graph.setdefault(module, set())
        for name in imported_names(path, module):
            target = name if name in paths else name.rpartition(".")[0]
            if target in paths and target != module:
                found.add(target)
    return graph


def strongly_connected(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components with several modules (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in order:
                visit(target)
            if target in stack:
                low[module] = min(low[module], low[target])
        if low[module] == order[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                found.append(sorted(component))

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return sorted(found)


def main() -> int:
    """Print the cycles and return the exit code."""
    sys.setrecursionlimit(10_000)
    cycles = strongly_connected(import_graph(SOURCE / ROOT))
    for modules in cycles:
        print(f"{len(modules)} modules import each other: {', '.join(modules)}")
    return 1 if cycles else 0


if __name__ == "__main__":
    sys.exit(main())
