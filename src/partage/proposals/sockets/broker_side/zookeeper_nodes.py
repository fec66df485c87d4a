"""The nodes of the first design in ZooKeeper, on the document's paths below a root.

::

    consumers/coordinator             ephemeral: the id of the coordinator's broker
    consumers/GROUP/offsets/TOPIC/P   the committed offset of a partition
    consumers/GROUP/owners/TOPIC/P    the thread that owns it, and its consumer's session timeout
    brokers/ids/B                     ephemeral: the host and port of broker B
    brokers/topics/TOPIC/P            a partition of a topic
    admin/frozen_groups/GROUP         the rebalancing of the group is off

Kafka 0.7 keeps the number of a broker's partitions as the data of a node, which a watch on the
children of the topic does not notice. So each partition has a node here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from partage.broker.cluster.kazoo_session import KazooSession
from partage.broker.cluster.state_address import StateAddress
from partage.proposals.broker_side.messages import BrokerAddress
from partage.proposals.broker_side.records import (
    COORDINATOR_PATH,
    FROZEN_GROUPS_PATH,
    TOPICS_PATH,
    ConsumedOffsetRecord,
    OwnerRecord,
    Record,
    is_group_id,
)
from partage.store.zookeeper import (
    TRANSACTION_BYTES_MAX,
    Create,
    Delete,
    InDoubtError,
    Operation,
    RefusalReason,
    RefusedError,
    Session,
    SetData,
    ZNode,
    retry_read,
)

log = logging.getLogger(__name__)

CONSUMERS_PATH: Final = "/consumers"
BROKERS_PATH: Final = "/brokers/ids"
_COORDINATOR_NAME: Final = COORDINATOR_PATH.rpartition("/")[2]
_OPERATIONS_MAX: Final = 500  # in a transaction
_OPERATION_BYTES: Final = 128  # estimate for the overhead besides path and data
_ATTEMPTS_MAX: Final = 20
_SESSION_MS: Final = 6_000
_CONNECT_TIMEOUT_S: Final = 10.0

T = TypeVar("T")

ChangeCallback = Callable[[], None]


class _OwnerDoc(msgspec.Struct, frozen=True):
    thread: str
    session_timeout_ms: int


class _BrokerDoc(msgspec.Struct, frozen=True):
    host: str
    port: int


class ZooKeeperNodes:
    """Reads and writes the nodes in one session.

    All methods repeat a request whose connection was lost. They raise `SessionEndedError` after the
    end of the session, and `RefusedError` if ZooKeeper refuses a request for good.

    Args:
        session: The session.
        root: The path above all nodes.
    """

    def __init__(self, session: Session, root: str) -> None:
        self.session = session
        self._root = root
        self._existing: set[str] = set()  # nodes that exist for sure, unless an operator deletes

    def path(self, below: str) -> str:
        """Return the absolute path of a node."""
        return self._root + below

    # Parents and ephemeral nodes

    async def ensure(self, path: str) -> None:
        """Create a persistent node and its parents, unless they exist."""
        if path in self._existing or not path:
            return
        await self.ensure(path.rpartition("/")[0])
        while True:
            try:
                await self.session.transact([Create(path)])
            except InDoubtError:
                await self.session.wait_connected()
                continue
            except RefusedError as refused:
                if refused.reason is not RefusalReason.EXISTS:
                    raise
            self._existing.add(path)
            return

    async def create_ephemeral(self, below: str, data: bytes) -> bool:
        """Create an ephemeral node; False if it belongs to another session."""
        path = self.path(below)
        await self.ensure(path.rpartition("/")[0])
        while True:
            try:
                await self.session.transact([Create(path, data, is_ephemeral=True)])
            except InDoubtError:
                await self.session.wait_connected()
            except RefusedError as refused:
                if refused.reason is not RefusalReason.EXISTS:
                    raise
                node = await self.read(below)
                if node is not None:  # else it was deleted meanwhile
                    return node.session == self.session.session_id
            else:
                return True

    async def read(self, below: str, changed: ChangeCallback | None = None) -> ZNode | None:
        """Return a node; ``changed`` is called once after its next change or creation."""
        path = self.path(below)
        return await retry_read(self.session, lambda: self.session.read(path, changed))

    async def _children(self, path: str, changed: ChangeCallback | None = None) -> list[str]:
        return await retry_read(self.session, lambda: self.session.children(path, changed))

    # Brokers

    async def register_broker(self, broker: BrokerAddress) -> bool:
        """Register a broker; False if its id belongs to another session."""
        doc = msgspec.json.encode(_BrokerDoc(broker.host, broker.port))
        return await self.create_ephemeral(f"{BROKERS_PATH}/{broker.id}", doc)

    async def brokers(self, changed: ChangeCallback) -> tuple[BrokerAddress, ...]:
        """Return the live brokers by id; ``changed`` is called once after their next change."""
        path = self.path(BROKERS_PATH)
        await self.ensure(path)
        names = await self._children(path, changed)
        found = []
        for name in sorted(names):
            node = await self.read(f"{BROKERS_PATH}/{name}")
            if node is None:
                continue
            try:
                doc = msgspec.json.decode(node.data, type=_BrokerDoc)
                found.append(BrokerAddress(id=int(name), host=doc.host, port=doc.port))
            except ValueError as error:
                log.error("ignored the broker node %s/%s: %s", path, name, error)
        return tuple(found)

    async def coordinator_id(self, changed: ChangeCallback) -> int | None:
        """Return the id of the coordinator's broker, or None without one.

        ``changed`` is called once after the next change.
        """
        node = await self.read(COORDINATOR_PATH, changed)
        if node is None:
            return None
        try:
            return int(node.data)
        except ValueError:
            log.error("ignored the node %s: %r", self.path(COORDINATOR_PATH), node.data)
            return None

    # Topics

    async def topic_names(self, changed: ChangeCallback) -> list[str]:
        """Return the topics; ``changed`` is called once when another one is created."""
        await self.ensure(self.path(TOPICS_PATH))
        return await self._children(self.path(TOPICS_PATH), changed)

    async def partition_count(self, topic: str, changed: ChangeCallback) -> int:
        """Return the partitions of a topic; ``changed`` is called once when there are others."""
        return len(await self._children(self.path(f"{TOPICS_PATH}/{topic}"), changed))

    async def add_topics(self, topics: Mapping[str, int]) -> None:
        """Add topics and partitions that do not exist yet. None is ever deleted."""
        for topic, count in sorted(topics.items()):
            parent = self.path(f"{TOPICS_PATH}/{topic}")
            paths = [f"{parent}/{number}" for number in range(count)]
            missing = [path for path in paths if path not in self._existing]
            if not missing:
                continue
            await self.ensure(self.path(TOPICS_PATH))
            await self.ensure(parent)
            self._existing.update(f"{parent}/{each}" for each in await self._children(parent))
            # One transaction, if they fit, so that a watcher sees all new partitions at once.
            await self._write({path: b"" for path in paths if path not in self._existing})

    def forget_topic(self, topic: str) -> None:
        """Forget that a topic exists: an operator has deleted it. `add_topics` creates it again."""
        node = self.path(f"{TOPICS_PATH}/{topic}")
        self._existing = {
            path for path in self._existing if path != node and not path.startswith(f"{node}/")
        }

    # Frozen groups

    async def frozen_groups(self, changed: ChangeCallback) -> frozenset[str]:
        """Return the groups whose rebalancing is off.

        ``changed`` is called once when there are others.
        """
        path = self.path(FROZEN_GROUPS_PATH)
        await self.ensure(path)
        names = await self._children(path, changed)
        for name in names:
            if not is_group_id(name):
                log.error("ignored the node %s/%s: it has no valid group id", path, name)
        return frozenset(filter(is_group_id, names))

    async def freeze_group(self, group_id: str) -> None:
        """Switch the rebalancing of a group off."""
        await self.ensure(self.path(f"{FROZEN_GROUPS_PATH}/{group_id}"))

    async def thaw_group(self, group_id: str) -> bool:
        """Switch the rebalancing of a group on again; False if it was on."""
        path = self.path(f"{FROZEN_GROUPS_PATH}/{group_id}")
        self._existing.discard(path)
        while True:
            try:
                await self.session.transact([Delete(path)])
            except InDoubtError:
                await self.session.wait_connected()
            except RefusedError as refused:
                if refused.reason is not RefusalReason.MISSING:
                    raise
                return False
            else:
                return True

    # Records

    async def load(self) -> list[Record]:
        """Return all records, the offsets and owners of all groups."""
        groups = await self._children(self.path(CONSUMERS_PATH))
        loaded = await asyncio.gather(
            *(self._load_group(each) for each in groups if each != _COORDINATOR_NAME)
        )
        return [record for records in loaded for record in records]

    async def _load_group(self, group_id: str) -> list[Record]:
        records: list[Record] = []
        for kind, parse in (("offsets", _parse_offset), ("owners", _parse_owner)):
            parent = self.path(f"{CONSUMERS_PATH}/{group_id}/{kind}")
            for topic in await self._children(parent):
                names = await self._children(f"{parent}/{topic}")
                paths = [f"{parent}/{topic}/{name}" for name in names]
                nodes = await retry_read(self.session, partial(self.session.read_all, paths))
                for path, name, node in zip(paths, names, nodes, strict=True):
                    if node is None:
                        continue
                    self._existing.update((parent, f"{parent}/{topic}", path))
                    try:
                        records.append(parse(group_id, topic, int(name), node.data))
                    except ValueError as error:
                        log.error("ignored the node %s: %s", path, error)
        return records

    async def store(self, records: Sequence[Record]) -> None:
        """Write records. The last one of each node counts."""
        wanted = {self.path(record.path): _data(record) for record in records}
        for parent in sorted({path.rpartition("/")[0] for path in wanted}):
            await self.ensure(parent)
        await self._write(wanted)

    async def _write(self, wanted: Mapping[str, bytes | None]) -> None:
        """Give nodes their data, or delete them if it is None."""
        for part in split_writes(wanted):
            for _ in range(_ATTEMPTS_MAX):
                if await self._try_write(part):
                    break
            else:
                raise RefusedError(0, RefusalReason.OTHER, "other writers change the same nodes")

    async def _try_write(self, wanted: Mapping[str, bytes | None]) -> bool:
        """Write once, as far as the existing nodes are known; False if they are other ones."""
        operations = list(self._operations(wanted))
        if not operations:
            return True
        try:
            await self.session.transact(operations)
        except InDoubtError:
            await self.session.wait_connected()
            return False
        except RefusedError as refused:
            if refused.reason not in (RefusalReason.EXISTS, RefusalReason.MISSING):
                raise
            await self._refresh(operations[refused.position].path.rpartition("/")[0])
            return False
        for each in operations:
            if isinstance(each, Delete):
                self._existing.discard(each.path)
            else:
                self._existing.add(each.path)
        return True

    async def _refresh(self, parent: str) -> None:
        """Read which children exist: an earlier attempt, or an operator, has changed them."""
        above = parent
        while above:
            self._existing.discard(above)
            above = above.rpartition("/")[0]
        self._existing = {each for each in self._existing if not each.startswith(f"{parent}/")}
        await self.ensure(parent)
        self._existing.update(f"{parent}/{each}" for each in await self._children(parent))

    def _operations(self, wanted: Mapping[str, bytes | None]) -> Iterable[Operation]:
        for path, data in wanted.items():
            exists = path in self._existing
            if data is None:
                if exists:
                    yield Delete(path)
            else:
                yield SetData(path, data) if exists else Create(path, data)


async def use_nodes(state: StateAddress, work: Callable[[ZooKeeperNodes], Awaitable[T]]) -> T:
    """Return the result of ``work``, which gets the nodes in a separate session.

    Args:
        state: The ZooKeeper servers, and the path above the nodes.
        work: Reads or writes nodes.

    Raises:
        ZooKeeperUnreachableError: No server of ZooKeeper answers.
        StoreError: ZooKeeper refuses a request, or the session ends.
    """
    session = await KazooSession.begin(state.servers, _SESSION_MS, _CONNECT_TIMEOUT_S)
    try:
        return await work(ZooKeeperNodes(session, state.path))
    finally:
        await session.end()


def split_writes(wanted: Mapping[str, bytes | None]) -> Generator[dict[str, bytes | None]]:
    """Split writes into parts that ZooKeeper takes in one transaction each.

    A server closes the connection of a client whose request is larger than ``jute.maxbuffer``. The
    client would send it again, and so would each following coordinator.
    """
    part: dict[str, bytes | None] = {}
    size_bytes = 0
    for path, data in wanted.items():
        added_bytes = _OPERATION_BYTES + len(path.encode()) + len(data or b"")
        is_too_large = size_bytes + added_bytes > TRANSACTION_BYTES_MAX
        if part and (is_too_large or len(part) == _OPERATIONS_MAX):
            yield part
            part, size_bytes = {}, 0
        part[path] = data
        size_bytes += added_bytes
    if part:
        yield part


def _data(record: Record) -> bytes | None:
    match record:
        case ConsumedOffsetRecord(offset=offset):
            return str(offset).encode()
        case OwnerRecord(thread=str() as thread, session_timeout_ms=timeout_ms):
            return msgspec.json.encode(_OwnerDoc(thread, timeout_ms))
    return None


def _parse_offset(group_id: str, topic: str, partition: int, data: bytes) -> Record:
    offset = int(data)
    if offset < 0:
        raise ValueError(f"offset {offset} is negative")
    return ConsumedOffsetRecord(group_id=group_id, topic=topic, partition=partition, offset=offset)


def _parse_owner(group_id: str, topic: str, partition: int, data: bytes) -> Record:
    doc = msgspec.json.decode(data, type=_OwnerDoc)
    return OwnerRecord(
        group_id=group_id,
        topic=topic,
        partition=partition,
        thread=doc.thread,
        session_timeout_ms=doc.session_timeout_ms,
    )
