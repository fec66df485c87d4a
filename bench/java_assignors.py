"""Apache Kafka's own assignors in a JVM of their own, for the same groups.

The program is the one that the tests compare results with (``tests/assignors/java``). A JVM
compiles what it runs often, so the first round is the slowest by far: it is what a leader takes
that has just begun, and "warm" what one takes that has done it many times.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.brokers import KAFKA
from interop.peers import jars, paths
from partage.assignors import Member, Topic

NAME = f"{KAFKA}, Java"

QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
_SOURCE = Path(__file__).resolve().parents[1] / "tests" / "assignors" / "java" / "Assign.java"


class Took(NamedTuple):
    """CPU seconds of all threads: of the first round, and the mean of the later half of them.

    A mean, because the JVM's clock has steps of 10 ms.
    """

    cold_s: float
    warm_s: float


class JavaAssignors:
    """A JVM that assigns, over and over, what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def time(
        self, name: str, members: Sequence[Member], topics: Mapping[str, Topic], rounds: int
    ) -> Took:
        """Have it assign the same group so many times."""
        for topic in topics.values():
            self._say("topic", topic.name, ";".join(["-"] * topic.partition_count))
        for member in members:
            owned = ",".join(f"{t}:{p}" for t, its in member.owned.items() for p in its)
            words = (member.member_id, "-", "-", str(member.generation))
            self._say("member", *words, ",".join(member.topics), owned, member.user_data.hex())
        self._say("time", name, str(rounds))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.flush()
        took = []
        while (line := stdout.readline()) != "end\n":
            assert line, "Java has ended"
            count, nanoseconds = line.split("\t")
            assert int(count) == len(members)
            took.append(int(nanoseconds) / 1e9)
        return Took(took[0], statistics.mean(took[rounds // 2 :]))

    def _say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")


@contextmanager
def java_assignors() -> Iterator[JavaAssignors]:
    """Compiled and running; nothing is logged."""
    with tempfile.TemporaryDirectory() as classes:
        compiler = ["org.eclipse.jdt.internal.compiler.batch.Main", "-source", "17"]
        command = [paths.java(), "-cp", jars.class_path("compiler"), *compiler, "-target", "17"]
        command += ["-proc:none", "-cp", jars.class_path("broker"), str(_SOURCE), "-d", classes]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        path = jars.class_path("broker", first=Path(classes))
        process = subprocess.Popen(
            [paths.java(), "-Xms2g", "-Xmx2g", QUIET, "-cp", path, "Assign"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield JavaAssignors(process)
        finally:
            process.kill()
            process.communicate()
