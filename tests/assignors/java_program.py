"""A running JVM that answers lines of words with lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

from interop.peers import jars, paths


class JavaProgram:
    """A Java program beside Apache Kafka's archives, compiled from one file.

    Args:
        source: The file. Its class has the file's name.
        classes: An empty folder for the compiled classes.
    """

    def __init__(self, source: Path, classes: Path) -> None:
        compiler = [
            "org.eclipse.jdt.internal.compiler.batch.Main",
            "-source",
            "17",
            "-target",
            "17",
        ]
        command = [paths.java(), "-cp", jars.class_path("compiler"), *compiler, "-proc:none"]
        command += ["-cp", jars.class_path("broker"), str(source), "-d", str(classes)]
        compiled = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert compiled.returncode == 0, compiled.stderr
        class_path = jars.class_path("broker", first=classes)
        self._process = subprocess.Popen(
            [paths.java(), "-XX:TieredStopAtLevel=1", "-cp", class_path, source.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Kafka's assignors log every assignment
            text=True,
        )

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def send(self, *words: str) -> None:
        self._process.stdin.write("\t".join(words) + "\n")

    def receive(self) -> str:
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "Java has ended"
        return line.rstrip("\n")
