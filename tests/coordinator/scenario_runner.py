"""Runner of scenarios in text files: commands, and their results.

A scenario is a file of blocks. A block consists of one or more commands, a line ``----``, the
results, and an empty line. Lines that begin with ``#`` before the commands are comments. The format
follows the interaction tests of etcd's raft. ``pytest --rewrite-scenarios`` writes the actual
results into the files, to be reviewed as a diff.

Clients have names, and remember their last reply: their member id, their generation, and, if they
lead, its members. The id that a client's n-th JoinGroup offers for a new member is its name with
``-n``. Requests go to group ``g`` unless ``group=`` names another one.

=====================================  =============================================================
``settings name=value ...``            broker settings; must come first
``client NAME ... option=value``       the join options of these clients
``join NAME ... [options]``            JoinGroup; options: ``protocols=range,sticky``,
                                       ``metadata=t,u`` (the topics), ``type=``, ``instance=``,
                                       ``session=``, ``rebalance=`` (ms), ``id=``, ``reason=``,
                                       ``version=1,0`` (of the protocols),
                                       ``must-rejoin`` (v4 on), ``old-leader`` (before v9)
``sync NAME ... [options]``            SyncGroup; ``assign=a:0,1;b:2`` of a leader, which otherwise
                                       gives each member one partition; ``error=``, ``id=``,
                                       ``generation=``, ``protocol=``, ``type=``
``heartbeat NAME ... [options]``       ``id=``, ``generation=``, ``instance=``
``leave NAME ... [options]``           one LeaveGroup for all of them; ``id=``, ``instance=``
``remove INSTANCE ...``                LeaveGroup by an administrator
``commit NAME t-0=5 ... [options]``    OffsetCommit; ``metadata=``, ``retention=``, ``before-v9``,
                                       ``simple`` (from outside the group's protocol)
``txn-commit NAME t-0=5 ... [opts]``   TxnOffsetCommit; ``producer=1``, otherwise as ``commit``
``complete-txn [aborts]``              the transaction of ``producer=1`` commits, or aborts
``fetch [t-0 ...] [only-stable]``      OffsetFetch of these partitions, or all; only stable offsets
``describe`` / ``list`` / ``delete``   DescribeGroups, ListGroups, DeleteGroups
``delete-offsets t-0 ...``             OffsetDelete
``topics-deleted t ...``               topics were deleted
``gather NAME ...``                    these clients join a new group until its sync
``form NAME ...``                      the same until it is stable; the result is its record
``tick MS``                            the time advances
``timers``                             the armed timers
``log hold | release [n] | fail``      records stay in doubt; become durable; are rejected
``crash [keep=n] [loading] [...]``     the coordinator crashes and is loaded again, with other
                                       settings if given; ``keep=n`` records in doubt survive
``load``                               after ``log fail`` and ``crash loading``
=====================================  =============================================================
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partage.coordinator.events import (
    Commit,
    CompleteTransaction,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
    Sync,
    TopicsDeleted,
    TransactionalCommit,
)
from partage.coordinator.replies import JoinReply
from partage.coordinator.states import GroupState
from partage.model.settings import GroupSettings

from .checker import Checker
from .clients import Client, CommandLine, parse_protocols, partition
from .format import format_entry, format_record, format_timers
from .harness import Harness
from .trace import ReplyLost, ReplySent, Request, RequestReceived

SESSION_MS = 10_000
REBALANCE_MS = 30_000
ADMIN = "admin"
#: The options of a commit that are no partitions.
COMMIT_OPTIONS = {"group", "metadata", "retention", "generation", "id", "instance", "producer"}


class ScenarioRunner:
    """The run of one scenario."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], Client] = {}
        self._askers: dict[object, str] = {}
        self._lines: list[str] = []
        self._commands: dict[str, Callable[[CommandLine], None]] = {
            "settings": self._settings,
            "client": self._client_joins_so,
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "remove": self._remove,
            "commit": self._commit,
            "txn-commit": self._commit_in_transaction,
            "complete-txn": self._complete_transaction,
            "fetch": self._fetch,
            "describe": self._describe,
            "list": self._list,
            "delete": self._delete,
            "delete-offsets": self._delete_offsets,
            "topics-deleted": self._topics_deleted,
            "gather": self._gather,
            "form": self._form,
            "tick": self._tick,
            "timers": self._timers,
            "log": self._log,
            "crash": self._crash,
            "load": self._load,
        }
        self._begin(GroupSettings())

    def _begin(self, settings: GroupSettings) -> None:
        self.harness = Harness(settings)
        self.checker = Checker(settings.members_max)

    def run(self, line: str) -> list[str]:
        """Run a command and return the lines of all entries that follow."""
        words = CommandLine(line)
        self._commands[words.verb](words)
        self._hear()
        lines, self._lines = self._lines, []
        return lines

    def finish(self) -> None:
        """Release the log, and check that only parked requests have no reply."""
        if not self.harness.is_loaded:
            self.harness.load()
        self.harness.release()
        self._hear()
        assert self.harness.owed.keys() == self.harness.parked()

    def _ask(self, name: str, event: Request) -> None:
        self._askers[event.reply_to] = name
        self.harness.handle(event)
        self._hear()

    def _hear(self) -> None:
        """Pass new entries to the clients and the checker, and format them."""
        trace = self.harness.trace
        self.checker.feed(trace)
        for entry in trace:
            asker = ""
            if isinstance(entry, RequestReceived | ReplySent | ReplyLost):
                asker = self._askers[entry.asked.reply_to]
            if isinstance(entry, ReplySent) and isinstance(entry.reply, JoinReply):
                assert isinstance(entry.asked, Join)
                self._client(asker, entry.asked.group_id).on_reply(entry.reply)
            self._lines += format_entry(entry, asker)
        trace.clear()

    def _client(self, name: str, group_id: str) -> Client:
        return self._clients.setdefault((name, group_id), Client(name))

    def _named(self, words: CommandLine) -> list[Client]:
        return [self._client(name, words.group_id) for name in words.names]

    def _generation(self, words: CommandLine, client: Client) -> int:
        return int(words.options.get("generation", client.generation))

    # Members' requests.

    def _settings(self, words: CommandLine) -> None:
        self._begin(self._changed(GroupSettings(), words))

    def _changed(self, settings: GroupSettings, words: CommandLine) -> GroupSettings:
        values = {name: int(value) for name, value in words.options.items()}
        return msgspec.structs.replace(settings, **values)

    def _client_joins_so(self, words: CommandLine) -> None:
        for client in self._named(words):
            client.options |= words.options
            client.flags |= words.flags

    def _join(self, words: CommandLine) -> None:
        for client in self._named(words):
            self._join_one(words, client)

    def _join_one(self, words: CommandLine, client: Client) -> None:
        options = client.options | words.options
        flags = client.flags | words.flags
        metadata = options.get("metadata", "t").encode()
        names = options.get("protocols", "range")
        self._ask(
            client.name,
            Join(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=words.group_id,
                member_id=options.get("id", client.member_id),
                generated_member_id=client.next_member_id(),
                instance_id=options.get("instance"),
                client_id=client.name,
                client_host="/127.0.0.1",
                session_timeout_ms=int(options.get("session", SESSION_MS)),
                rebalance_timeout_ms=int(options.get("rebalance", REBALANCE_MS)),
                protocol_type=options.get("type", "consumer"),
                protocols=parse_protocols(names, metadata, options.get("version", "-1")),
                reason=options.get("reason"),
                must_rejoin_with_id="must-rejoin" in flags,
                may_skip_assignment="old-leader" not in flags,
            ),
        )

    def _sync(self, words: CommandLine) -> None:
        for client in self._named(words):
            self._ask(
                client.name,
                Sync(
                    at_ms=self.harness.now_ms,
                    reply_to=self.harness.ticket(),
                    group_id=words.group_id,
                    generation=self._generation(words, client),
                    member_id=words.options.get("id", client.member_id),
                    instance_id=words.options.get("instance", client.options.get("instance")),
                    protocol_type=words.options.get("type"),
                    protocol=words.options.get("protocol"),
                    assignments=self._assignments(words, client),
                    assignment_error=words.options.get("error"),
                ),
            )

    def _assignments(self, words: CommandLine, client: Client) -> dict[str, bytes]:
        text = words.options.get("assign")
        if text is None:
            return {member: str(n).encode() for n, member in enumerate(client.members)}
        parts = dict(part.split(":") for part in text.split(";") if part)
        return {
            self._client(name, words.group_id).member_id or name: share.encode()
            for name, share in parts.items()
        }

    def _heartbeat(self, words: CommandLine) -> None:
        for client in self._named(words):
            self._ask(
                client.name,
                Heartbeat(
                    at_ms=self.harness.now_ms,
                    reply_to=self.harness.ticket(),
                    group_id=words.group_id,
                    generation=self._generation(words, client),
                    member_id=words.options.get("id", client.member_id),
                    instance_id=words.options.get("instance", client.options.get("instance")),
                ),
            )

    def _leave(self, words: CommandLine) -> None:
        leavers = [
            LeavingMember(
                member_id=words.options.get("id", client.member_id),
                instance_id=words.options.get("instance", client.options.get("instance")),
                reason=words.options.get("reason"),
            )
            for client in self._named(words)
        ]
        self._let_go(words.names[0], words, leavers)
        for client in self._named(words):
            client.member_id = ""

    def _remove(self, words: CommandLine) -> None:
        leavers = [LeavingMember(member_id="", instance_id=instance) for instance in words.names]
        self._let_go(ADMIN, words, leavers)

    def _let_go(self, name: str, words: CommandLine, leavers: list[LeavingMember]) -> None:
        event = Leave(
            at_ms=self.harness.now_ms,
            reply_to=self.harness.ticket(),
            group_id=words.group_id,
            members=tuple(leavers),
        )
        self._ask(name, event)

    # Offsets.

    def _commit(self, words: CommandLine) -> None:
        name = words.names[0]
        client = self._client(name, words.group_id)
        is_simple = "simple" in words.flags
        retention = words.options.get("retention")
        self._ask(
            name,
            Commit(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=words.group_id,
                generation=-1 if is_simple else self._generation(words, client),
                member_id="" if is_simple else words.options.get("id", client.member_id),
                instance_id=words.options.get("instance", client.options.get("instance")),
                offsets=_offsets(words),
                retention_ms=None if retention is None else int(retention),
                knows_group_not_found="before-v9" not in words.flags,
            ),
        )

    def _commit_in_transaction(self, words: CommandLine) -> None:
        name = words.names[0]
        client = self._client(name, words.group_id)
        is_simple = "simple" in words.flags
        self._ask(
            name,
            TransactionalCommit(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=words.group_id,
                producer_id=int(words.options.get("producer", "1")),
                producer_epoch=0,
                generation=-1 if is_simple else self._generation(words, client),
                member_id="" if is_simple else words.options.get("id", client.member_id),
                instance_id=words.options.get("instance", client.options.get("instance")),
                offsets=_offsets(words),
            ),
        )

    def _complete_transaction(self, words: CommandLine) -> None:
        self._ask(
            ADMIN,
            CompleteTransaction(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                producer_id=int(words.options.get("producer", "1")),
                producer_epoch=0,
                coordinator_epoch=0,
                is_commit="aborts" not in words.flags,
            ),
        )

    def _fetch(self, words: CommandLine) -> None:
        partitions = tuple(partition(name) for name in words.names) or None
        self._ask(
            ADMIN,
            FetchOffsets(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=words.group_id,
                partitions=partitions,
                requires_stable="only-stable" in words.flags,
            ),
        )

    def _delete_offsets(self, words: CommandLine) -> None:
        self._ask(
            ADMIN,
            DeleteOffsets(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=words.group_id,
                partitions=tuple(partition(name) for name in words.names),
            ),
        )

    def _topics_deleted(self, words: CommandLine) -> None:
        topics = frozenset(words.names)
        self.harness.handle(TopicsDeleted(at_ms=self.harness.now_ms, topics=topics))

    # Administrators' requests.

    def _describe(self, words: CommandLine) -> None:
        self._ask(
            ADMIN,
            DescribeGroup(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=words.group_id,
                knows_group_not_found="before-v6" not in words.flags,
            ),
        )

    def _list(self, words: CommandLine) -> None:
        self._ask(
            ADMIN,
            ListGroups(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                states=frozenset(words.names),
                types=frozenset(filter(None, words.options.get("types", "").split(","))),
            ),
        )

    def _delete(self, words: CommandLine) -> None:
        self._ask(
            ADMIN,
            DeleteGroup(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=words.group_id,
            ),
        )

    # Environment.

    def _gather(self, words: CommandLine) -> None:
        self._join(words)
        group = self.harness.shard.groups[words.group_id]
        while group.state is GroupState.PREPARING_REBALANCE:
            self.harness.tick(self.harness.settings.initial_rebalance_delay_ms)
        self._hear()
        self._lines = [format_record(group.record)]

    def _form(self, words: CommandLine) -> None:
        self._gather(words)
        self._sync(words)
        self._lines = [format_record(self.harness.shard.groups[words.group_id].record)]

    def _tick(self, words: CommandLine) -> None:
        self.harness.tick(int(words.names[0]))

    def _timers(self, words: CommandLine) -> None:
        self._lines += format_timers(self.harness.driver.timers.armed, self.harness.now_ms)

    def _log(self, words: CommandLine) -> None:
        what, *count = words.names
        match what:
            case "hold":
                self.harness.hold()
            case "release":
                self.harness.release(int(count[0]) if count else None)
            case "fail":
                self.harness.fail()

    def _crash(self, words: CommandLine) -> None:
        self.harness.crash(int(words.options.pop("keep", 0)))
        settings = self.harness.settings = self._changed(self.harness.settings, words)
        self.checker.members_max = settings.members_max
        if "loading" not in words.flags:
            self.harness.load()

    def _load(self, words: CommandLine) -> None:
        self.harness.load()


def _offsets(words: CommandLine) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(
            topic=partition(where)[0],
            partition=partition(where)[1],
            offset=int(offset),
            metadata=words.options.get("metadata", ""),
        )
        for where, offset in words.options.items()
        if where not in COMMIT_OPTIONS
    )
