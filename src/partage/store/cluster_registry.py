"""Registration of brokers and ownership of shards in ZooKeeper.

A live broker has an ephemeral node, which also says whether it is ready for shards. A broker owns a
shard as long as it is live in the incarnation that took the shard. Brokers take shards without an
owner according to `placement`. A broker with more than its share releases some, and other brokers
take them. All brokers use the same rule, and each change of a shard is a compare-and-set, so
concurrent decisions are safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from partage.store.placement import place_shards
from partage.store.zk_schema import BrokerDoc, ShardDoc, ZkPaths, decode, encode, parse_number
from partage.store.zookeeper import (
    ChangeCallback,
    Create,
    Delete,
    InDoubtError,
    Operation,
    RefusalReason,
    RefusedError,
    Session,
    SetData,
    retry_read,
)

_CHANGES_PER_TRANSACTION: Final = 500


class RegistrationConflictError(Exception):
    """Another live broker uses a value that must be unique."""


class BrokerIdInUseError(RegistrationConflictError):
    """Another live broker, ``other``, has this id."""

    def __init__(self, broker_id: int, other: BrokerDoc) -> None:
        super().__init__(
            f"broker id {broker_id} is in use by the broker at {other.host}:{other.port}; set "
            "another one with --broker-id, or stop that broker"
        )
        self.other = other


class AddressInUseError(RegistrationConflictError):
    """Another live broker has this address, so clients of one would reach the other."""

    def __init__(self, me: BrokerDoc, other_id: int) -> None:
        super().__init__(
            f"address {me.host}:{me.port} is in use by broker {other_id}; set another one with "
            "--listen or --advertised, or stop that broker"
        )


class ShardOwnership(msgspec.Struct, frozen=True, kw_only=True):
    """Ownership of a shard: the version of its node, which changes when another broker takes it."""

    shard: int
    version: int
    epoch: int


class ClusterRegistry:
    """The brokers and shard owners, as last read from ZooKeeper.

    Args:
        session: The session.
        paths: The paths of the cluster.
        broker_id: The id of this broker.
        shard_count: The number of shards of groups. They have the first numbers.
        transaction_shard_count: The number of shards of transactional ids.
    """

    def __init__(
        self,
        session: Session,
        paths: ZkPaths,
        broker_id: int,
        shard_count: int,
        transaction_shard_count: int = 0,
    ) -> None:
        self.broker_id = broker_id
        self._group_shard_count = shard_count
        shard_count += transaction_shard_count
        self.brokers: dict[int, BrokerDoc] = {}
        self.shards: list[ShardDoc] = [ShardDoc()] * shard_count
        self._versions = [0] * shard_count
        # number of refreshes begun, and which one `brokers` is from
        self._refresh_count = self._applied_refresh = 0
        self._shards_version = -1  # of the node that every change of a shard touches
        self._session = session
        self._paths = paths
        self._incarnation = ""

    # Registration.

    async def register(self, me: BrokerDoc) -> None:
        """Register this broker as live.

        A node left by an earlier run on the same data directory is replaced: this run holds the
        lock of the directory, so the earlier one has ended.

        Raises:
            BrokerIdInUseError: Another broker has the id.
            SessionEndedError: The session ended.
        """
        path = self._paths.broker(self.broker_id)
        while True:
            try:
                await self._session.transact([Create(path, encode(me), is_ephemeral=True)])
            except InDoubtError:
                await self._session.wait_connected()
            except RefusedError as refused:
                if refused.reason is not RefusalReason.EXISTS:
                    raise
            if await self._is_registered(path, me):
                self._incarnation = me.incarnation
                return

    def check_address_unused(self, me: BrokerDoc) -> None:
        """Raise `AddressInUseError` if another live broker has this broker's address.

        Of two brokers that start at the same time, the one with the higher id fails. The check uses
        the last refresh.
        """
        mine = self.brokers.get(self.broker_id)  # or the node of an earlier run
        is_up = mine is not None and mine.incarnation == me.incarnation
        for broker_id, other in sorted(self.brokers.items()):
            if broker_id == self.broker_id or (is_up and broker_id > self.broker_id):
                continue
            if (other.host.casefold(), other.port) == (me.host.casefold(), me.port):
                raise AddressInUseError(me, broker_id)

    async def _is_registered(self, path: str, me: BrokerDoc) -> bool:
        node = await retry_read(self._session, lambda: self._session.read(path))
        if node is None:
            return False
        other = decode(path, node.data, BrokerDoc)
        is_me = msgspec.structs.replace(other, is_ready=me.is_ready) == me
        if is_me and node.session == self._session.session_id:
            return True
        if other.directory != me.directory:
            raise BrokerIdInUseError(self.broker_id, other)
        # In one transaction: if it is applied late and finds our own node, it must not remove it.
        mine = Create(path, encode(me), is_ephemeral=True)
        try:
            await self._session.transact([Delete(path, node.version), mine])
        except InDoubtError:
            await self._session.wait_connected()
        except RefusedError:
            pass  # already removed
        return False

    async def mark_ready(self) -> None:
        """Mark this broker as ready for shards, if it is still registered.

        Raises:
            SessionEndedError: The session ended.
        """
        path = self._paths.broker(self.broker_id)
        while True:
            node = await retry_read(self._session, lambda: self._session.read(path))
            if node is None or node.session != self._session.session_id:
                return
            doc = decode(path, node.data, BrokerDoc)
            if doc.is_ready:
                return
            ready = SetData(path, encode(msgspec.structs.replace(doc, is_ready=True)), node.version)
            try:  # touch the shards: a watch on children does not report changes of their data
                await self._session.transact([ready, SetData(self._paths.shards, b"")])
            except InDoubtError:
                await self._session.wait_connected()
            except RefusedError as refused:
                if refused.reason not in (RefusalReason.MISSING, RefusalReason.VERSION):
                    raise

    async def created_ms(self) -> int | None:
        """Return the ZooKeeper server's time of the registration, in ms; None if there is none."""
        path = self._paths.broker(self.broker_id)
        node = await retry_read(self._session, lambda: self._session.read(path))
        return None if node is None else node.created_ms

    async def unregister(self) -> None:
        """Remove the registration, for a clean shutdown. Raises as `Session.transact`."""
        await self._session.transact([Delete(self._paths.broker(self.broker_id))])

    # Reading.

    async def refresh(self, changed: ChangeCallback) -> None:
        """Read the shard owners, and then the live brokers.

        The order matters. An owner that is not in the later list has ended. If another broker took
        the shard after it was read, taking it is refused. In the other order, the owner could be a
        broker that has just registered.

        Args:
            changed: Called once, at the next change.

        Raises:
            ForeignDataError: A node was not written by Partage.
            InDoubtError: The connection was lost.
            SessionEndedError: The session ended.
        """
        await self._read_shards(changed)
        await self.refresh_brokers(changed)

    async def _read_shards(self, changed: ChangeCallback) -> None:
        session, paths = self._session, self._paths
        touched = await session.read(paths.shards, changed)
        if touched is not None and touched.version == self._shards_version:
            return
        node_paths = [paths.shard(shard) for shard in range(len(self.shards))]
        for shard, node in enumerate(await session.read_all(node_paths)):
            if node is not None and node.version >= self._versions[shard]:
                self.shards[shard] = decode(node_paths[shard], node.data, ShardDoc)
                self._versions[shard] = node.version
        self._shards_version = -1 if touched is None else touched.version

    async def refresh_brokers(self, changed: ChangeCallback | None = None) -> None:
        """Read the live brokers only. Raises as `refresh`."""
        self._refresh_count += 1
        begun = self._refresh_count
        names = await self._session.children(self._paths.brokers, changed)
        node_paths = [f"{self._paths.brokers}/{name}" for name in names]
        nodes = await self._session.read_all(node_paths)
        brokers = {
            parse_number(self._paths.brokers, name): decode(path, node.data, BrokerDoc)
            for name, path, node in zip(names, node_paths, nodes, strict=True)
            if node is not None
        }
        if begun > self._applied_refresh:  # otherwise a later refresh has finished first
            self.brokers, self._applied_refresh = brokers, begun

    def owner(self, shard: int) -> int | None:
        """Return the live broker that owns a shard; None if there is none."""
        doc = self.shards[shard]
        if doc.broker is None:
            return None
        broker = self.brokers.get(doc.broker)
        is_up = broker is not None and broker.incarnation == doc.incarnation
        return doc.broker if is_up else None

    def plan_changes(self) -> tuple[list[int], list[int]]:
        """Return the shards that this broker should take, and those that it should release."""
        owners = {shard: self.owner(shard) for shard in range(len(self.shards))}
        ready = [broker for broker, doc in self.brokers.items() if doc.is_ready]
        placed = self._place(owners, ready)
        me = self.broker_id
        if me not in ready:
            return [], []
        mine = [shard for shard, broker in placed.items() if broker == me]
        take = [shard for shard in sorted(mine) if owners[shard] is None]
        give = [s for s, owner in owners.items() if owner == me and placed[s] != me]
        return take, give

    def _place(self, owners: Mapping[int, int | None], ready: Sequence[int]) -> dict[int, int]:
        """Place the shards of groups and those of transactional ids, each kind evenly."""
        groups = {s: owner for s, owner in owners.items() if s < self._group_shard_count}
        transactions = {s: owner for s, owner in owners.items() if s not in groups}
        return place_shards(groups, ready) | place_shards(transactions, ready)

    def owned(self) -> list[int]:
        """Return the shards that this broker owns according to ZooKeeper."""
        return [s for s in range(len(self.shards)) if self.owner(s) == self.broker_id]

    # Changes.

    async def acquire(self, shards: Sequence[int]) -> list[ShardOwnership]:
        """Take shards, each with a new epoch.

        Returns:
            The shards that were taken, without those that another broker took first.

        Raises:
            SessionEndedError: The session ended.
        """
        taken: list[ShardOwnership] = []
        for begin in range(0, len(shards), _CHANGES_PER_TRANSACTION):
            taken += await self._acquire(shards[begin : begin + _CHANGES_PER_TRANSACTION])
        return taken

    async def _acquire(self, shards: Sequence[int]) -> list[ShardOwnership]:
        docs = {
            shard: ShardDoc(
                epoch=self.shards[shard].epoch + 1,
                broker=self.broker_id,
                incarnation=self._incarnation,
            )
            for shard in shards
        }
        done = await self._change(docs)
        return [
            ShardOwnership(shard=shard, version=version, epoch=docs[shard].epoch)
            for shard, version in done.items()
        ]

    async def release(self, shards: Sequence[int]) -> None:
        """Release shards for other brokers. The caller must have stopped replying for them."""
        for begin in range(0, len(shards), _CHANGES_PER_TRANSACTION):
            part = shards[begin : begin + _CHANGES_PER_TRANSACTION]
            await self._change({shard: ShardDoc(epoch=self.shards[shard].epoch) for shard in part})

    async def _change(self, docs: dict[int, ShardDoc]) -> dict[int, int]:
        """Change shards by compare-and-set.

        Returns:
            The new versions of the shards whose change succeeded.
        """
        left, is_in_doubt = dict(docs), False
        # a concurrent refresh may read newer ones
        versions = {shard: self._versions[shard] for shard in docs}
        while left:
            operations: list[Operation] = [
                SetData(self._paths.shard(shard), encode(doc), versions[shard])
                for shard, doc in left.items()
            ]
            try:
                await self._session.transact([*operations, SetData(self._paths.shards, b"")])
            except InDoubtError:
                is_in_doubt = True
                await self._session.wait_connected()
            except RefusedError as refused:
                shard = list(left)[refused.position]
                if is_in_doubt and await self._has_happened(shard, left[shard], versions[shard]):
                    break  # then the whole transaction was applied
                del left[shard]
            else:
                break
        for shard, doc in left.items():
            if self._versions[shard] == versions[shard]:
                self.shards[shard] = doc
                self._versions[shard] += 1
        return {shard: versions[shard] + 1 for shard in left}

    async def _has_happened(self, shard: int, doc: ShardDoc, before: int) -> bool:
        path = self._paths.shard(shard)
        node = await retry_read(self._session, lambda: self._session.read(path))
        is_next = node is not None and node.version == before + 1
        return is_next and node is not None and decode(path, node.data, ShardDoc) == doc


def clock_skew_ms(theirs_ms: int, before_ms: int, after_ms: int) -> int:
    """Return how far our clock is ahead of another one, at least; negative if it is behind.

    Args:
        theirs_ms: The other clock's time at a moment between the two readings.
        before_ms: Our clock's reading before that moment.
        after_ms: Our clock's reading after it.
    """
    if theirs_ms < before_ms:
        return before_ms - theirs_ms
    return min(0, after_ms - theirs_ms)
