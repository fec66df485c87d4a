"""The assignor that the operator selects for one consumer group."""

from __future__ import annotations

from interop.consumer_groups.script import ConsumerGroupScript
from interop.oracle.connection import Connection
from partage.testing import ThreadedBroker

from .cli import PartageCli


def test_operator_selects_the_assignor_of_a_group() -> None:
    """Not with the shared broker, which may be Apache Kafka: it has no such config."""
    prefix = "selected-"
    with ThreadedBroker() as broker:
        partage = PartageCli(broker.bootstrap_servers)
        group, key = f"{prefix}g", "consumer.assignor.name"

        def change(*options: str) -> None:
            partage("configs", "alter", "--group", group, *options)

        def assignor() -> str:
            (found,) = partage("groups", "describe", group, "--json").json["groups"]
            assert found["state"] == "Stable"
            return str(found["protocol"])

        with Connection(broker.bootstrap_servers, "selected") as connection:
            script = ConsumerGroupScript(connection, prefix)
            script.run("create t 4")
            assert script.run("join A t") == ["epoch 2 [t:0,1,2,3]"]
            assert assignor() == "uniform"
            change("--add-config", f"{key}=range")
            assert script.run("beat A") == ["epoch 3"]
            assert assignor() == "range"
            described = partage("configs", "describe", "--group", group).lines
            assert [key, "range", "GROUP_CONFIG", "no"] in [line.split() for line in described]
            change("--delete-config", key)
            assert script.run("beat A") == ["epoch 4"]
            assert assignor() == "uniform"
            refused = partage.fails(
                "configs", "alter", "--group", group, "--add-config", f"{key}=sticky"
            )
            assert f"{key}=sticky: must be uniform or range, or empty" in refused
            script.run("leave A")
