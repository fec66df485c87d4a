"""``recovery``: what is loaded is what was durable, and of what was in doubt a beginning.

The ledger keeps what was written and what is known durable, for the other checkers, and judges
each load: whatever was acknowledged is there, nothing else is, and records that nobody was told of
are there up to some point and not beyond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from partage.coordinator.records import GroupRemoved, GroupSaved, Record
from partage.lab.history import Died, Durable, History, Loaded, LogFailed, Violation, Written

_Pair = tuple[bytes, bytes | None]


class Ledger:
    """The records that were written, and those that are durable, as an outsider knows it."""

    def __init__(self, history: History) -> None:
        #: Each group's records in the order of their writing; None where it was removed.
        self.groups: dict[str, list[GroupSaved | None]] = defaultdict(list)
        self.durable_groups: dict[str, GroupSaved | None] = {}
        self._state: dict[bytes, bytes] = {}
        self._doubted: list[tuple[_Pair, Record]] = []
        self._limbo: list[tuple[_Pair, Record]] = []
        self._stored: list[Callable[[Record], None]] = []
        history.listen(Written, self._write)
        history.listen(Durable, self._confirm)
        history.listen(LogFailed, self._lose)
        history.listen(Died, self._lose)
        history.listen(Loaded, self._load)

    def when_stored(self, listener: Callable[[Record], None]) -> None:
        """Have ``listener`` called with each record once it is durable."""
        self._stored.append(listener)

    def latest(self, group_id: str) -> GroupSaved | None:
        """A group as it was last written."""
        written = self.groups.get(group_id)
        return written[-1] if written else None

    def since(self, group_id: str, mark: int) -> list[GroupSaved | None]:
        """What the group was at ``mark``, and what was written of it after."""
        return self.groups[group_id][max(0, mark - 1) :]

    def mark(self, group_id: str) -> int:
        """Now, for `since`."""
        return len(self.groups[group_id])

    def _write(self, entry: Written) -> None:
        if len(entry.records) != len(entry.pairs):
            raise Violation("recovery", "a record was written that cannot be read back")
        for record in entry.records:
            self._note_group(record)
        self._doubted += zip(entry.pairs, entry.records, strict=True)

    def _note_group(self, record: Record) -> None:
        if isinstance(record, GroupSaved):
            self.groups[record.group_id].append(record)
        elif isinstance(record, GroupRemoved):
            self.groups[record.group_id].append(None)

    def _confirm(self, entry: Durable) -> None:
        confirmed = self._doubted[: entry.count]
        del self._doubted[: entry.count]
        self._keep(confirmed)

    def _keep(self, confirmed: list[tuple[_Pair, Record]]) -> None:
        for (key, value), record in confirmed:
            if value is None:
                self._state.pop(key, None)
            else:
                self._state[key] = value
            if isinstance(record, GroupSaved):
                self.durable_groups[record.group_id] = record
            elif isinstance(record, GroupRemoved):
                self.durable_groups[record.group_id] = None
            for listener in self._stored:
                listener(record)

    def _lose(self, entry: LogFailed | Died) -> None:
        self._limbo += self._doubted
        self._doubted = []

    def _load(self, entry: Loaded) -> None:
        found = {key: value for key, value in entry.state.items() if value is not None}
        kept = self._survivors(found)
        limbo, self._limbo = self._limbo, []
        if kept is None:
            raise Violation("recovery", self._difference(found))
        self._keep(limbo[:kept])
        if kept < len(limbo):  # what was written of groups and is gone
            for group_id in list(self.groups):
                if self.latest(group_id) != self.durable_groups.get(group_id):
                    self.groups[group_id].append(self.durable_groups.get(group_id))

    def _survivors(self, found: dict[bytes, bytes]) -> int | None:
        """How many of the records in doubt are there; None if that cannot be."""
        state, fitting = dict(self._state), None
        for count in range(len(self._limbo) + 1):
            if state == found:
                fitting = count
            if count < len(self._limbo):
                (key, value), _ = self._limbo[count]
                if value is None:
                    state.pop(key, None)
                else:
                    state[key] = value
        return fitting

    def _difference(self, found: dict[bytes, bytes]) -> str:
        missing = [key for key in self._state if key not in found]
        strange = [key for key in found if key not in self._state]
        other = [key for key in found if self._state.get(key, found[key]) != found[key]]
        return (
            f"loaded is not what was durable: missing {missing[:3]}, "
            f"never durable {strange[:3]}, of another value {other[:3]}, "
            f"with {len(self._limbo)} records in doubt"
        )
