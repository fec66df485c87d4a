"""Apache Kafka itself, a node without ZooKeeper, to compare ourselves with.

with ApacheKafka(overrides={"group.max.size": "3"}) as kafka:
    ... kafka.bootstrap ...

with ApacheKafka() as first, ApacheKafka(node_id=2, controller=first) as second:
    ... a cluster of two brokers; the first one is also the controller ...
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from free_ports import free_ports
from interop.peers import jars, paths
from interop.peers.server import BrokerProcess, NotReadyError

VERSION = "4.4.0"

#: For tests: fast start and small memory.
JVM_FOR_TESTS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: For benchmarks: the options of Kafka's start script.
JVM_FOR_BENCHMARKS = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)

_PORT_TAKEN = "Address already in use"


class ApacheKafka(BrokerProcess):
    """Apache Kafka's broker; it logs to ``log``.

    ``overrides`` are settings by Kafka's names. The defaults differ from Kafka's where a single
    node requires it (replication factor 1). There are two more differences, so that the first group
    need not wait: no initial rebalance delay, and 8 instead of 50 partitions of the offsets topic.

    ``listeners`` are further listeners with their security protocols; `listener` returns their
    addresses.

    ``log_levels`` sets loggers: ``{"kafka.request.logger": "debug"}`` logs every request.

    A node with a ``controller``, which must be running, joins the cluster of that node.

    ``plugins`` is a jar with further classes, such as assignors.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        jvm: Sequence[str] = JVM_FOR_TESTS,
        log_levels: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        node_id: int = 1,
        controller: ApacheKafka | None = None,
        plugins: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self.node_id = node_id
        self._controller = controller
        self._plugins = plugins
        self._voters = ""
        self._cluster_id = ""
        self._listeners = dict(listeners or {})
        self._overrides = dict(overrides or {})
        self._jvm = list(jvm)
        self._levels = {"defaultLogLevel": "warn", "showDateTime": "true"}
        self._levels |= {f"log.{name}": level for name, level in (log_levels or {}).items()}
        self._config = self.directory / "server.properties"

    def listener(self, name: str) -> str:
        """Return the address of one of ``listeners``; ``bootstrap`` is the plaintext listener.

        It is known after the start of the broker.
        """
        return self._addresses[name]

    def start(self, timeout_s: float = 180) -> Self:
        """Format the directory if new, start and wait.

        Raises:
            NotReadyError: The broker does not answer in time.
            MissingToolError: Java or an archive is missing.
        """
        for attempt in range(3):
            is_new = not self._config.exists()
            if is_new:
                self._format()
            with self.log.open("ab") as log:
                command = self._java("kafka.Kafka", str(self._config))
                self.process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                self.wait_until_it_answers(timeout_s)
            except NotReadyError:
                self.kill()
                # A process outside the tests may have taken the port: choose again. A restarted
                # broker keeps its address.
                if not is_new or attempt == 2 or _PORT_TAKEN not in self.log_end(200):
                    raise
                self._config.unlink()
                self.log.unlink()
            except BaseException:
                self.kill()
                raise
            else:
                return self
        raise AssertionError("not reached")

    def override(self, name: str, value: str) -> None:
        """Change a setting; the last line of the configuration file decides."""
        self._overrides[name] = value
        if self._config.exists():
            with self._config.open("a") as config:
                config.write(f"{name}={value}\n")

    def _format(self) -> None:
        port, controller_port, *more = free_ports(2 + len(self._listeners))
        controller_listener = f",CONTROLLER://127.0.0.1:{controller_port}"
        self._voters = f"{self.node_id}@127.0.0.1:{controller_port}"
        self._cluster_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:21]
        if self._controller is not None:
            controller_listener = ""
            self._voters, self._cluster_id = self._controller._voters, self._controller._cluster_id
        self.bootstrap = f"127.0.0.1:{port}"
        self._addresses = {
            name: f"127.0.0.1:{own}" for name, own in zip(self._listeners, more, strict=True)
        }
        named = {"PLAINTEXT": self.bootstrap, **self._addresses}
        advertised = ",".join(f"{name}://{address}" for name, address in named.items())
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **self._listeners}
        settings = {
            "process.roles": "broker,controller" if self._controller is None else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": self._voters,
            "listeners": f"{advertised}{controller_listener}",
            "advertised.listeners": advertised,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            "log.dirs": str(self.directory / "logs"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._overrides,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        said = subprocess.run(
            self._java(*tool, "-t", self._cluster_id, "-c", str(self._config)),
            capture_output=True,
            text=True,
        )
        if said.returncode != 0:
            raise NotReadyError(f"Kafka's directory could not be formatted:\n{said.stderr[-3000:]}")

    def _java(self, *arguments: str) -> list[str]:
        levels = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in self._levels.items()]
        class_path = jars.class_path("broker", first=self._plugins)
        return [paths.java(), *self._jvm, *levels, "-cp", class_path, *arguments]
