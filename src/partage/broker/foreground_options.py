"""The options of a broker in the foreground. This module imports no other part of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec


class SyncMode(StrEnum):
    """The point at which a write is acknowledged."""

    DISK = "disk"
    OS = "os"


class ForegroundOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a broker in the foreground; `OPTION_HELP` describes each."""

    listen: str = "127.0.0.1:9092"
    data_dir: Path = Path("partage-data")
    ephemeral: bool = False
    sync: SyncMode = SyncMode.DISK
    override: list[str] = []
    advertised: str | None = None
    broker_id: int | None = None
    state: str | None = None
    verbose: bool = False


#: The help text of each option, by the name of the field.
OPTION_HELP: Final[Mapping[str, str]] = {
    "listen": "Address to listen on; port 0 picks a free port.",
    "data_dir": "Directory for topics and groups.",
    "ephemeral": "Keep all data in memory, for tests.",
    "sync": "When a write is acknowledged: after fsync (disk), or when the operating system has it "
    "(os, Kafka's default).",
    "override": "Broker setting by its Kafka name, for example "
    "group.initial.rebalance.delay.ms=0; repeatable.",
    "advertised": "Address that clients connect to.",
    "broker_id": "Broker id, unique in the cluster; required with --state.",
    "state": "Join the cluster of brokers that keeps its state in this ZooKeeper.",
    "verbose": "Log at DEBUG level.",
}
