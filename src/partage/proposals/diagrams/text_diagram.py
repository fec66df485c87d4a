"""Draws the steps of a diagram as text."""

from __future__ import annotations

from typing import Final

from partage.proposals.diagrams.recorder import DiagramStep, MessageDiagram, StepKind

_TIME_WIDTH: Final = 10
#: The characters of an arrow around its label.
_ARROW_LENGTH: Final = 8


def draw_text(diagram: MessageDiagram) -> str:
    """Return a diagram as lines of text: one lane for each process, one line for each step.

    A solid arrow is a request, a dotted one a response. A note is to the right of its process.
    """
    width = _lane_width(diagram)
    positions = {name: index * width for index, name in enumerate(diagram.lanes)}
    head = [" "] * (max(positions.values()) + 1)
    for name, at in positions.items():
        begin = max(0, at - len(name) // 2)
        _write(head, begin, name)
    lines = [" " * _TIME_WIDTH + "".join(head).rstrip()]
    previous_ms: int | None = None
    for step in diagram.steps:
        time = "" if step.at_ms == previous_ms else f"{step.at_ms / 1000:.3f} s"
        previous_ms = step.at_ms
        lines.append(f"{time:<{_TIME_WIDTH}}{_draw_step(step, positions).rstrip()}")
    return "\n".join(lines) + "\n"


def _lane_width(diagram: MessageDiagram) -> int:
    arrows = [len(step.label) for step in diagram.steps if step.receiver]
    notes = [len(step.label) for step in diagram.steps if not step.receiver]
    return max(max(arrows, default=0) + _ARROW_LENGTH, max(notes, default=0) + 4)


def _draw_step(step: DiagramStep, positions: dict[str, int]) -> str:
    line = [" "] * (max(positions.values()) + 1)
    for at in positions.values():
        line[at] = "|"
    begin = positions[step.sender]
    if not step.receiver:
        _write(line, begin + 2, f"({step.label})")
        return "".join(line)
    end = positions[step.receiver]
    left, right = min(begin, end), max(begin, end)
    inner = ["." if step.kind is StepKind.RESPONSE else "-"] * (right - left - 1)
    if end > begin:
        inner[-1] = "X" if step.kind is StepKind.CLOSE else ">"
    else:
        inner[0] = "X" if step.kind is StepKind.CLOSE else "<"
    offset = (len(inner) - len(step.label)) // 2
    _write(inner, offset - 1, f" {step.label} ")
    line[left + 1 : right] = inner
    return "".join(line)


def _write(line: list[str], at: int, text: str) -> None:
    line.extend(" " * (at + len(text) - len(line)))
    line[at : at + len(text)] = text
