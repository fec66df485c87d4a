"""All commands of ``partage`` with their summaries, in the order of ``partage --help``.

This module imports no command. A test compares each summary with the command's own help.
"""

from __future__ import annotations

from typing import Final

from partage.console.common.dispatch import CommandFamily, CommandTarget

_TOPICS: Final = "partage.console.topics.commands"
_GROUPS: Final = "partage.console.groups"
_LAB: Final = "partage.console.lab.commands"
_PIPELINES: Final = "partage.console.pipelines"
_PROPOSALS: Final = "partage.console.proposal"

COMMANDS: Final[dict[str, CommandTarget | CommandFamily]] = {
    "broker": CommandTarget(
        "Run a broker for Kafka clients until Ctrl-C or SIGTERM.",
        "partage.console.broker.command",
    ),
    "topics": CommandFamily(
        "List, create, describe, alter and delete topics.",
        {
            "list": CommandTarget("List topics with their partitions.", _TOPICS),
            "create": CommandTarget("Create topics.", _TOPICS),
            "describe": CommandTarget("Show settings and partitions of topics.", _TOPICS),
            "alter": CommandTarget(
                "Add partitions to topics, or change their settings.",
                "partage.console.topics.alter",
            ),
            "delete": CommandTarget(
                "Delete topics and all their records.", "partage.console.topics.delete"
            ),
        },
    ),
    "produce": CommandTarget("Produce records, one per line.", "partage.console.records.produce"),
    "consume": CommandTarget("Print records, one per line.", "partage.console.records.consume"),
    "groups": CommandFamily(
        "List, describe, reset and delete groups, and manage their members.",
        {
            "list": CommandTarget(
                "List groups of every protocol type with their states.", f"{_GROUPS}.commands"
            ),
            "describe": CommandTarget(
                "Show offsets and lag, members, or state of groups.", f"{_GROUPS}.commands"
            ),
            "members": CommandTarget(
                "Show the members of groups: client, host, assignor, partitions.",
                f"{_GROUPS}.members",
            ),
            "explain": CommandTarget(
                "Explain the last assignment of a group: leader, members, and a reason per "
                "partition.",
                f"{_GROUPS}.explain",
            ),
            "reset-offsets": CommandTarget(
                "Reset the committed offsets of groups without members.",
                f"{_GROUPS}.reset_offsets",
            ),
            "delete-offsets": CommandTarget(
                "Delete committed offsets of topics that no member of the group subscribes to.",
                f"{_GROUPS}.delete_offsets",
            ),
            "remove-member": CommandTarget(
                "Remove members from a group, so that others get their partitions.",
                f"{_GROUPS}.remove_member",
            ),
            "delete": CommandTarget(
                "Delete groups without members, and their committed offsets.",
                f"{_GROUPS}.commands",
            ),
        },
    ),
    "transactions": CommandFamily(
        "List, describe and abort transactions.",
        {
            "list": CommandTarget(
                "List transactional ids with their states.",
                "partage.console.transactions.commands",
            ),
            "describe": CommandTarget(
                "Show the state and the partitions of transactions.",
                "partage.console.transactions.commands",
            ),
            "describe-producers": CommandTarget(
                "Show the idempotent and transactional producers of partitions, as their leaders "
                "know them.",
                "partage.console.transactions.producers",
            ),
            "find-hanging": CommandTarget(
                "Find open transactions that no coordinator will end.",
                "partage.console.transactions.producers",
            ),
            "abort": CommandTarget(
                "Abort a hanging transaction in one partition.",
                "partage.console.transactions.abort",
            ),
        },
    ),
    "records": CommandFamily(
        "Delete records.",
        {
            "delete": CommandTarget(
                "Delete the records at the beginning of partitions.",
                "partage.console.records.delete",
            )
        },
    ),
    "configs": CommandFamily(
        "Describe and alter settings of topics, brokers and groups.",
        {
            "describe": CommandTarget(
                "Show settings of topics, brokers or groups that differ from the defaults.",
                "partage.console.configs.commands",
            ),
            "alter": CommandTarget(
                "Change settings of topics, brokers or groups.", "partage.console.configs.commands"
            ),
        },
    ),
    "cluster": CommandFamily(
        "Describe the cluster.",
        {
            "describe": CommandTarget(
                "Show the cluster's id, its controller, and its brokers with their addresses.",
                "partage.console.cluster.describe",
            )
        },
    ),
    "web": CommandTarget(
        "Serve a web page with groups, members, lag and rebalances, until Ctrl-C.",
        "partage.console.web.command",
    ),
    "search": CommandTarget(
        "Search indexed topics, also while they are being indexed.", f"{_PIPELINES}.search"
    ),
    "log": CommandFamily(
        "Repair the log files of a stopped broker.",
        {
            "cut": CommandTarget(
                "Truncate a damaged log at a position.", "partage.console.broker.log_command"
            )
        },
    ),
    "lab": CommandFamily(
        "Run simulated worlds of brokers and consumer groups, and explain failures.",
        {
            "run": CommandTarget(
                "Run simulated worlds, each drawn from a seed, and check them against the rules.",
                _LAB,
            ),
            "shells": CommandTarget(
                "Run the production broker and consumers in simulated worlds, and check what they "
                "read.",
                "partage.console.lab.shells",
            ),
            "trace": CommandTarget(
                "Print the history of a world, one line for each event, with the time in seconds.",
                _LAB,
            ),
            "shrink": CommandTarget(
                "Find the smallest part of a world that breaks the same rule, and print its "
                "history.",
                _LAB,
            ),
            "compare": CommandTarget(
                "Compare the designs of consumer groups: one workload for all, in the simulator.",
                "partage.console.lab.compare",
            ),
            "diagram": CommandTarget(
                "Draw the messages of a design of consumer groups, from a run in the simulator.",
                "partage.console.lab.diagram",
            ),
            "designs": CommandTarget(
                "Run simulated worlds of the designs of consumer groups, and check them against "
                "the rules.",
                "partage.console.lab.designs",
            ),
            "whatif": CommandTarget(
                "Simulate events on a copy of a live group and compare the effects.",
                "partage.console.lab.whatif",
            ),
        },
    ),
    "proposal": CommandFamily(
        "Run earlier designs of consumer groups, each with its own coordinator and members.",
        {
            "broker-side": CommandFamily(
                "The first design: the coordinator assigns, and pushes partitions to consumers.",
                {
                    "broker": CommandTarget(
                        "Run a broker that can be elected as the coordinator, until Ctrl-C or "
                        "SIGTERM.",
                        f"{_PROPOSALS}.broker_side",
                    ),
                    "consumer": CommandTarget(
                        "Run a consumer, and print its records, one per line.",
                        f"{_PROPOSALS}.broker_side",
                    ),
                    "freeze": CommandTarget(
                        "Disable the rebalances of a group until `thaw`.",
                        f"{_PROPOSALS}.broker_side",
                    ),
                    "thaw": CommandTarget(
                        "Enable the rebalances of a group again.",
                        f"{_PROPOSALS}.broker_side",
                    ),
                    "frozen": CommandTarget(
                        "Print the groups whose rebalancing is off, one per line.",
                        f"{_PROPOSALS}.broker_side",
                    ),
                },
            ),
            "multi-assignor": CommandFamily(
                "The design in which every member assigns.",
                {
                    "coordinator": CommandTarget(
                        "Run a coordinator that sends the metadata of all members to all members.",
                        f"{_PROPOSALS}.multi_assignor",
                    ),
                    "member": CommandTarget(
                        "Run a member that assigns its own part, and print its records.",
                        f"{_PROPOSALS}.multi_assignor",
                    ),
                },
            ),
            "single-assignor": CommandFamily(
                "The design in which one member assigns, within the join.",
                {
                    "coordinator": CommandTarget(
                        "Run a coordinator that sends the metadata of all members to one member, "
                        "which assigns.",
                        f"{_PROPOSALS}.single_assignor",
                    ),
                    "member": CommandTarget(
                        "Run a member that assigns if it is chosen, and print its records.",
                        f"{_PROPOSALS}.single_assignor",
                    ),
                },
            ),
        },
    ),
    "pipeline": CommandFamily(
        "Run complete jobs, most of them on Spark, with exactly-once results.",
        {
            "archive": CommandTarget(
                "Archive topics as Parquet files by topic and date, with exactly one row per "
                "record.",
                f"{_PIPELINES}.archive",
            ),
            "join": CommandTarget(
                "Join two topics by key and time into Parquet files, with one row per left record.",
                f"{_PIPELINES}.join",
            ),
            "index": CommandTarget(
                "Index topics for full-text search, as a member of a group that keeps replicas.",
                f"{_PIPELINES}.index",
            ),
            "rebalances": CommandTarget(
                "Report the cost of rebalances: causes, stopped partitions, moved partitions, "
                "and lag.",
                f"{_PIPELINES}.rebalances",
            ),
        },
    ),
}
