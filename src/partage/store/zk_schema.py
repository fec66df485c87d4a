"""The nodes of a cluster in ZooKeeper: their paths and their JSON content.

::

    cluster               the cluster id and the numbers of shards
    brokers/B             ephemeral: the registration of broker B
    applied/B             ephemeral: the topic changes that broker B has applied, and which of its
                          shards hold no offsets of deleted topics
    shards                touched by each change of a shard, and watched by all brokers
    shards/S              owner and epoch of shard S; the version of this node is the fence.
                          The shards of transactional ids follow those of groups
    shards/S/state        the blobs that hold the shard's state, and the first valid log entry
    shards/S/log/N        a log entry: a record batch, or a reference to its chunks
    shards/S/chunks/V-I   chunk I of the blob with version V
    topics                touched by each topic change, with the names that changed lately
    topics/T              a topic: its id, the broker of each partition, its configs
    tombstones/ID.B       a deleted topic with partitions on broker B
    tombstones/ID.groups  a deleted topic for which groups may hold offsets
    configs               the altered configs of brokers and groups; missing before the first change
    producer-ids          the first producer id that is not reserved

Everything is JSON except entries and chunks. Unknown fields, written by a newer version of Partage,
are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

FORMAT: Final = 1
_DIGITS: Final = 20
#: The suffix of a tombstone for groups, instead of a broker id.
GROUPS_SUFFIX: Final = ".groups"

T = TypeVar("T")


class ClusterDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the cluster, written once."""

    partage: int  # the format version
    cluster_id: str
    shards: int  # of groups
    transaction_shards: int


class BrokerDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A live broker, which gets shards if ``is_ready``.

    ``incarnation`` is unique for each registration. ``directory`` is equal only for processes that
    hold the same lock on the same data directory.
    """

    host: str
    port: int
    rack: str | None = None
    incarnation: str
    directory: str
    is_ready: bool = True


class ShardDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a shard: a broker and its incarnation, or None."""

    epoch: int = 0
    broker: int | None = None
    incarnation: str = ""


class ChunkedBlob(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are stored in chunks: version, number of chunks, total length and CRC-32C."""

    version: str
    chunks: int
    length: int
    crc32c: int


class StateDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A shard's state: its blobs, oldest first, and then the log entries from ``first`` on."""

    first: int = 0
    parts: tuple[ChunkedBlob, ...] = ()


class TopicDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: its id (16 bytes in hexadecimal), the broker of each partition, its configs."""

    id: str
    brokers: tuple[int, ...]
    configs: dict[str, str] = {}


class TopicsDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the latest changes, oldest first; ``nonces`` identify these changes."""

    recent: tuple[str, ...] = ()
    nonces: tuple[str, ...] = ()


class TombstoneDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted topic; ``version`` is the version of the topics after the deletion."""

    name: str
    version: int = 0


class ConfigsDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The altered configs of brokers and groups.

    The key of a resource is "broker:ID", "broker:" for the defaults of all brokers, or
    "group:GROUP".
    """

    resources: dict[str, dict[str, str]] = {}

    def with_configs(self, changed: Mapping[str, Mapping[str, str]]) -> ConfigsDoc:
        """Return the document with other configs of some resources, by key."""
        resources = {**self.resources, **{key: dict(value) for key, value in changed.items()}}
        return ConfigsDoc(resources={key: value for key, value in resources.items() if value})


class AppliedDoc(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a broker: it has applied all topic changes up to version ``value``.

    It has removed the groups' offsets of topics deleted up to version ``forgot``; ``shards`` are
    the epochs in which that is true for its shards.
    """

    value: int = -1
    forgot: int = -1
    shards: dict[int, int] = {}


class CountDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A counter."""

    value: int = 0


class ForeignDataError(Exception):
    """A node was not written by this cluster; the message says what to do."""


def encode(doc: msgspec.Struct) -> bytes:
    """Encode the content of a node."""
    return msgspec.json.encode(doc)


def decode(path: str, data: bytes, kind: type[T]) -> T:
    """Decode the content of a node.

    Raises:
        ForeignDataError: The content is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise ForeignDataError(
            f"{path} in ZooKeeper cannot be decoded: {error}. It was damaged, or written by "
            "another program; restore it, or use another path for the cluster"
        ) from None


def parse_number(parent: str, name: str) -> int:
    """Return the number in the name of a child of ``parent``.

    Raises:
        ForeignDataError: The name is no number.
    """
    if not (name.isascii() and name.isdigit()):
        raise _foreign_node(f"{parent}/{name}")
    return int(name)


def parse_topic_id(parent: str, name: str) -> str:
    """Return the topic id in the name of a tombstone. Raises as `parse_number`."""
    topic_id = name.partition(".")[0]
    try:
        return bytes.fromhex(topic_id).hex()
    except ValueError:
        raise _foreign_node(f"{parent}/{name}") from None


def _foreign_node(path: str) -> ForeignDataError:
    return ForeignDataError(
        f"{path} in ZooKeeper was not written by Partage; remove it, or use another path "
        "for the cluster"
    )


class ZkPaths:
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
        self.configs = f"{root}/configs"

    def broker(self, broker_id: int) -> str:
        """Return the path of a broker's registration."""
        return f"{self.brokers}/{broker_id}"

    def applied_by(self, broker_id: int) -> str:
        """Return the path of a broker's progress with the topic changes."""
        return f"{self.applied}/{broker_id}"

    def shard(self, shard: int) -> str:
        """Return the path of a shard's owner and epoch."""
        return f"{self.shards}/{shard}"

    def state(self, shard: int) -> str:
        """Return the path of a shard's state."""
        return f"{self.shards}/{shard}/state"

    def log(self, shard: int) -> str:
        """Return the parent of a shard's log entries."""
        return f"{self.shards}/{shard}/log"

    def entry(self, shard: int, number: int) -> str:
        """Return the path of a log entry."""
        return f"{self.shards}/{shard}/log/{number:0{_DIGITS}}"

    def chunks(self, shard: int) -> str:
        """Return the parent of a shard's chunks."""
        return f"{self.shards}/{shard}/chunks"

    def chunk(self, shard: int, version: str, index: int) -> str:
        """Return the path of a chunk."""
        return f"{self.shards}/{shard}/chunks/{version}-{index}"

    def topic(self, name: str) -> str:
        """Return the path of a topic."""
        return f"{self.topics}/{name}"

    def tombstone(self, topic_id: str, broker_id: int) -> str:
        """Return the path of a broker's tombstone of a deleted topic."""
        return f"{self.tombstones}/{topic_id}.{broker_id}"

    def groups_tombstone(self, topic_id: str) -> str:
        """Return the path of the groups' tombstone of a deleted topic."""
        return f"{self.tombstones}/{topic_id}{GROUPS_SUFFIX}"
