"""Rules that every world checks, from requests to the broker and from marks of processed records.

The rules have the usual names of anomalies (see `RULES`). Requests alone show commits beyond what
was fetched, and partitions with two owners. The other rules need to know which records a program
has processed: `RuleChecker.on_processed`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

from partage.broker.broker import Broker
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.lab.brokers.observed_response import ObservedResponse, observe_response
from partage.model.topic_partition import TopicPartition
from partage.testing.world.acknowledged_commits import AcknowledgedCommits, fetched_offsets
from partage.testing.world.brokers import WorldBrokers
from partage.testing.world.former_coordinators import FormerCoordinators
from partage.testing.world.torn_transactions import TornTransactions
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.consumer_protocol import decode_assignment
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import whole_batches

#: The rules by name, with what breaks them.
RULES: Final = {
    "commit_ahead": "an offset was committed before the records below it were processed",
    "two_owners": "two processes owned a partition of a group at the same time",
    "lost": "a record below the committed offset was never processed",
    "duplicate": "a record was processed again although its offset had been committed before",
    "reordered": "a record was first processed after a later record of its partition",
    "aborted_read": "a record of an aborted transaction was processed",
    "torn": "a transaction's results took effect without the offsets of their input, or vice versa",
    "commit_lost": "the coordinator does not know an offset whose commit it acknowledged",
    "two_coordinators": "a broker responded for a group that another broker had taken over",
}

_ALL_GROUPS: Final = ""  # of marks by code that is in no group
_JOINING: Final = frozenset({JOIN_GROUP.key, SYNC_GROUP.key, CONSUMER_GROUP_HEARTBEAT.key})
_Name = Callable[[bytes], str]


class RuleChecker:
    """Checks the rules of one world.

    Args:
        brokers: the brokers of the world.
        report: called with the name of a broken rule and a description.
        now_s: returns the time in seconds.
    """

    def __init__(
        self,
        brokers: WorldBrokers,
        report: Callable[[str, str], None],
        now_s: Callable[[], float],
    ) -> None:
        self._brokers = brokers
        self._report_any = report
        self._allowed: set[str] = set()
        self._groups: dict[str, dict[str, None]] = defaultdict(dict)  # by process
        #: The first and the last offset that a process requested, and the end of what it got.
        self._first: dict[tuple[str, TopicPartition], int] = {}
        self._asked: dict[tuple[str, TopicPartition], int] = {}
        self._position: dict[tuple[str, TopicPartition], int] = {}
        #: Offsets from which a process read again, and the committed offset at that time.
        self._rewinds: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        #: Processes that commit without membership, in the order of their turns.
        self._committers: dict[tuple[str, TopicPartition], list[str]] = defaultdict(list)
        self._marks: dict[TopicPartition, dict[int, set[str]]] = defaultdict(dict)
        self._topics: set[str] = set()  # with marks
        self._newest: dict[tuple[str, TopicPartition], int] = {}  # mark
        self._checked: dict[tuple[str, TopicPartition], int] = {}  # all below is processed
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._acknowledged = AcknowledgedCommits(now_s, brokers.offsets_retention_s)
        self._transactions = TornTransactions(
            lambda text: self._report("torn", text), brokers.committed_offset, _observe
        )
        self._former_coordinators = FormerCoordinators(
            brokers.registered_coordinator, lambda text: self._report("two_coordinators", text)
        )

    def allow(self, *names: str) -> None:
        """Do not check some rules.

        Raises:
            ValueError: there is no rule of that name.
        """
        for name in names:
            if name not in RULES:
                raise ValueError(f"there is no rule {name!r}; the rules are {', '.join(RULES)}")
            self._allowed.add(name)

    def _report(self, name: str, text: str) -> None:
        if name not in self._allowed:
            self._report_any(name, text)

    # Marks

    def on_processed(
        self, process: str, partition: TopicPartition, offset: int, group: str
    ) -> None:
        """Note that a record was processed.

        Args:
            process: the process that did it.
            partition: the partition of the record.
            offset: its offset.
            group: the group for which it was processed; "" for the only one of the process.
        """
        groups = self._groups.get(process, {})
        mine = group or (next(iter(groups)) if len(groups) == 1 else _ALL_GROUPS)
        if partition.topic not in self._topics:
            self._check_commits_so_far(partition.topic)
            self._topics.add(partition.topic)
        self._transactions.on_processed(process, mine, partition, offset)
        marks = self._marks[partition].setdefault(offset, set())
        where = f"offset {offset} of {_name(partition)}"
        if mine in marks:
            since, committed = self._rewinds.get((process, partition), (0, 0))
            if since <= offset < committed:
                self._report(
                    "duplicate",
                    f"{process} processed {where} again: it fetched from {since} when {committed} "
                    "was committed",
                )
            return
        marks.add(mine)
        newest = self._newest.get((mine, partition), -1)
        if offset < newest:
            self._report("reordered", f"{process} processed {where} after {newest}")
        self._newest[mine, partition] = max(newest, offset)

    def _is_marked(self, group: str, partition: TopicPartition, offset: int) -> bool:
        marks = self._marks[partition].get(offset, ())
        return group in marks or _ALL_GROUPS in marks

    # Requests

    def observe(self, broker: Broker) -> None:
        """Check the requests to a broker that has started."""
        name, is_one_of_several = broker.node.host, len(self._brokers.names) > 1

        def topic_name(topic_id: bytes) -> str:
            return broker.log_manager.topic_name(topic_id) or topic_id.hex()

        def wrap(handler: Handler) -> Handler:
            def handle(inbound: InboundRequest) -> None:
                key, process = inbound.api.key, inbound.client_host.removeprefix("/")
                self._acknowledged.on_request(key, inbound.message)
                self._transactions.on_request(process, inbound)
                if is_one_of_several:
                    self._former_coordinators.on_request(name, inbound)
                if key == FETCH.key:
                    self._on_fetch(process, inbound, topic_name)
                elif key == OFFSET_COMMIT.key:
                    self._on_commit(process, inbound, topic_name)
                elif key == OFFSET_FETCH.key:
                    self._on_offset_fetch(inbound, topic_name)
                elif key in _JOINING:
                    self._groups[process][inbound.message.group_id] = None
                    if key == SYNC_GROUP.key:
                        self._on_assignments(inbound.message)
                handler(inbound)

            return handle

        broker.server.intercept(wrap)

    def on_process_end(self, process: str) -> None:
        """Forget what a process knew that was killed, failed or ended."""
        self._groups.pop(process, None)
        self._transactions.on_process_end(process)
        for state in (self._first, self._asked, self._position, self._rewinds):
            for key in [key for key in state if key[0] == process]:
                del state[key]
        for turns in self._committers.values():
            turns[:] = [each for each in turns if each != process]

    def _on_fetch(self, process: str, inbound: InboundRequest, topic_name: _Name) -> None:
        for topic in inbound.message.topics:
            name = topic.topic or topic_name(topic.topic_id)
            for each in topic.partitions:
                key, offset = (process, TopicPartition(name, each.partition)), each.fetch_offset
                asked = self._asked.get(key)
                if asked is None or offset < asked:
                    self._first.setdefault(key, offset)
                    groups = self._groups.get(process, {})
                    committed = max(
                        (self._brokers.committed_offset(g, key[1]) for g in groups), default=0
                    )
                    if offset < committed:
                        self._rewinds[key] = offset, committed
                self._asked[key] = offset
                self._position[key] = max(self._position.get(key, 0), offset)

        def answered(response: ObservedResponse) -> None:
            if not response.has_records:
                return
            for topic in response.message.responses:
                name = topic.topic or topic_name(topic.topic_id)
                for each in topic.partitions:
                    headers = [h for _, h in whole_batches(b"".join(each.records or ()))]
                    if headers:
                        key = process, TopicPartition(name, each.partition_index)
                        end = headers[-1].last_offset + 1
                        self._position[key] = max(self._position.get(key, 0), end)

        observe_response(inbound, answered)

    def _on_commit(self, process: str, inbound: InboundRequest, topic_name: _Name) -> None:
        message = inbound.message
        group = message.group_id
        self._groups[process][group] = None
        broken: dict[TopicPartition, tuple[str, str]] = {}
        offsets: dict[TopicPartition, int] = {}
        for topic in message.topics:
            name = topic.name or topic_name(topic.topic_id)
            for each in topic.partitions:
                partition = TopicPartition(name, each.partition_index)
                offset = offsets[partition] = each.committed_offset
                self._acknowledged.on_commit(group, partition, offset)
                what = f"{process} committed {offset} of {_name(partition)} for group {group}"
                position = self._position.get((process, partition))
                if position is not None and self._is_ahead(process, group, partition, offset):
                    broken[partition] = "commit_ahead", f"{what}, but fetched only up to {position}"
                elif not message.member_id and self._takes_turns(process, group, partition):
                    other = self._committers[group, partition][-2]
                    broken[partition] = "two_owners", f"{what}, and {other} commits it, too"
                elif name in self._topics:
                    missing = self._unprocessed(process, group, partition, offset)
                    if missing:
                        broken[partition] = "commit_ahead", f"{what}, but not processed: {missing}"

        def answered(response: Any) -> None:
            for topic in response.topics:
                name = topic.name or topic_name(topic.topic_id)
                for each in topic.partitions:
                    partition = TopicPartition(name, each.partition_index)
                    if each.error_code:
                        continue
                    if partition in broken:
                        self._report(*broken[partition])
                    key = group, partition
                    self._committed[key] = offsets[partition]
                    self._acknowledged.on_acknowledged(group, partition, offsets[partition])
                    self._transactions.on_offset_committed(process, *key, offsets[partition])
                    self._checked.setdefault(key, self._first.get((process, partition), 0))

        _observe(inbound, answered)

    def _on_offset_fetch(self, inbound: InboundRequest, topic_name: _Name) -> None:
        request, until = inbound.message, self._acknowledged.count

        def answered(response: Any) -> None:
            for group, found in fetched_offsets(request, response, topic_name):
                for text in self._acknowledged.contradictions(group, found, until):
                    self._report("commit_lost", text)

        _observe(inbound, answered)

    def _takes_turns(self, process: str, group: str, partition: TopicPartition) -> bool:
        """Return True if two processes commit in turns that are no members of the group."""
        turns = self._committers[group, partition]
        if turns[-1:] == [process]:
            return False
        has_been = process in turns
        turns.append(process)
        return has_been

    def _is_ahead(self, process: str, group: str, partition: TopicPartition, offset: int) -> bool:
        """Return True if a process commits an offset that it has not reached by fetches.

        It may seek forward and commit before it fetches, if the group has processed the records
        between.
        """
        position = self._position[process, partition]
        if offset <= max(position, self._brokers.committed_offset(group, partition)):
            return False
        return partition.topic not in self._topics or bool(
            self._unprocessed(process, group, partition, offset)
        )

    def _unprocessed(self, process: str, group: str, partition: TopicPartition, end: int) -> str:
        """Return the offsets below ``end`` that a group has not processed, as text.

        The process counts from its first fetch, if it is the first one of the group that commits.
        """
        first = self._first.get((process, partition), end)
        at = self._checked.setdefault((group, partition), first)
        visible: set[int] | None = None
        missing = []
        while at < end:
            if not self._is_marked(group, partition, at):
                if visible is None:
                    visible = set(self._brokers.offsets(partition, only_visible=True))
                if at in visible:
                    missing.append(at)
            at += 1
            if not missing:
                self._checked[group, partition] = at
        return _ranges(missing)

    def _check_commits_so_far(self, topic: str) -> None:
        """Check the commits that precede the first mark of a topic."""
        for (group, partition), offset in self._committed.items():
            if partition.topic == topic and offset > self._checked[group, partition]:
                self._report(
                    "commit_ahead",
                    f"{offset} of {_name(partition)} was committed for group {group} before the "
                    "first record of the topic was processed",
                )

    def _on_assignments(self, message: Any) -> None:
        owners: dict[TopicPartition, str] = {}
        for each in message.assignments:
            for partition in _assigned(each.assignment):
                other = owners.setdefault(partition, each.member_id)
                if other != each.member_id:
                    self._report(
                        "two_owners",
                        f"generation {message.generation_id} of group {message.group_id} assigns "
                        f"{_name(partition)} to {other} and to {each.member_id}",
                    )

    # The end of a world

    def check_end(self) -> None:
        """Check which records were processed, when a world ends."""
        for group, partition in self._acknowledged.followed():
            found = [(partition, self._brokers.committed_offset(group, partition, missing=-1))]
            for text in self._acknowledged.contradictions(group, found, self._acknowledged.count):
                self._report("commit_lost", text)
        for partition, group in sorted({(p, g) for g, p in self._committed}):
            if partition.topic in self._topics:
                visible = self._brokers.offsets(partition, only_visible=True)
                committed = self._brokers.committed_offset(group, partition)
                missing = _ranges(
                    [
                        n
                        for n in visible
                        if n < committed and not self._is_marked(group, partition, n)
                    ]
                )
                if missing:
                    self._report(
                        "lost",
                        f"group {group} has committed {committed} of {_name(partition)}, but never "
                        f"processed: {missing}",
                    )
        for partition, marks in sorted(self._marks.items()):
            visible = self._brokers.offsets(partition, only_visible=True)
            stored = self._brokers.offsets(partition, only_visible=False)
            aborted = sorted(set(stored).difference(visible) & set(marks))
            if aborted:
                self._report(
                    "aborted_read",
                    f"records of {_name(partition)} were processed whose transaction was aborted: "
                    f"{_ranges(aborted)}; use isolation_level='read_committed'",
                )


def _observe(inbound: InboundRequest, answered: Callable[[Any], None]) -> None:
    """Call a function with the message of a response."""
    observe_response(inbound, lambda response: answered(response.message))


def _assigned(assignment: bytes) -> Iterator[TopicPartition]:
    try:
        topics = decode_assignment(assignment).assigned_partitions
    except MalformedError:
        return
    for topic in topics:
        for number in topic.partitions:
            yield TopicPartition(topic.topic, number)


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _ranges(offsets: list[int]) -> str:
    """Return offsets as text, such as ``3 to 5 (3 records)``."""
    if len(offsets) < 2:
        return "".join(map(str, offsets))
    return f"{offsets[0]} to {offsets[-1]} ({len(offsets)} records)"
