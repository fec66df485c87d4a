"""kcat as a peer: its output is converted to events.

kcat does not report commits, so there are no ``committed`` events. It commits every 200 ms, when
partitions are revoked, and at the end. ``--commit-every`` has no effect.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from peer import emit, emit_partitions, keyed, main, stopping

from interop.peers import debs

REBALANCED = re.compile(r"% Group .* rebalanced \(memberid (.*)\): (assigned|revoked|lost):? ?(.*)")
PARTITION = re.compile(r"(\S+) \[(\d+)\]")
DELIVERED = re.compile(r"% Message delivered to partition (\d+) \(offset (\d+)\)")
CHATTER = ("% Waiting for group", "% Reached end of topic", "% Auto-selecting")


def consume(options: argparse.Namespace) -> None:
    """Run ``kcat -G``; it prints assignments on standard error, in order with the records."""
    settings = {
        "client.id": options.client_id,
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": options.heartbeat_interval_ms,
        "partition.assignment.strategy": options.assignor,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
    }
    if options.instance_id:
        settings["group.instance.id"] = options.instance_id
    arguments = ["-b", options.bootstrap, "-G", options.group, "-J"]
    arguments += [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    arguments += ["-c", str(options.max)] if options.max else []
    # Line-buffered, with both streams in one pipe: this keeps kcat's order.
    command = ["stdbuf", "-oL", *debs.command(), *arguments, *options.topic.split(",")]
    with subprocess.Popen(
        command,
        env=debs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    ) as kcat:
        assert kcat.stdout is not None
        threading.Thread(target=_end_when_asked, args=[kcat], daemon=True).start()
        emit("ready", version=version())
        for line in kcat.stdout:
            _tell(line.rstrip("\n"))
    if kcat.returncode != 0:
        raise RuntimeError(f"kcat ended with status {kcat.returncode}")


def _end_when_asked(kcat: subprocess.Popen[str]) -> None:
    stopping.wait()
    kcat.terminate()


def _tell(line: str) -> None:
    if line.startswith("{"):
        said = json.loads(line)
        emit("record", **{name: said[name] for name in ("topic", "partition", "offset", "key")})
    elif (rebalanced := REBALANCED.match(line)) is not None:
        partitions = [(topic, int(number)) for topic, number in PARTITION.findall(rebalanced[3])]
        emit_partitions(rebalanced[2], partitions)
    elif not line.startswith(CHATTER):
        emit("log", message=line)


def produce(options: argparse.Namespace) -> None:
    """Run ``kcat -P``; it prints offsets without keys, in key order within a partition."""
    arguments = ["-P", "-b", options.bootstrap, "-t", options.topic, "-K", ":", "-vvv"]
    arguments += ["-X", f"client.id={options.client_id}", "-X", f"acks={options.acks}"]
    arguments += ["-X", "topic.partitioner=murmur2_random"]
    arguments += ["-X", "topic.produce.offset.report=true"]
    emit("ready", version=version())
    lines = b"".join(key + b":" + value + b"\n" for _, key, value in keyed(options))
    said = subprocess.run(
        [*debs.command(), *arguments],
        env=debs.environment(),
        input=lines,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = said.stdout.decode(errors="replace")
    for line in output.splitlines():
        if (delivered := DELIVERED.match(line)) is not None:
            where = {"partition": int(delivered[1]), "offset": int(delivered[2])}
            emit("produced", topic=options.topic, key=None, **where)
    if said.returncode != 0:
        raise RuntimeError(f"kcat ended with status {said.returncode}: {output[-500:]}")


def version() -> str:
    """Return kcat's version."""
    said = subprocess.run(
        [*debs.command(), "-V"], env=debs.environment(), capture_output=True, text=True
    )
    found = re.search(r"Version (.*)", said.stdout)
    return found[1] if found else "unknown"


if __name__ == "__main__":
    main(__doc__, consume, produce)
