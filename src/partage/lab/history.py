"""What happened in a world, as an outsider could have seen it: the wire, the disk, the deliveries.

Checkers judge by it alone, and the story of a failure is told from it. Messages are as their bytes
say, decoded from the frames that went over the simulated wire, and records as they were written.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from partage.coordinator.records import Record
from partage.wire.types import Message

Partition = tuple[str, int]

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a view of record batches


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something that happened at ``at_ms``."""

    at_ms: int


class Asked(Entry, frozen=True, gc=False, kw_only=True):
    """A request was read by a broker, which its bytes had reached at ``arrived_ms``."""

    arrived_ms: int
    broker: int = 1
    is_loaded: bool  # whether the broker has loaded the group, by what it has read of its store
    serial: int
    connection: int
    client: str
    api_key: int
    version: int
    message: Message


class Answered(Entry, frozen=True, gc=False, kw_only=True):
    """The response left the broker; whether it arrived is another matter."""

    asked: Asked
    message: Message


class Written(Entry, frozen=True, gc=False, kw_only=True):
    """Records were handed to the coordinator's log; whose keys and values they are."""

    broker: int = 1
    shard: int = 0
    records: tuple[Record, ...]
    pairs: tuple[tuple[bytes, bytes | None], ...]


class Durable(Entry, frozen=True, gc=False, kw_only=True):
    """The first ``count`` of a broker's records in doubt are durable."""

    broker: int = 1
    shard: int = 0
    count: int


class LogFailed(Entry, frozen=True, gc=False, kw_only=True):
    """Writing the coordinator's log failed; what was in doubt stays so until it is loaded."""

    broker: int = 1
    shard: int = 0


class Resigned(Entry, frozen=True, gc=False, kw_only=True):
    """A broker has dropped a shard's groups: they are another's, or may be."""

    broker: int
    shard: int


class Taken(Entry, frozen=True, gc=False, kw_only=True):
    """A broker has taken a shard over in this epoch, and is going to load it."""

    broker: int
    shard: int
    epoch: int


class Died(Entry, frozen=True, gc=False, kw_only=True):
    """A broker is gone."""

    broker: int = 1
    how: str


class Loaded(Entry, frozen=True, gc=False, kw_only=True):
    """A broker has loaded a shard; ``state`` is the last value of each key in its store.

    ``epoch`` goes up whenever a broker takes the shard over: it may be another's by now.
    """

    broker: int = 1
    shard: int = 0
    epoch: int = 0
    state: dict[bytes, bytes | None]


class TopicGone(Entry, frozen=True, gc=False, kw_only=True):
    """A topic is deleted, and made anew at once."""

    topic: str


class TopicForgotten(Entry, frozen=True, gc=False, kw_only=True):
    """A broker's shards have been told that a topic is gone."""

    broker: int
    topic: str


class Reread(Entry, frozen=True, gc=False, kw_only=True):
    """All records of a partition, as they lie there in the end: offsets and values, in order.

    ``first`` is where it begins, ``end`` where it ends.
    """

    partition: Partition
    first: int
    end: int
    records: tuple[tuple[int, bytes], ...]


class StoodStill(Entry, frozen=True, gc=False, kw_only=True):
    """A broker goes on that has stood still since then; all processes, where none is named."""

    broker: int | None = None
    since_ms: int


class Holds(Entry, frozen=True, gc=False, kw_only=True):
    """A consumer process holds these partitions from now on, as far as it knows."""

    process: str
    group_id: str
    member_id: str
    generation: int
    partitions: tuple[Partition, ...]


class Told(Entry, frozen=True, gc=False, kw_only=True):
    """A consumer's listener is due a call: assigned, revoked or lost."""

    process: str
    call: str
    partitions: tuple[Partition, ...]


class Delivered(Entry, frozen=True, gc=False, kw_only=True):
    """A consumer process handed records to its user: offsets and values, in order."""

    process: str
    group_id: str
    partition: Partition
    records: tuple[tuple[int, bytes], ...]


class Produced(Entry, frozen=True, gc=False, kw_only=True):
    """A producer was told that a record is at this offset."""

    partition: Partition
    offset: int
    value: bytes


class Expired(Entry, frozen=True, gc=False, kw_only=True):
    """The coordinator says, to operators, that a member was not heard of in time."""

    broker: int = 1
    group_id: str
    member_id: str
    reason: str


class Happened(Entry, frozen=True, gc=False, kw_only=True):
    """A fault, or something else that somebody did."""

    what: str
    detail: str = ""


class Calmed(Entry, frozen=True, gc=False, kw_only=True):
    """From here on nothing goes wrong any more."""


class Trap(NamedTuple):
    """A broker is to die of a record, which ``springs`` knows, once it is stored or before it would
    be; ``kind`` is that of the fault.
    """

    kind: str
    is_stored: bool
    springs: Callable[[Record], bool]


class Violation(AssertionError):
    """What must not be; ``rule`` is the checker's name."""

    def __init__(self, rule: str, story: str) -> None:
        super().__init__(f"{rule}: {story}")
        self.rule = rule
        self.story = story


class History:
    """All entries, handed to whoever listens for their kind."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._listeners: dict[type[Entry], list[Callable[[Any], None]]] = defaultdict(list)

    def listen(self, kind: type[Entry], listener: Callable[[Any], None]) -> None:
        """Have ``listener`` called with each entry of a kind."""
        self._listeners[kind].append(listener)

    def note(self, entry: Entry) -> None:
        """Something happened."""
        self.entries.append(entry)
        for listener in self._listeners[type(entry)]:
            listener(entry)

    def digest(self) -> str:
        """A fingerprint of all that happened: the same seed gives the same."""
        digest = hashlib.blake2b(digest_size=16)
        for entry in self.entries:
            digest.update(_ADDRESS.sub("", repr(entry)).encode())
        return digest.hexdigest()
