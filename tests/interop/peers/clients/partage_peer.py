"""Partage's consumer as a peer. It has no producer; other kinds produce for it."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from importlib.metadata import version

from peer import (
    Uncommitted,
    emit,
    emit_committed,
    emit_partitions,
    enough,
    main,
)

from partage.assignors import Assignor, CooperativeSticky
from partage.client import TopicPartition
from partage.client.consumer import CommitFailedError, RebalanceListener
from partage.sync import Consumer, ConsumerConfig


def assignor(text: str) -> str | Assignor:
    """Return an assignor by name, or for ``NAME@1+0`` a custom one with these versions."""
    own_name, is_own, own_versions = text.partition("@")
    if not is_own:
        return text

    class Own(CooperativeSticky):
        name = own_name
        versions = tuple(map(int, own_versions.split("+")))

    return Own()


def group_options(options: argparse.Namespace) -> ConsumerConfig:
    """Return the options of the group protocol."""
    if options.group_protocol == "consumer":
        return {"group_protocol": "consumer", "group_remote_assignor": options.assignor}
    return {
        "session_timeout_ms": options.session_timeout_ms,
        "heartbeat_interval_ms": options.heartbeat_interval_ms,
        "partition_assignment_strategy": [*map(assignor, options.assignor.split(","))],
    }


class Member(RebalanceListener):
    """A consumer and its uncommitted offsets."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.uncommitted = Uncommitted()
        self.consumer = Consumer(
            options.bootstrap,
            group_id=options.group,
            client_id=options.client_id,
            group_instance_id=options.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **group_options(options),
        )

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        emit_partitions("assigned", partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.commit(is_last=True)
        self.uncommitted.drop(partitions)
        emit_partitions("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.uncommitted.drop(partitions)
        emit_partitions("lost", partitions)

    def commit(self, *, is_last: bool = False) -> None:
        """Commit the printed records; if a rebalance prevents it, keep the offsets for later."""
        offsets = self.uncommitted.take()
        if not offsets:
            return
        try:
            self.consumer.commit(offsets)
        except CommitFailedError as error:
            if is_last:
                emit("error", message=f"commit: {error}")
            self.uncommitted.put_back(offsets)
        else:
            emit_committed(offsets)

    def run(self) -> None:
        self.consumer.subscribe(self.options.topic.split(","), self)
        emit("ready", version=version("partage"))
        seen = 0
        while not self.consumer.is_drained:
            if enough(self.options, seen):
                if not self.options.drains:
                    break
                self.consumer.drain()
            left = self.options.max - seen if self.options.max else self.options.commit_every
            polled = self.consumer.poll(200, min(left, self.options.commit_every))
            for record in polled:
                seen += 1
                where = {"partition": record.partition, "offset": record.offset}
                key = record.key.decode() if record.key is not None else None
                emit("record", topic=record.topic, key=key, **where)
                self.uncommitted.note(record.topic, record.partition, record.offset)
            self.commit()
        self.consumer.close()


def consume(options: argparse.Namespace) -> None:
    """Join the group and commit the printed records."""
    Member(options).run()


def produce(options: argparse.Namespace) -> None:
    """Exit with an error: Partage has no producer."""
    raise SystemExit("Partage has no producer; use another kind of peer")


if __name__ == "__main__":
    main(__doc__, consume, produce)
