"""Builder of generated Python source."""

from __future__ import annotations

from typing import Any


class SourceBuilder:
    """Lines of generated Python, and the objects that they reference by name."""

    def __init__(self, **names: Any) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = names
        self.depth = 1
        self._serial = 0

    def add(self, line: str, indent: int = 0) -> None:
        self.lines.append("    " * (self.depth + indent) + line)

    def unique_name(self, stem: str) -> str:
        self._serial += 1
        return f"{stem}{self._serial}"

    def bind(self, stem: str, value: Any) -> str:
        for name, bound in self.names.items():
            if bound is value:
                return name
        name = self.unique_name(stem)
        self.names[name] = value
        return name

    def text(self, head: str, tail: str) -> str:
        return "\n".join([head, *self.lines, f"    {tail}", ""])
