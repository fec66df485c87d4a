"""Rule ``recovery``: a load restores all durable records and a prefix of the records in doubt.

In a cluster, the broker that loaded with the highest epoch owns the shard. Later records of other
brokers must not become durable or be acknowledged.

The ledger tracks appended and durable records for the other checkers, and checks each load. All
acknowledged records must be present. Unacknowledged records must be present up to some point and
absent after it. Other records must not exist.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from partage.coordinator.records import GroupRecord, GroupTombstone
from partage.lab.checkers.output_ledger import OutputLedger
from partage.lab.history import (
    BrokerDied,
    History,
    LogWriteFailed,
    RecordsAppended,
    RecordsDurable,
    RuleViolationError,
    ShardAcquired,
    ShardLoaded,
    ShardResigned,
)
from partage.lab.names import CONSUMER_GROUP
from partage.lab.offset_log import LogChange

_Written = tuple[tuple[bytes, bytes | None], LogChange]


class _ShardLedger:
    """The known state of one shard's log."""

    def __init__(self) -> None:
        self.owner: int | None = None
        self.is_unowned = False  # or acquired by another broker that has not loaded it
        self._epoch = 0
        self._taken = 0  # the highest epoch in which any broker acquired it
        self._state: dict[bytes, bytes] = {}
        self._unconfirmed: list[_Written] = []  # appended by the owner, without result
        # of former owners: True for each record that is durable
        self._decided: dict[int, deque[bool]] = defaultdict(deque)
        self._in_doubt: list[_Written] = []

    def write(self, broker: int, written: list[_Written]) -> bool:
        """Add appended records. Return True if they may become durable."""
        if self.owner is None:
            self.owner = broker
        if broker != self.owner:
            self._decided[broker].extend(False for _ in written)
            return False
        self._unconfirmed += written
        return True

    def confirm(self, broker: int, count: int) -> list[_Written]:
        """Confirm ``count`` records of a broker. Return those that were in doubt."""
        decided = self._decided[broker]
        while count and decided:
            count -= 1
            if not decided.popleft():
                problem = f"broker {broker} got a confirmation for records that are not durable"
                raise RuleViolationError("recovery", problem)
        confirmed, self._unconfirmed = self._unconfirmed[:count], self._unconfirmed[count:]
        self._apply(self._state, confirmed)
        return confirmed

    def lose(self, broker: int) -> None:
        """Handle the failure of a broker, after which it cannot learn the result of its appends."""
        self._decided.pop(broker, None)
        if broker == self.owner:
            self._in_doubt += self._unconfirmed
            self._unconfirmed = []

    def take(self, broker: int, epoch: int) -> None:
        """Handle an acquisition: no other broker may act for the shard from now on."""
        if self.is_stale_epoch(broker, epoch):
            return
        self._taken = max(self._taken, epoch)
        if self.owner != broker:
            self.is_unowned = True

    def is_stale_epoch(self, broker: int, epoch: int) -> bool:
        """Return True if another broker loaded with a higher epoch, unknown to this broker."""
        if epoch == self._epoch and self.owner not in (None, broker):
            problem = f"brokers {self.owner} and {broker} both own the shard in epoch {epoch}"
            raise RuleViolationError("recovery", problem)
        return epoch < self._epoch

    def load(
        self, broker: int, epoch: int, found: dict[bytes, bytes]
    ) -> tuple[list[_Written], int]:
        """Handle a load by a broker that owns the shard from now on.

        Returns:
            The records that were in doubt, and how many of them are present.
        """
        self._epoch, self.is_unowned = epoch, epoch < self._taken
        known = len(self._in_doubt)
        limbo = (
            self._in_doubt + self._unconfirmed
        )  # of an owner that does not know yet that it lost the shard
        kept = self._survivors(limbo, found)
        if self._unconfirmed and self.owner is not None:
            self._decided[self.owner].extend(at < kept for at in range(known, len(limbo)))
        self._in_doubt, self._unconfirmed, self.owner = [], [], broker
        self._apply(self._state, limbo[:kept])
        return limbo, kept

    def _survivors(self, limbo: list[_Written], found: dict[bytes, bytes]) -> int:
        """Return how many of the records in doubt are present."""
        state, fitting = dict(self._state), None
        for count in range(len(limbo) + 1):
            if state == found:
                fitting = count
            self._apply(state, limbo[count : count + 1])
        if fitting is None:
            raise RuleViolationError("recovery", self._difference(found, len(limbo)))
        return fitting

    @staticmethod
    def _apply(state: dict[bytes, bytes], written: list[_Written]) -> None:
        for (key, value), _ in written:
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value

    def _difference(self, found: dict[bytes, bytes], doubts: int) -> str:
        missing = [key for key in self._state if key not in found]
        unknown = [key for key in found if key not in self._state]
        other = [key for key in found if self._state.get(key, found[key]) != found[key]]
        return (
            f"the loaded state is not the durable state: missing {missing[:3]}, "
            f"never durable {unknown[:3]}, with another value {other[:3]}, "
            f"with {doubts} records in doubt"
        )


