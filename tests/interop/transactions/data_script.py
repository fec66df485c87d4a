"""Runner of scenarios that also write records and offsets in transactions.

It has these requests in addition to those of `interop.transactions.script`:

====================================  =============================================================
``produce NAME p ... [seq=] [v=]``    Produce of one transactional batch to each of these
                                      partitions; ``records=`` is its size; ``plain`` sends a batch
                                      without transaction, ``anonymous`` no transactional id
``member M [group=] [instance=]``     JoinGroup and SyncGroup of the only member; with the instance
                                      of another member it replaces that one; a member that joins
                                      again begins the next generation
``consumer M [group=]``               ConsumerGroupHeartbeat of a new member
``store NAME OFFSET [p=] [member=]``  TxnOffsetCommit of partition 0 or another one, with the fields
                                      of a member, or with ``generation=``, ``id=``, ``instance=``
``keep OFFSET [p=] [member=]``        OffsetCommit of the same, outside transactions
``fetch [v=]``                        OffsetFetch of partitions 0 to 2, or of ``all`` topics;
                                      ``stable`` with require_stable
``forget``                            OffsetDelete of partition 0
``delete``                            DeleteGroups
====================================  =============================================================

Requests about a group have the option ``group=``. An UNSTABLE_OFFSET_COMMIT response is repeated,
too, unless the request has the flag ``once``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple, Self

from interop.oracle.actors import LONG_MS, Actor, Stage, error_name
from interop.oracle.connection import Connection
from interop.transactions.script import TransactionScript
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from partage.wire.records.encoder import SimpleRecord, encode_batch

_GROUP = "group"
_GROUPS_VERSION = 8  # of OffsetFetch, the first one with several groups
_PARTITIONS = [0, 1, 2]


class _Member(NamedTuple):
    """A member, as TxnOffsetCommit names it."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class DataScript(TransactionScript):
    """The run of one scenario, with groups.

    Args:
        bootstrap: the address of the broker.
        connection: a connection to it.
        topic: a topic with partitions 0 to 2.
        prefix: begins the transactional ids.
    """

    def __init__(self, bootstrap: str, connection: Connection, topic: str, prefix: str) -> None:
        super().__init__(connection, topic, prefix)
        self._bootstrap = bootstrap
        self._groups: dict[str, Stage] = {}
        self._actors: dict[str, Actor] = {}
        self._members: dict[str, _Member] = {}
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _group(self, options: dict[str, str]) -> Stage:
        name = options.get("group", _GROUP)
        if name not in self._groups:
            stage = Stage(self._bootstrap, self._topic)
            self._groups[name] = self._opened.enter_context(stage)
        return self._groups[name]

    def _group_id(self, options: dict[str, str]) -> str:
        return self._group(options).group if options.get("group", _GROUP) else ""

    def _produce(self, names: list[str], options: dict[str, str]) -> list[str]:
        transactional_id, producer_id, epoch = self._identity(names, options)
        count = int(options.get("records", "1"))
        batch = encode_batch(
            [SimpleRecord(None, b"record") for _ in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=int(options.get("seq", "0")),
            is_transactional="plain" not in names,
        )
        request = ProduceRequest(
            transactional_id=None if "anonymous" in names else transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                ProduceTopic(
                    name=self._topic,
                    partition_data=[
                        ProducePartition(index=int(word), records=[batch])
                        for word in names[1:]
                        if word.isdigit()
                    ],
                )
            ],
        )
        response = self._ask(PRODUCE, request, options, 12)
        results = [one for topic in response.responses for one in topic.partition_responses]
        return [
            " ".join(
                f"{one.index}:{error_name(one.error_code)}"
                + ("" if one.error_code else f" at {one.base_offset}")
                for one in sorted(results, key=lambda one: one.index)
            )
        ]

    def _member(self, names: list[str], options: dict[str, str]) -> list[str]:
        name = names[0]
        if name in self._actors:
            actor = self._actors[name]
            actor.joined(actor.ask_to_join())
        else:
            instance_id = options.get("instance")
            actor = self._group(options).actor(name, instance_id=instance_id)
            self._actors[name] = actor
            actor.join()
        synced = actor.begin_to_sync({actor.member_id: b""}).result()
        self._members[name] = _Member(actor.generation, actor.member_id, actor.instance_id)
        return [f"{error_name(synced.error_code)} generation {actor.generation}"]

    def _consumer(self, names: list[str], options: dict[str, str]) -> list[str]:
        name = names[0]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id(options),
            member_id=name,
            member_epoch=0,
            rebalance_timeout_ms=LONG_MS,
            subscribed_topic_names=[self._topic],
            topic_partitions=[],
        )
        response = self._ask(CONSUMER_GROUP_HEARTBEAT, request, options, 1)
        self._members[name] = _Member(response.member_epoch, name)
        return [f"{error_name(response.error_code)} epoch {response.member_epoch}"]

    def _store(self, names: list[str], options: dict[str, str]) -> list[str]:
        transactional_id, producer_id, epoch = self._identity(names, options)
        member = self._members[options["member"]] if "member" in options else _Member()
        position = TxnOffsetCommitPartition(
            partition_index=int(options.get("p", "0")),
            committed_offset=int(names[1]),
            committed_metadata="",
        )
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=self._group_id(options),
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=int(options.get("generation", member.generation)),
            member_id=options.get("id", member.member_id),
            group_instance_id=options.get("instance", member.instance_id),
            topics=[TxnOffsetCommitTopic(name=self._topic, partitions=[position])],
        )
        response = self._ask(TXN_OFFSET_COMMIT, request, options, 5)
        return [_format_partitions(response.topics)]

    def _keep(self, names: list[str], options: dict[str, str]) -> list[str]:
        stage = self._group(options)
        member = self._members[options["member"]] if "member" in options else _Member()
        response = stage.commit(
            stage.admin,
            offset=int(names[0]),
            generation=member.generation,
            member_id=member.member_id,
            instance_id=member.instance_id,
            partition=int(options.get("p", "0")),
        )
        return [_format_partitions(response.topics)]

    def _fetch(self, names: list[str], options: dict[str, str]) -> list[str]:
        version = int(options.get("v", "9"))
        topics = [OffsetFetchTopic(name=self._topic, partition_indexes=_PARTITIONS)]
        group = OffsetFetchGroup(
            group_id=self._group_id(options), topics=None if "all" in names else topics
        )
        is_old = version < _GROUPS_VERSION
        request = OffsetFetchRequest(
            group_id=group.group_id if is_old else "",
            topics=group.topics if is_old else [],
            groups=[] if is_old else [group],
            require_stable="stable" in names,
        )
        response = self._ask(OFFSET_FETCH, request, options, version)
        found: Any = response if is_old else response.groups[0]
        if found.error_code:
            return [error_name(found.error_code)]
        partitions = [one for topic in found.topics for one in topic.partitions]
        return [
            " ".join(
                f"{one.partition_index}:"
                f"{error_name(one.error_code) if one.error_code else one.committed_offset}"
                for one in sorted(partitions, key=lambda one: one.partition_index)
            )
            or "nothing"
        ]

    def _forget(self, names: list[str], options: dict[str, str]) -> list[str]:
        return [self._group(options).delete_offset()]

    def _delete(self, names: list[str], options: dict[str, str]) -> list[str]:
        return [self._group(options).delete()]


def _format_partitions(topics: Any) -> str:
    return " ".join(
        f"{one.partition_index}:{error_name(one.error_code)}"
        for topic in topics
        for one in topic.partitions
    )
