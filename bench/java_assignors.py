"""Apache Kafka's own assignors in a separate JVM, for the same groups.

The programs are the reference of the tests too (in ``tests/assignors``). A JVM compiles code that
runs often, so the first round is by far the slowest. It is the time of a leader that has just
started; "warm" is the time of one that has assigned many times.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.brokers import KAFKA
from interop.peers import jars, paths
from partage.assignors import Member, Topic
from partage.coordinator.consumer_group.actions import AssignableMember

NAME = f"{KAFKA}, Java"

QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
_TESTS = Path(__file__).resolve().parents[1] / "tests" / "assignors"
_CLIENT_SIDE = _TESTS / "java" / "Assign.java"
_SERVER_SIDE = _TESTS / "server_side" / "java" / "AssignTargets.java"


class Took(NamedTuple):
    """CPU seconds of all threads: the first round, and the mean of the later half of all rounds.

    A mean, because the JVM's clock has steps of 10 ms.
    """

    cold_s: float
    warm_s: float


class _JavaProgram:
    """A JVM that repeatedly computes assignments."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _time(self, members: int, rounds: int, *words: str) -> Took:
        """Assign the same group of some members in each of ``rounds`` rounds."""
        self._write("time", *words, str(rounds))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.flush()
        seconds = []
        while (line := stdout.readline()) != "end\n":
            assert line, "Java has ended"
            count, nanoseconds = line.split("\t")
            assert int(count) == members
            seconds.append(int(nanoseconds) / 1e9)
        return Took(seconds[0], statistics.mean(seconds[rounds // 2 :]))

    def _write(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")


class JavaAssignors(_JavaProgram):
    """The assignors of Kafka's consumer."""

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
        return self._time(len(members), rounds, name)


class JavaTargets(_JavaProgram):
    """The assignors of Kafka's broker."""

    def time(
        self,
        name: str,
        members: Iterable[AssignableMember],
        partition_counts: Mapping[bytes, int],
        rounds: int,
    ) -> Took:
        """Compute the same target, of members with the same topics, in each of some rounds.

        The ids of topics are small numbers.
        """
        for topic_id, count in partition_counts.items():
            self._write("topic", str(int.from_bytes(topic_id)), str(count))
        size = 0
        for member in members:
            size += 1
            topics = ",".join(str(int.from_bytes(each)) for each in member.subscribed_topic_ids)
            target = ",".join(
                f"{int.from_bytes(topic_id)}:{partition}"
                for topic_id, partitions in member.target.items()
                for partition in partitions
            )
            self._write("member", member.member_id, "-", topics, target)
        return self._time(size, rounds, name, "HOMOGENEOUS")


def java_assignors() -> AbstractContextManager[JavaAssignors]:
    """Compile and start the program with the assignors of Kafka's consumer."""
    return _java(JavaAssignors, _CLIENT_SIDE)


def java_targets() -> AbstractContextManager[JavaTargets]:
    """Compile and start the program with the assignors of Kafka's broker."""
    return _java(JavaTargets, _SERVER_SIDE)


P = TypeVar("P", bound=_JavaProgram)


@contextmanager
def _java(program: type[P], source: Path) -> Iterator[P]:
    """Compile and start a program; its log is off."""
    with tempfile.TemporaryDirectory() as classes:
        compiler = ["org.eclipse.jdt.internal.compiler.batch.Main", "-source", "17"]
        command = [paths.java(), "-cp", jars.class_path("compiler"), *compiler, "-target", "17"]
        command += ["-proc:none", "-cp", jars.class_path("broker"), str(source), "-d", classes]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        path = jars.class_path("broker", first=Path(classes))
        process = subprocess.Popen(
            [paths.java(), "-Xms2g", "-Xmx2g", QUIET, "-cp", path, source.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield program(process)
        finally:
            process.kill()
            process.communicate()
