"""The kinds of clients, and how each is called. What they print is told in ``clients/peer.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from interop.peers import jars, paths, tools

KINDS = ("confluent", "kafka_python", "aiokafka", "kcat", "kafkajs", "java", "partage")

#: Kinds that produce too.
PRODUCERS = KINDS[:-1]

#: Kinds that know cooperative rebalancing, as KIP-429 has it.
COOPERATIVE = ("java", "confluent", "partage")

#: Kinds that say when the broker has acknowledged a commit.
REPORTS_COMMITS = frozenset(KINDS) - {"kcat"}

#: Those that do not produce have it done for them.
_OTHERWISE = "confluent"

_CLIENTS = paths.SOURCES / "clients"


def producer(kind: str) -> str:
    """Which kind produces for a consumer of this kind: itself, if it can."""
    return kind if kind in PRODUCERS else _OTHERWISE


def command(kind: str, action: str, options: Sequence[str]) -> list[str]:
    """The command line that runs a peer; ``action`` is ``consume`` or ``produce``."""
    return [*_program(kind), action, *options]


def _program(kind: str) -> list[str]:
    if kind == "java":
        class_path = jars.class_path("broker", first=paths.JAVA_PEER)
        jvm = [*tools.JVM, *jars.quick_start("peer"), tools.QUIET]
        return [paths.java(), *jvm, "-cp", class_path, "KafkaPeer"]
    if kind == "kafkajs":
        return [paths.tool("node", "install Node.js"), str(_CLIENTS / "kafkajs_peer.js")]
    return [sys.executable, str(_CLIENTS / f"{kind}_peer.py")]


def environment() -> dict[str, str]:
    """The environment for peers: kafkajs need not warn of its partitioner."""
    return {**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1", "PYTHONUNBUFFERED": "1"}
