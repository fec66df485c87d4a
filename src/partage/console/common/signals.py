"""Handling of Ctrl-C and SIGTERM as a request to stop at the next safe point."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def restore_interrupts() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again, unless the process ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class StopRequest:
    """Context manager that records the first Ctrl-C or SIGTERM. The second one ends the process.

    True once a signal was received.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)


class InterruptingStopRequest(StopRequest):
    """A `StopRequest` that also raises `KeyboardInterrupt` in the running code.

    The code may lose this exception: `asyncio.wait_for` can swallow the cancellation before Python
    3.12, and calls of librdkafka can replace it with a `SystemError`. So check the truth value too.
    """

    def _note(self, number: int, frame: FrameType | None) -> None:
        super()._note(number, frame)
        raise KeyboardInterrupt


class SigtermAsInterrupt:
    """Context manager in which SIGTERM raises `KeyboardInterrupt`, like Ctrl-C."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)
