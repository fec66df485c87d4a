"""A query without a JVM, for kill tests: ``sink_process.py JSON``.

Like Spark, one process forks a process for each attempt of a task and for each commit, and keeps
the number of the next batch in a file. Each batch has the same rows at every repetition.
"""

import json
import os
import pickle
import sys
import traceback
import uuid
from pathlib import Path

from partage.spark.sink.columns import SinkRecord
from partage.spark.sink.options import parse_write_options
from partage.spark.sink.row_marks import StreamingTask
from partage.spark.sink.task_producer import TaskProducer
from partage.spark.sink.transactional_writer import abort_results, commit_results, write_task

TASKS = 3
ATTEMPTS = 4

# Imported before the first fork: a fork shares the modules.
assert TaskProducer

given = json.loads(sys.argv[1])
checkpoint = Path(given["checkpoint"])
options = parse_write_options(given["options"], is_stream=True)
run = str(uuid.uuid4())


class ChildFailedError(Exception):
    """A forked process failed or was killed."""


def fork(work):
    """Run ``work`` in another process; return a function that waits for its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(work()))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)

    def wait():
        with os.fdopen(reading, "rb") as pipe:
            found = pipe.read()
        _, status = os.waitpid(child, 0)
        if status != 0:
            raise ChildFailedError
        return pickle.loads(found)

    return wait


def begin(batch, task, attempt):
    def write():
        rows = range(given["rows"])
        records = (
            SinkRecord(given["topic"], None, f"{batch}/{task}/{row}", None, []) for row in rows
        )
        return write_task(
            options, StreamingTask(given["query"], run, batch, task, attempt), records
        )

    return fork(write)


def finish(batch, task, wait):
    for attempt in range(1, ATTEMPTS):
        try:
            return wait()
        except ChildFailedError:
            wait = begin(batch, task, attempt)
    return wait()


def run_batch(batch):
    waits = [begin(batch, task, 0) for task in range(TASKS)]
    results = []
    try:
        results += [finish(batch, task, wait) for task, wait in enumerate(waits)]
        fork(lambda: commit_results(options, given["query"], run, batch, results))()
    except ChildFailedError:
        fork(lambda: abort_results(options, given["query"], run, batch))()
        raise


done = int(checkpoint.read_text()) if checkpoint.exists() else 0
for number in range(done, given["batches"]):
    run_batch(number)
    (new := checkpoint.with_suffix(".new")).write_text(str(number + 1))
    new.rename(checkpoint)
