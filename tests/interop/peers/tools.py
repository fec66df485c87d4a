"""Apache Kafka's command-line tools: ``tool("topics", bootstrap, "--list")``.

``offline_tool`` runs those that read files instead of asking a broker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from interop.peers import jars, paths

VERSION = "4.3.1"

#: Main class of each tool, by the name of its script without ``kafka-``.
TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "acls": "org.apache.kafka.tools.AclCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "transactional-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}

_BOOTSTRAP_OPTIONS = {"transactional-copier": "--broker-list"}

#: A small heap and a fast start: a tool runs for two seconds.
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


class ToolFailedError(Exception):
    """A tool ended with an error; the message is its output."""


def command(name: str, bootstrap: str, *arguments: str) -> list[str]:
    """Return the command line of a tool."""
    return _java(name, _BOOTSTRAP_OPTIONS.get(name, "--bootstrap-server"), bootstrap, *arguments)


def tool(
    name: str, bootstrap: str, *arguments: str, feed: str | None = None, timeout_s: float = 240
) -> str:
    """Run a tool and return its standard output; raise `ToolFailedError` if it fails."""
    return _run(name, command(name, bootstrap, *arguments), arguments, feed, timeout_s)


def offline_tool(name: str, *arguments: str, timeout_s: float = 240) -> str:
    """Run a tool that needs no broker; otherwise as `tool`."""
    return _run(name, _java(name, *arguments), arguments, None, timeout_s)


def _java(name: str, *arguments: str) -> list[str]:
    java = [paths.java(), *JVM, *jars.quick_start("tools"), QUIET]
    return [*java, "-cp", jars.class_path("tools"), TOOLS[name], *arguments]


def _run(
    name: str, line: list[str], arguments: Sequence[str], feed: str | None, timeout_s: float
) -> str:
    said = subprocess.run(line, input=feed, capture_output=True, text=True, timeout=timeout_s)
    if said.returncode != 0:
        raise ToolFailedError(f"kafka-{name} {' '.join(arguments)}:\n{said.stdout}{said.stderr}")
    return said.stdout
