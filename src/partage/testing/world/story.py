"""The story of a world: one list of what happened, with the log lines of the user's program."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from partage.testing.world.process import current_process
from partage.testing.world.virtual_loop import VirtualLoop


class Story:
    """Lines with virtual time and process, in order."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []

    def note(self, name: str, text: str) -> None:
        """Add a line about a process, or about the world."""
        self.lines.append(f"{self._loop.elapsed_s:10.3f}  {name:12}  {text}")

    def note_current(self, text: str) -> None:
        """Add a line about the process of the running code."""
        process = current_process.get()
        self.note("test" if process is None else process.name, text)

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
        self._story.note_current(f"{record.levelname} {record.name}: {message}")
