"""Benchmarks: each compares this project with a peer in the same run."""

#: The modules of the benchmarks, in the order in which they run.
BENCHMARKS = (
    "heartbeats",
    "groups",
    "consumer_groups",
    "topics",
    "commits",
    "costs",
    "cores",
    "transactions",
    "start",
    "startup",
    "records",
    "consume",
    "assignors",
    "coordinators",
    "rolling",
    "spark",
    "worlds",
)