class Ledger:
    """The appended and the durable records, as an outside observer knows them."""

    def __init__(self, history: History) -> None:
        #: The logs of transactional producers.
        self.outputs = OutputLedger(history)
        #: Each group's records in append order; None for a removal.
        self.groups: dict[str, list[GroupRecord | None]] = defaultdict(list)
        self.durable_groups: dict[str, GroupRecord | None] = {}
        self._lost_versions: dict[str, list[GroupRecord]] = defaultdict(list)
        self._logs: dict[int, _ShardLedger] = defaultdict(_ShardLedger)
        self._shards: dict[str, int] = {}  # the shard of each known group
        # when the group with members of both protocols last began or ceased to be a classic group
        self._type_changed_ms = 0
        self._written: list[Callable[[RecordsAppended], None]] = []
        self._stored: list[Callable[[LogChange], None]] = []
        self._assigned: list[Callable[[GroupRecord], None]] = []
        self._stored_pairs: list[Callable[[tuple[bytes, bytes | None]], None]] = []
        self._lost: list[Callable[[LogChange], None]] = []
        history.subscribe(RecordsAppended, self._write)
        history.subscribe(RecordsDurable, self._confirm)
        history.subscribe(LogWriteFailed, self._lose)
        history.subscribe(ShardResigned, self._resign)
        history.subscribe(ShardAcquired, self._take)
        history.subscribe(BrokerDied, self._die)
        history.subscribe(ShardLoaded, self._load)

    def on_appended(self, listener: Callable[[RecordsAppended], None]) -> None:
        """Call ``listener`` with each append that may become durable."""
        self._written.append(listener)

    def on_durable(self, listener: Callable[[LogChange], None]) -> None:
        """Call ``listener`` with each record once it is durable."""
        self._stored.append(listener)

    def on_durable_pair(self, listener: Callable[[tuple[bytes, bytes | None]], None]) -> None:
        """Call ``listener`` with the encoded key and value of each record once it is durable."""
        self._stored_pairs.append(listener)

    def on_assigned(self, listener: Callable[[GroupRecord], None]) -> None:
        """Call ``listener`` with a group once a new generation's assignment is durable.

        It is not called when the same assignment is stored again for a returning static member.
        """
        self._assigned.append(listener)

    def on_lost(self, listener: Callable[[LogChange], None]) -> None:
        """Call ``listener`` with each record that was appended but lost."""
        self._lost.append(listener)

    def shard_of(self, group_id: str) -> int:
        """Return the shard of a group; -1 if no record of it was appended."""
        return self._shards.get(group_id, -1)

    def may_own(self, broker: int, group_id: str) -> bool:
        """Return True if a broker may own a group.

        It may if it loaded the group last, has not dropped it, and no other broker acquired it.
        """
        log = self._logs[self.shard_of(group_id)]
        return log.owner is None or (log.owner == broker and not log.is_unowned)

    def is_classic_since(self, group_id: str, at_ms: int) -> bool:
        """Return True if a group has been a classic group since a time, without a change of type.

        All groups but `CONSUMER_GROUP` always are.
        """
        if group_id != CONSUMER_GROUP:
            return True
        return self.latest(group_id) is not None and self._type_changed_ms < at_ms

    def latest(self, group_id: str) -> GroupRecord | None:
        """Return the last appended version of a group."""
        written = self.groups.get(group_id)
        return written[-1] if written else None

    def versions_since(self, group_id: str, mark: int) -> list[GroupRecord | None]:
        """Return the version of a group at ``mark`` and all later ones; None means that it did not
        exist.
        """
        written = self.groups[group_id]
        return written[mark - 1 :] if mark else [None, *written]

    def version_count(self, group_id: str) -> int:
        """Return the number of versions of a group, for `versions_since`."""
        return len(self.groups[group_id])

    def last_existing(self, group_id: str, later: int) -> GroupRecord | None:
        """Return the last version of a group before it was removed, without versions that were
        appended but lost.

        Args:
            group_id: The group.
            later: Number of versions at the end that do not count.
        """
        versions = self.groups[group_id]
        lost = self._lost_versions[group_id]
        for version in reversed(versions[: len(versions) - later]):
            if version is not None and not any(version is each for each in lost):
                return version
        return None

    def _write(self, entry: RecordsAppended) -> None:
        if len(entry.records) != len(entry.pairs):
            raise RuleViolationError("recovery", "a record was appended that cannot be decoded")
        written = list(zip(entry.pairs, entry.records, strict=True))
        if self._logs[entry.shard].write(entry.broker, written):
            for record in entry.records:
                self._shards[record.group_id] = entry.shard
                self._note_group(record, entry.at_ms)
            for listener in self._written:
                listener(entry)

    def _note_group(self, record: LogChange, at_ms: int) -> None:
        if isinstance(record, GroupRecord):
            self._append_version(record.group_id, record, at_ms)
        elif isinstance(record, GroupTombstone):
            self._append_version(record.group_id, None, at_ms)

    def _append_version(self, group_id: str, version: GroupRecord | None, at_ms: int) -> None:
        if group_id == CONSUMER_GROUP and (self.latest(group_id) is None) != (version is None):
            self._type_changed_ms = at_ms
        self.groups[group_id].append(version)

    def _confirm(self, entry: RecordsDurable) -> None:
        self._apply_durable(self._logs[entry.shard].confirm(entry.broker, entry.count))

    def _apply_durable(self, confirmed: list[_Written]) -> None:
        for pair, record in confirmed:
            for pair_listener in self._stored_pairs:
                pair_listener(pair)
            before = self.durable_groups.get(record.group_id)
            if isinstance(record, GroupRecord):
                self.durable_groups[record.group_id] = record
            elif isinstance(record, GroupTombstone):
                self.durable_groups[record.group_id] = None
            for listener in self._stored:
                listener(record)
            was_awaited = before is not None and before.awaiting_sync
            if was_awaited and isinstance(record, GroupRecord) and not record.awaiting_sync:
                for assigned in self._assigned if record.members else ():
                    assigned(record)

    def _lose(self, entry: LogWriteFailed | ShardResigned) -> None:
        self._logs[entry.shard].lose(entry.broker)

    def _resign(self, entry: ShardResigned) -> None:
        self._lose(entry)
        log = self._logs[entry.shard]
        log.is_unowned = log.is_unowned or log.owner == entry.broker

    def _take(self, entry: ShardAcquired) -> None:
        self._logs[entry.shard].take(entry.broker, entry.epoch)

    def _die(self, entry: BrokerDied) -> None:
        for log in self._logs.values():
            log.lose(entry.broker)

    def _load(self, entry: ShardLoaded) -> None:
        found = {key: value for key, value in entry.state.items() if value is not None}
        log = self._logs[entry.shard]
        if log.is_stale_epoch(entry.broker, entry.epoch):
            return
        limbo, kept = log.load(entry.broker, entry.epoch, found)
        self._apply_durable(limbo[:kept])
        lost = [record for _, record in limbo[kept:]]
        for record in lost:
            if isinstance(record, GroupRecord):
                self._lost_versions[record.group_id].append(record)
            for listener in self._lost:
                listener(record)
        for group_id in {
            r.group_id: None for r in lost if isinstance(r, GroupRecord | GroupTombstone)
        }:
            if self.latest(group_id) != self.durable_groups.get(group_id):
                durable = self.durable_groups.get(group_id)
                self._append_version(group_id, durable, entry.at_ms)
