"""Processors of both kinds for tests, and a journal of their tasks."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter

from client.confluent_admin import produce
from partage.recipes import Processor, Task
from partage.recipes.sync import Processor as BlockingProcessor
from polled_conditions import eventually

from .external_broker import fresh_topic
from .settings import QUICK_READER

JOINED = ("clicks", "orders")
OTHER = "news"
NUMBERS = 6
OTHERS = 5


def topics(servers):
    for topic in JOINED:
        fresh_topic(servers, topic, NUMBERS)
    fresh_topic(servers, OTHER, OTHERS)


def fill(servers, each=20):
    """Produce ``each`` more records to every partition of the three topics."""
    everywhere = [(topic, n) for topic in JOINED for n in range(NUMBERS)]
    everywhere += [(OTHER, n) for n in range(OTHERS)]
    for topic, partition in everywhere:
        produce(servers, topic, [{"value": b"x", "partition": partition}] * each)
    return each * len(everywhere)


_numbers = itertools.count(1)


class Journal:
    """The steps of all tasks of a test in order, and the name of their group."""

    def __init__(self):
        self.group = f"joiner-{next(_numbers)}"
        self._lock = threading.Lock()
        self.steps = []  # (step, worker, task id)
        self.read = Counter()  # by topic, partition, offset
        self.who = []  # (worker, serial of the task, topic, partition)
        self.open = {}  # the worker of each open task
        self.twice = []  # tasks that were created while another worker had them

    def note(self, what, task):
        with self._lock:
            self.steps.append((what, task.worker, task.id))
            if what == "begin":
                if task.id in self.open:
                    self.twice.append((task.id, self.open[task.id], task.worker))
                self.open[task.id] = task.worker
            if what == "close" and self.open.get(task.id) == task.worker:
                del self.open[task.id]

    def processed(self, task, record):
        with self._lock:
            self.read[record.topic, record.partition, record.offset] += 1
            self.who.append((task.worker, id(task), record.topic, record.partition))

    def count(self):
        with self._lock:
            return len(self.read)

    def doubles(self):
        with self._lock:
            return [place for place, times in self.read.items() if times > 1]

    def owners(self, topics, partition):
        """Return the workers that processed a partition number of these topics, in order."""
        with self._lock:
            found = []
            for worker, _, topic, number in self.who:
                if topic in topics and number == partition and found[-1:] != [worker]:
                    found.append(worker)
            return found


class Noted(Task):
    """A task that records its steps and its worker's name."""

    def __init__(self, journal, worker, task_id):
        self.journal, self.worker, self.id = journal, worker, task_id
        self.unflushed = 0
        journal.note("begin", self)

    def process(self, record):
        assert record.topic in self.id.topics
        assert record.partition == self.id.partition
        self.journal.processed(self, record)
        self.unflushed += 1

    def flush(self):
        self.unflushed = 0
        self.journal.note("flush", self)

    def close(self):
        self.journal.note("close", self)


class AwaitedNoted(Noted):
    async def process(self, record):
        await asyncio.sleep(0)
        super().process(record)

    async def flush(self):
        super().flush()

    async def close(self):
        await asyncio.sleep(0)
        super().close()


class Worker:
    """A processor that runs in a thread until it is stopped."""

    def __init__(self, face, servers, journal, name, kind=None, joined=JOINED, **options):
        self.name = name
        self.error = None
        self.processor = None
        self._is_up = threading.Event()
        kind = kind or (AwaitedNoted if face == "asyncio" else Noted)
        settings = {
            **QUICK_READER,
            # no session ends on a busy machine; members that leave send LeaveGroup
            "session_timeout_ms": 30_000,
            "client_id": name,
            "topics": [OTHER],
            "commit_interval_ms": 50,
            **options,
        }

        def made(task_id):
            return kind(journal, name, task_id)

        arguments = servers, journal.group, made

        async def awaited():
            async with Processor(*arguments, joined=joined, **settings) as processor:
                self._began(processor)
                await processor.run()

        def blocking():
            with BlockingProcessor(*arguments, joined=joined, **settings) as processor:
                self._began(processor)
                processor.run()

        def work():
            try:
                if face == "asyncio":
                    asyncio.run(awaited())
                else:
                    blocking()
            except BaseException as error:
                self.error = error
            self._is_up.set()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        assert self._is_up.wait(30)

    def _began(self, processor):
        self.processor = processor
        self._is_up.set()

    @property
    def tasks(self):
        return self.processor.tasks

    def stop(self):
        """Stop the processor and wait for its end; return the error that ended it."""
        if self.processor is not None:
            self.processor.stop()
        return self.ended()

    def ended(self, within_s=30):
        self._thread.join(within_s)
        assert not self._thread.is_alive()
        return self.error

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        if self._thread.is_alive():
            self.stop()


def until(holds, *workers, within_s=45.0):
    """Wait until a condition holds; fail if a worker has failed."""

    def check():
        for worker in workers:
            assert worker.error is None, worker.error

    eventually(holds, lambda: [worker.tasks for worker in workers], within_s, check)
