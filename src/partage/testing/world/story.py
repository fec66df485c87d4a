"""The story of a world: one list of what happened, with the log lines of the user's program."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from partage.testing.world.process import current_process
from partage.testing.world.virtual_loop import VirtualLoop

EventKind = Literal[
    "started",
    "ended",
    "failed",
    "killed",
    "paused",
    "continued",
    "fault",
    "healed",
    "violation",
    "log",
    "note",
]
#: The kinds of events after which clients may leave connections open.
DISTURBANCES: Final = frozenset({"failed", "killed", "paused", "fault"})


@dataclass(frozen=True)
class StoryEvent:
    """An event of a story.

    Attributes:
        at_s: its virtual time, in seconds.
        name: the process, ``world`` or ``test``.
        text: what happened.
        kind: the kind of event.
    """

    at_s: float
    name: str
    text: str
    kind: EventKind = "note"

    def __str__(self) -> str:
        return f"{self.at_s:10.3f}  {self.name:12}  {self.text}"


class Story:
    """Events with virtual time and process, in order."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.events: list[StoryEvent] = []

    @property
    def lines(self) -> list[str]:
        """The events as lines."""
        return [str(event) for event in self.events]

    def note(self, name: str, text: str, kind: EventKind = "note") -> None:
        """Add an event of a process, or of the world."""
        self.events.append(StoryEvent(self._loop.elapsed_s, name, text, kind))

    def note_current(self, text: str, kind: EventKind = "note") -> None:
        """Add an event of the process of the running code."""
        process = current_process.get()
        self.note("test" if process is None else process.name, text, kind)

    @contextmanager
    def collecting_logs(self) -> Iterator[None]:
        """Add the log records of all loggers from INFO on; no other handler gets them."""
        root = logging.getLogger()
        handlers, level = root.handlers, root.level
        root.handlers = [_StoryHandler(self)]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers = handlers
            root.setLevel(level)


class _StoryHandler(logging.Handler):
    def __init__(self, story: Story) -> None:
        super().__init__()
        self._story = story
        self._thread_id = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record of the world's thread; one that cannot be formatted must not stop it."""
        if record.thread != self._thread_id:
            return  # of another thread of the test run, at an unrepeatable time
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = str(record.msg)
        self._story.note_current(f"{record.levelname} {record.name}: {message}", "log")
