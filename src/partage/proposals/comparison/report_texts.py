"""The texts of a report: the phases, the columns of the tables, and what the sections have."""

from __future__ import annotations

from typing import Final

#: What happens in each phase.
PHASE_TEXTS: Final = {
    "form": "All members start at the same time.",
    "steady": "Nothing changes for 30 s, or over sockets for 10 heartbeat intervals.",
    "join": "Further members start (`joining`, 1).",
    "leave": "The first member that reads is closed.",
    "crash": (
        "Members that read are killed with their machines (`kills`, 1). Their connections stay "
        "open, so only the end of the session shows it."
    ),
    "pause": (
        "Members that read are stopped for twice their session timeout (`paused`, 1), then "
        "continue."
    ),
    "churn": (
        "Members are replaced (`churn`, 3), one every 2 s, or over sockets every 2 heartbeat "
        "intervals. A new member starts, and one that reads is closed."
    ),
    "slow": (
        "A member starts, while each message of another one takes longer (`slow_ms`, 1,000 ms in "
        "each direction) until the phase ends."
    ),
    "coordinator loss": (
        "The coordinator crashes. Another one loads its records 3 s later. The phase lasts at "
        "least one heartbeat interval longer, over sockets 2 s, so that members reach it."
    ),
    "new partitions": (
        "The first topic gets a tenth of all partitions, at least one. A member learns of them "
        "when it refreshes its metadata (every `metadata_refresh_ms`, 30 s). The coordinators "
        "of `broker-side` and `consumer-protocol` watch the topics."
    ),
}

#: The columns of the tables of measurements, with their meaning.
COLUMN_TEXTS: Final = {
    "stable after": (
        "Time from the start of the phase until the last partition got or lost a reader; “never” "
        "if the group did not become stable in time. It includes the wait for the end of a "
        "session or of a pause. Members learn of a rebalance with their heartbeats, except in "
        "`broker-side`, and the members of a group send them at nearly the same time. So each "
        "seed starts a phase at another part of the heartbeat interval. With one seed, a "
        "difference below one interval may be that of the wait for the heartbeats."
    ),
    "counted": (
        "Time in which the following three columns count: from the start of the phase until the "
        "group was stable for the last time. Stable means that each partition has one reader and "
        "no member has work to do. The cell then verifies that this stays so, for 15 s or over "
        "sockets for 3 heartbeat intervals. This time does not count."
    ),
    "messages": (
        "Requests and responses of the coordinator. They include the heartbeats or pings and the "
        "commits of the counted time; the phase “steady” shows how many these are."
    ),
    "bytes": "The size of these messages on the wire, with frames and headers.",
    "coordinator CPU": (
        "CPU time of the coordinator's state machine, without connections, encoding and storage. "
        "It depends on the machine that made this report."
    ),
    "partition-seconds unread": (
        "Time without a reader, summed over all partitions. It may include the same wait for "
        "heartbeats."
    ),
    "moved": "How often a partition got another reader than the one before.",
    "read again": (
        "Records that were read a second time. 100 records arrive in each partition each second, "
        "members read at once, and they commit every 5 s."
    ),
    "round trips": "The most requests that one member sent until its last assignment.",
}

ABOUT_CPU: Final = (
    "A CPU time does not include the time in which other programs had the CPU, but shared caches "
    "make it longer on a busy machine. This is the machine, with its load at the end of the run"
)

ABOUT_CLAIMS: Final = (
    "Each claim has a rule, which says when the figures reproduce or refute it. “Depends” means "
    "that it holds in a part of the measured cases. A verdict is about the implementations of this "
    "package in the measured worlds, and about no other workload."
)

ABOUT_PLOTS: Final = (
    "Each line is a design, with its own marker and dashes. A panel has one phase of the workload. "
    "A point is missing if the group did not become stable. Axes are logarithmic where the figures "
    "differ much."
)

ABOUT_SOCKETS: Final = (
    "These cells did not run in the simulator, but over real connections of this machine and in "
    "real time. The coordinator and all members share one process. Their intervals are short: the "
    "session timeout is 6 s, the heartbeat interval 0.5 s and the metadata refresh 2 s. The "
    "figures depend on the load of the machine, and each is that of one run."
)

ABOUT_FINDINGS: Final = (
    "Each finding has the smallest world that the search found: the steps of a seed, of which none "
    "can be left out. Where findings of a design share a rule and a fault, a world does not tell "
    "which of them it shows."
)
