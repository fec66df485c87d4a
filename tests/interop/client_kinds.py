"""The kinds of clients and their command lines. ``clients/peer.py`` describes their output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from interop.peers import jars, paths, tools

KINDS = ("confluent", "kafka_python", "aiokafka", "kcat", "kafkajs", "java", "partage")

#: Kinds that can also produce.
PRODUCERS = KINDS[:-1]

#: Kinds that support cooperative rebalancing (KIP-429).
COOPERATIVE = ("java", "confluent", "partage")

#: Kinds that report the broker's acknowledgement of a commit.
REPORTS_COMMITS = frozenset({*KINDS, "franz-go"}) - {"kcat"}

#: The producer for kinds that cannot produce.
_OTHERWISE = "confluent"

_CLIENTS = paths.SOURCES / "clients"


def producer(kind: str) -> str:
    """Return the kind that produces for a consumer of this kind: itself if possible."""
    return kind if kind in PRODUCERS else _OTHERWISE


def command(kind: str, action: str, options: Sequence[str]) -> list[str]:
    """Return the command line of a peer; ``action`` is ``consume`` or ``produce``."""
    return [*_program(kind), action, *options]


def _program(kind: str) -> list[str]:
    if kind == "java":
        class_path = jars.class_path("broker", first=paths.JAVA_PEER)
        jvm = [*tools.JVM, *jars.quick_start("peer"), tools.QUIET]
        return [paths.java(), *jvm, "-cp", class_path, "KafkaPeer"]
    if kind == "franz-go":
        return [str(paths.GO_PEER)]
    if kind == "kafkajs":
        return [paths.tool("node", "install Node.js"), str(_CLIENTS / "kafkajs_peer.js")]
    return [sys.executable, str(_CLIENTS / f"{kind}_peer.py")]


def environment() -> dict[str, str]:
    """Return the environment of peers; it disables kafkajs's partitioner warning."""
    return {**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1", "PYTHONUNBUFFERED": "1"}
