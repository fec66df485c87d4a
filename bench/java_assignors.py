"""Apache Kafka's own assignors in a separate JVM, for the same groups.

The program is the reference of the tests too (``tests/assignors/java``). A JVM compiles code that
runs often, so the first round is by far the slowest. It is the time of a leader that has just
started; "warm" is the time of one that has assigned many times.
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
    """CPU seconds of all threads: the first round, and the mean of the later half of all rounds.

    A mean, because the JVM's clock has steps of 10 ms.
    """

    cold_s: float
    warm_s: float


class JavaAssignors:
    """A JVM that repeatedly computes assignments."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def time(
        self, name: str, members: Sequence[Member], topics: Mapping[str, Topic], rounds: int
    ) -> Took:
        """Assign the same group in each of ``rounds`` rounds."""
        for topic in topics.values():
            self._write("topic", topic.name, ";".join(["-"] * topic.partition_count))
        for member in members:
            owned = ",".join(f"{t}:{p}" for t, its in member.owned.items() for p in its)
            words = (member.member_id, "-", "-", str(member.generation))
            self._write("member", *words, ",".join(member.topics), owned, member.user_data.hex())
        self._write("time", name, str(rounds))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.flush()
        seconds = []
        while (line := stdout.readline()) != "end\n":
            assert line, "Java has ended"
            count, nanoseconds = line.split("\t")
            assert int(count) == len(members)
            seconds.append(int(nanoseconds) / 1e9)
        return Took(seconds[0], statistics.mean(seconds[rounds // 2 :]))

    def _write(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")


@contextmanager
def java_assignors() -> Iterator[JavaAssignors]:
    """Compile and start the program; its log is off."""
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
