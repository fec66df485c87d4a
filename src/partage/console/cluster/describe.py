"""``partage cluster describe``: the brokers of a cluster."""

from __future__ import annotations

import msgspec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.options import JsonOption, with_cluster
from partage.console.common.output import json_help, print_json
from partage.console.common.table import print_table

app = command_app()


class BrokerDescription(msgspec.Struct, frozen=True):
    """A broker, its rack (null if it has none), and the number of partitions that it leads."""

    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    leaders: int


class ClusterDescription(msgspec.Struct, frozen=True):
    """Output of ``partage cluster describe --json``.

    ``partitions_without_leader`` counts the partitions that cannot be read or written.
    """

    cluster_id: str | None
    controller_id: int | None
    topics: int
    partitions: int
    partitions_without_leader: int
    brokers: list[BrokerDescription]


@app.command("describe", epilog=json_help(ClusterDescription))
@with_cluster()
def describe(cluster: ClusterClient, json: JsonOption = False) -> None:
    """Show the cluster's id, its controller, and its brokers with their addresses.

    \b
    Examples:
      partage cluster describe
      partage cluster describe --json
    """
    description = _described(cluster)
    if json:
        print_json(description)
        return
    print(
        f"cluster {description.cluster_id or '-'}: {description.topics:,} topics, "
        f"{description.partitions:,} partitions, "
        f"{description.partitions_without_leader:,} without a leader"
    )
    print_table(
        ["BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "LEADERS"],
        [
            (
                each.id,
                each.host,
                each.port,
                each.rack,
                "yes" if each.is_controller else "no",
                each.leaders,
            )
            for each in description.brokers
        ],
        optional=["RACK", "LEADERS"],
    )


def _described(cluster: ClusterClient) -> ClusterDescription:
    metadata = cluster.metadata()
    answer = cluster.result(cluster.admin.describe_cluster(request_timeout=cluster.timeout_s))
    controller_id = None if answer.controller is None else int(answer.controller.id)
    leaders = [
        partition.leader
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
    ]
    return ClusterDescription(
        cluster_id=answer.cluster_id,
        controller_id=controller_id,
        topics=len(metadata.topics),
        partitions=len(leaders),
        partitions_without_leader=sum(leader < 0 for leader in leaders),
        brokers=[
            BrokerDescription(
                id=int(node.id),
                host=str(node.host),
                port=int(node.port),
                rack=node.rack,
                is_controller=node.id == controller_id,
                leaders=leaders.count(int(node.id)),
            )
            for node in sorted(answer.nodes, key=lambda node: int(node.id))
        ],
    )
