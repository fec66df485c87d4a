"""Work that consumer groups ask of their broker: assignors, and regular expressions of topics."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from partage.assignors.server_side import ServerSideAssignor
from partage.bridge.target_computation import ComputedTarget, compute_target
from partage.bridge.topic_regex import is_quick_match, matching_topics
from partage.broker.clock import Clock
from partage.broker.coordination.topic_images import TopicImages
from partage.coordinator.consumer_group.actions import Action, ComputeTarget, ResolveRegexes
from partage.coordinator.consumer_group.events import RegexesResolved, TargetComputed
from partage.model.printable import printable

log = logging.getLogger(__name__)

#: The sum of members and partitions up to which a built-in assignor runs on the event loop: it
#: takes less than a millisecond, and a thread would cost more.
_INLINE_SIZE_MAX: Final = 500
_THREADS_MAX: Final = 4
#: Work that has not ended this long after its request has failed. Python cannot end the thread of
#: an assignor.
_TIMEOUT_S: Final = 30.0
#: The limit of threads of an assignor that did not end in time: then it gets no further one.
_ABANDONED_MAX: Final = 4
_REGEX_WORK: Final = "regular expressions"

ActionResult = TargetComputed | RegexesResolved
#: Receives the result of an action.
ResultCallback = Callable[[ActionResult], None]


class NamedAssignors(Protocol):
    """The assignors of a broker, by name."""

    def get(self, name: str) -> ServerSideAssignor:
        """Return an assignor that the broker lists."""

    def is_built_in(self, name: str) -> bool:
        """True if the assignor is part of Partage: it neither fails nor hangs."""


class GroupActions:
    """Performs the actions of consumer groups, large ones in threads.

    Args:
        assignors: the assignors of the broker.
        images: the topics.
        clock: the broker's clock.
        timeout_s: the time limit of an action in seconds, with the time it waits for a thread.
    """

    def __init__(
        self,
        assignors: NamedAssignors,
        images: TopicImages,
        clock: Clock,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._assignors = assignors
        self._images = images
        self._clock = clock
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._running = 0
        self._waiting = deque[_ThreadRun]()
        self._abandoned = Counter[str]()  # the threads that exceeded their time limit, by name
        self._is_closed = False

    def close(self) -> None:
        """Ignore the results of all work that has not ended."""
        self._is_closed = True
        for run in self._waiting:
            run.drop()
        self._waiting.clear()

    def run(self, action: Action, done: ResultCallback) -> None:
        """Perform an action; ``done`` is called once on the loop, at once or later."""
        if isinstance(action, ComputeTarget):
            self._compute(action, done)
        else:
            self._resolve(action, done)

    def _compute(self, action: ComputeTarget, done: ResultCallback) -> None:
        def compute() -> object:
            return compute_target(action, self._assignors.get(action.assignor))

        def report(result: object) -> None:
            failed = ComputedTarget(None, str(result))
            target, error = result if isinstance(result, ComputedTarget) else failed
            if target is None:
                log.error(
                    "assignor failed, the previous target stays in force: "
                    "group=%s assignor=%s epoch=%d error=%s",
                    printable(action.group_id),
                    printable(action.assignor),
                    action.group_epoch,
                    printable(error),
                )
            done(
                TargetComputed(
                    at_ms=self._clock.now_ms(),
                    group_id=action.group_id,
                    sequence=action.sequence,
                    group_epoch=action.group_epoch,
                    target=target,
                    error=error,
                )
            )

        partitions = sum(topic.partition_count for topic in action.topics.values())
        is_small = len(action.members) + partitions <= _INLINE_SIZE_MAX
        if is_small and self._assignors.is_built_in(action.assignor):
            report(_caught(compute))
        else:
            self._run_in_thread(f"assignor {action.assignor}", compute, report)

    def _resolve(self, action: ResolveRegexes, done: ResultCallback) -> None:
        names, version = self._images.names(), self._images.version
        regexes = list(action.regexes)
        is_reported = False

        def is_over() -> bool:
            return is_reported or self._is_closed

        def resolve() -> object:
            return matching_topics(regexes, names, is_over)

        def report(result: object) -> None:
            nonlocal is_reported
            is_reported = True  # a thread that exceeded its time limit stops
            if not isinstance(result, dict):
                log.error(
                    "regular expressions were not matched, the previous topics stay in force: "
                    "group=%s error=%s",
                    printable(action.group_id),
                    printable(str(result)),
                )
            done(
                RegexesResolved(
                    at_ms=self._clock.now_ms(),
                    group_id=action.group_id,
                    sequence=action.sequence,
                    topics=result if isinstance(result, dict) else None,
                    version=version,
                )
            )

        if is_quick_match(regexes, names):
            report(_caught(resolve))
        else:
            self._run_in_thread(_REGEX_WORK, resolve, report)

    # Threads.

    def _run_in_thread(
        self, name: str, work: Callable[[], object], report: Callable[[object], None]
    ) -> None:
        """Run ``work`` in a thread when one is free, and report its result or its failure."""
        run = _ThreadRun(self._loop, name, work, report)
        run.timer = self._loop.call_later(self._timeout_s, self._on_timeout, run)
        self._waiting.append(run)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._running < _THREADS_MAX:
            run = self._waiting.popleft()
            abandoned = self._abandoned[run.name]
            if abandoned >= _ABANDONED_MAX:
                run.report(f"{abandoned} earlier runs of {run.name} have not ended")
                continue
            try:
                run.start(self._on_ended)
            except RuntimeError as error:  # the system has no thread left
                run.report(error)
                continue
            self._running += 1

    def _on_timeout(self, run: _ThreadRun) -> None:
        if run.is_started:
            self._running -= 1
            self._abandoned[run.name] += 1
        else:
            self._waiting.remove(run)
        self._report(run, TimeoutError(f"it did not end within {self._timeout_s:g} s"))

    def _on_ended(self, run: _ThreadRun, result: object) -> None:
        if run.is_reported:  # at its time limit
            self._abandoned[run.name] -= 1
            return
        self._running -= 1
        self._report(run, result)

    def _report(self, run: _ThreadRun, result: object) -> None:
        if self._is_closed:
            run.drop()
            return
        run.report(result)
        self._start_waiting()


class _ThreadRun:
    """A function in a daemon thread: a thread that hangs does not keep the broker from stopping."""

    timer: asyncio.TimerHandle

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        work: Callable[[], object],
        report: Callable[[object], None],
    ) -> None:
        self.name = name
        self.is_started = False
        self.is_reported = False
        self._loop = loop
        self._work = work
        self._report = report

    def start(self, ended: Callable[[_ThreadRun, object], None]) -> None:
        """Start the thread; ``ended`` is called on the loop.

        Raises:
            RuntimeError: The system has no thread left.
        """
        _start_thread(self._loop, partial(self._run, ended))
        self.is_started = True

    def report(self, result: object) -> None:
        """Report the result, once."""
        self.drop()
        self._report(result)

    def drop(self) -> None:
        """Report nothing."""
        self.timer.cancel()
        self.is_reported = True

    def _run(self, ended: Callable[[_ThreadRun, object], None]) -> None:
        result = _caught(self._work)
        try:
            self._loop.call_soon_threadsafe(ended, self, result)
        except RuntimeError:  # the loop was closed meanwhile
            return


def _start_thread(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Start a daemon thread; the loop of a simulated world runs its work later, without a thread.

    Raises:
        RuntimeError: The system has no thread left.
    """
    start = getattr(loop, "start_daemon_thread", None)
    if start is None:
        threading.Thread(target=work, name="partage-group-work", daemon=True).start()
    else:
        start(work)


def _caught(work: Callable[[], object]) -> object:
    """Return the result of a function, or its exception."""
    try:
        return work()
    except Exception as error:  # code of users may raise anything
        return error
