"""What lies where under a cluster's path in ZooKeeper, and in which form.

::

    cluster               the cluster's id, the number of its shards
    brokers/B             ephemeral: who serves as broker B, and where
    applied/B             ephemeral: up to which change of the topics broker B has come, and which
                          of its shards hold nothing of what was deleted
    shards                touched whenever a shard changes hands, and watched by all
    shards/S              owner and epoch of shard S; this node's version is the fence
    shards/S/state        the parts that hold the shard's state, and the first log entry after them
    shards/S/log/N        an entry: a record batch, or where the chunks of one are
    shards/S/chunks/V-I   chunk I of what was written as version V
    topics                touched whenever a topic changes, with the names that changed lately
    topics/T              a topic: its id, the broker of each partition, its configs
    tombstones/ID.B       a deleted topic, whose partitions broker B still has to remove
    tombstones/ID.groups  a deleted topic, of which groups may still have offsets
    producer-ids          the first producer id that was not handed out

Everything is JSON but the entries and chunks. A node that a newer program wrote may have fields
that are not known here; they are passed over.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

FORMAT: Final = 1
_DIGITS: Final = 20
#: What a tombstone has in place of a broker, if it is for the groups.
GRAVE: Final = ".groups"

T = TypeVar("T")


class ClusterDoc(msgspec.Struct, frozen=True, kw_only=True):
    """What the tree is; written once."""

    partage: int  # the format
    cluster_id: str
    shards: int


class BrokerDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is up, and gets shards if it ``is_ready``. ``incarnation`` is drawn for each
    registration; ``directory`` is the same only for who holds the same lock on the same data.
    """

    host: str
    port: int
    rack: str | None = None
    incarnation: str
    directory: str
    is_ready: bool = True


class ShardDoc(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a shard: a broker and its incarnation, or nobody."""

    epoch: int = 0
    broker: int | None = None
    incarnation: str = ""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that lie in chunks: their version, how many, how long together, and their CRC-32C."""

    version: str
    chunks: int
    length: int
    crc32c: int


class StateDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A shard's state: the parts, oldest first, and then the log from entry ``first`` on."""

    first: int = 0
    parts: tuple[Part, ...] = ()


class TopicDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: 16 bytes of id in hexadecimal, the broker of each partition, its own configs."""

    id: str
    brokers: tuple[int, ...]
    configs: dict[str, str] = {}


class TopicsDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The names that the last changes were about, the last one last; ``nonces`` has, of each, what
    is unique to it.
    """

    recent: tuple[str, ...] = ()
    nonces: tuple[str, ...] = ()


class TombstoneDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is deleted; ``version`` is what the topics had by that."""

    name: str
    version: int = 0


class AppliedDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A broker does as the topics say, as of version ``value``. It has removed what was deleted up
    to version ``forgot``, and in these epochs its ``shards`` hold no offsets of it any more.
    """

    value: int = -1
    forgot: int = -1
    shards: dict[int, int] = {}


class CountDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A number."""

    value: int = 0


class ForeignData(Exception):  # noqa: N818 - named after what it is
    """What is there is not this cluster's; the message says what it is and what can be done."""


def encode(doc: msgspec.Struct) -> bytes:
    """A document as a node holds it."""
    return msgspec.json.encode(doc)


def decode(path: str, data: bytes, kind: type[T]) -> T:
    """A node's document. Raises `ForeignData` where it is something else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise ForeignData(
            f"{path} in ZooKeeper cannot be read: {error}. It was damaged, or written by another "
            "program; restore it, or give the cluster another path"
        ) from None


def numbered(parent: str, name: str) -> int:
    """The number that a child of ``parent`` is named by. Raises `ForeignData` where it is none."""
    if not (name.isascii() and name.isdigit()):
        raise _not_ours(f"{parent}/{name}")
    return int(name)


def buried(parent: str, name: str) -> str:
    """The id of the topic that a tombstone is of; raises as `numbered`."""
    topic_id = name.partition(".")[0]
    try:
        return bytes.fromhex(topic_id).hex()
    except ValueError:
        raise _not_ours(f"{parent}/{name}") from None


def _not_ours(path: str) -> ForeignData:
    return ForeignData(
        f"{path} in ZooKeeper is nothing of Partage's; remove it, or give the cluster another path"
    )


class Tree:
    """The paths of a cluster under ``root``, such as ``/partage``."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.cluster = f"{root}/cluster"
        self.brokers = f"{root}/brokers"
        self.applied = f"{root}/applied"
        self.shards = f"{root}/shards"
        self.topics = f"{root}/topics"
        self.tombstones = f"{root}/tombstones"
        self.producer_ids = f"{root}/producer-ids"

    def broker(self, broker_id: int) -> str:
        """A broker's registration."""
        return f"{self.brokers}/{broker_id}"

    def applied_by(self, broker_id: int) -> str:
        """How far a broker has come with the topics."""
        return f"{self.applied}/{broker_id}"

    def shard(self, shard: int) -> str:
        """A shard's owner and epoch."""
        return f"{self.shards}/{shard}"

    def state(self, shard: int) -> str:
        """Where a shard's state begins."""
        return f"{self.shards}/{shard}/state"

    def log(self, shard: int) -> str:
        """The parent of a shard's log entries."""
        return f"{self.shards}/{shard}/log"

    def entry(self, shard: int, number: int) -> str:
        """An entry of a shard's log."""
        return f"{self.shards}/{shard}/log/{number:0{_DIGITS}}"

    def chunks(self, shard: int) -> str:
        """The parent of a shard's chunks."""
        return f"{self.shards}/{shard}/chunks"

    def chunk(self, shard: int, version: str, index: int) -> str:
        """A chunk."""
        return f"{self.shards}/{shard}/chunks/{version}-{index}"

    def topic(self, name: str) -> str:
        """A topic."""
        return f"{self.topics}/{name}"

    def tombstone(self, topic_id: str, broker_id: int) -> str:
        """What a broker still has to remove of a deleted topic."""
        return f"{self.tombstones}/{topic_id}.{broker_id}"

    def grave(self, topic_id: str) -> str:
        """What groups may still have offsets of."""
        return f"{self.tombstones}/{topic_id}{GRAVE}"
