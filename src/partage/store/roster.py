"""Who is up, and who has which shard: what a broker reads of it, and what it does about it.

A broker that is up has an ephemeral node, which also says whether it is ready for shards. A shard
belongs to a broker as long as that broker, in the incarnation that took it, is up. Whoever sees
shards without an owner takes those that it should have; who has more than its share gives some
back, and others take them. All decide by the same rule (`placement`), and each change of a shard is
one compare-and-set, so that two that decide at the same time do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from partage.store.placement import place_shards
from partage.store.tree import BrokerDoc, ShardDoc, Tree, decode, encode, numbered
from partage.store.zookeeper import (
    Changed,
    Create,
    Delete,
    InDoubt,
    Operation,
    Refused,
    Session,
    SetData,
    Why,
    surely,
)

_CHANGED_AT_ONCE: Final = 500


class Taken(Exception):  # noqa: N818 - named after what happened
    """Another broker that is up has what has to be this one's own."""


class IdTaken(Taken):
    """Another broker is up under this id: ``other``."""

    def __init__(self, broker_id: int, other: BrokerDoc) -> None:
        super().__init__(
            f"a broker with id {broker_id} is up at {other.host}:{other.port}; give this one an id "
            "of its own with --broker-id, or end the other"
        )
        self.other = other


class AddressTaken(Taken):
    """Another broker is up at this address: clients of one would be sent to the other."""

    def __init__(self, me: BrokerDoc, other_id: int) -> None:
        super().__init__(
            f"broker {other_id} is up at {me.host}:{me.port}, as this one would be; give each an "
            "address of its own with --listen or --advertised, or end the other"
        )


class Tenure(msgspec.Struct, frozen=True, kw_only=True):
    """The right to a shard: the version that its node has as long as nobody else takes it."""

    shard: int
    version: int
    epoch: int


class Roster:
    """What was last read of the cluster."""

    def __init__(self, session: Session, tree: Tree, broker_id: int, shard_count: int) -> None:
        self.broker_id = broker_id
        self.brokers: dict[int, BrokerDoc] = {}
        self.shards: list[ShardDoc] = [ShardDoc()] * shard_count
        self._versions = [0] * shard_count
        self._looks = self._looked = 0  # how often it was begun, and what `brokers` is of
        self._touched = -1  # the version of the node that is touched with every change
        self._session = session
        self._tree = tree
        self._incarnation = ""

    # Coming and going.

    async def register(self, me: BrokerDoc) -> None:
        """Be up. A node that an earlier run on the same data directory has left is replaced: this
        one holds the lock that the earlier had, so that is gone.

        Raises `IdTaken` where another broker has the id, and `SessionOver`.
        """
        path = self._tree.broker(self.broker_id)
        while True:
            try:
                await self._session.transact([Create(path, encode(me), is_ephemeral=True)])
            except InDoubt:
                await self._session.connected()
            except Refused as refused:
                if refused.why is not Why.EXISTS:
                    raise
            if await self._is_registered(path, me):
                self._incarnation = me.incarnation
                return

    def expect_own_address(self, me: BrokerDoc) -> None:
        """Raises `AddressTaken` where, as of the last look, another broker is up at this address;
        of two that have come at the same time, for the one with the higher id.
        """
        mine = self.brokers.get(self.broker_id)  # or what an earlier run has left
        is_up = mine is not None and mine.incarnation == me.incarnation
        for broker_id, other in sorted(self.brokers.items()):
            if broker_id == self.broker_id or (is_up and broker_id > self.broker_id):
                continue
            if (other.host.casefold(), other.port) == (me.host.casefold(), me.port):
                raise AddressTaken(me, broker_id)

    async def _is_registered(self, path: str, me: BrokerDoc) -> bool:
        node = await surely(self._session, lambda: self._session.read(path))
        if node is None:
            return False
        other = decode(path, node.data, BrokerDoc)
        is_me = msgspec.structs.replace(other, is_ready=me.is_ready) == me
        if is_me and node.session == self._session.session_id:
            return True
        if other.directory != me.directory:
            raise IdTaken(self.broker_id, other)
        # In one transaction: if it is heard of late, and finds what is ours, we are not gone by it.
        mine = Create(path, encode(me), is_ephemeral=True)
        try:
            await self._session.transact([Delete(path, node.version), mine])
        except InDoubt:
            await self._session.connected()
        except Refused:
            pass  # it is gone already
        return False

    async def ready(self) -> None:
        """Get shards from now on, if this broker is registered still. Raises `SessionOver`."""
        path = self._tree.broker(self.broker_id)
        while True:
            node = await surely(self._session, lambda: self._session.read(path))
            if node is None or node.session != self._session.session_id:
                return
            doc = decode(path, node.data, BrokerDoc)
            if doc.is_ready:
                return
            told = SetData(path, encode(msgspec.structs.replace(doc, is_ready=True)), node.version)
            try:  # touched, as a watch on who comes and goes does not tell of what they say
                await self._session.transact([told, SetData(self._tree.shards, b"")])
            except InDoubt:
                await self._session.connected()
            except Refused as refused:
                if refused.why not in (Why.MISSING, Why.VERSION):
                    raise

    async def created_ms(self) -> int | None:
        """The servers' time of the registration."""
        path = self._tree.broker(self.broker_id)
        node = await surely(self._session, lambda: self._session.read(path))
        return None if node is None else node.created_ms

    async def leave(self) -> None:
        """Be down at once, for a clean end. Raises what `Session.transact` does."""
        await self._session.transact([Delete(self._tree.broker(self.broker_id))])

    # Reading.

    async def refresh(self, changed: Changed) -> None:
        """Read who has what, and then who is up; ``changed`` is called at the next change.

        In this order: an owner who is not up by then is gone, and if somebody has taken the shard
        since it was read, taking it is refused. The other way round it could be somebody who has
        just come.

        Raises `ForeignData`, `InDoubt` and `SessionOver`.
        """
        await self._read_shards(changed)
        await self.look(changed)

    async def _read_shards(self, changed: Changed) -> None:
        session, tree = self._session, self._tree
        touched = await session.read(tree.shards, changed)
        if touched is not None and touched.version == self._touched:
            return
        paths = [tree.shard(shard) for shard in range(len(self.shards))]
        for shard, node in enumerate(await session.read_all(paths)):
            if node is not None and node.version >= self._versions[shard]:
                self.shards[shard] = decode(paths[shard], node.data, ShardDoc)
                self._versions[shard] = node.version
        self._touched = -1 if touched is None else touched.version

    async def look(self, changed: Changed | None = None) -> None:
        """Read who is up, and nothing else. Raises `ForeignData`, `InDoubt` and `SessionOver`."""
        self._looks += 1
        begun = self._looks
        names = await self._session.children(self._tree.brokers, changed)
        paths = [f"{self._tree.brokers}/{name}" for name in names]
        nodes = await self._session.read_all(paths)
        brokers = {
            numbered(self._tree.brokers, name): decode(path, node.data, BrokerDoc)
            for name, path, node in zip(names, paths, nodes, strict=True)
            if node is not None
        }
        if begun > self._looked:  # else somebody has looked later, and was quicker
            self.brokers, self._looked = brokers, begun

    def owner(self, shard: int) -> int | None:
        """The broker that has a shard and is up."""
        doc = self.shards[shard]
        if doc.broker is None:
            return None
        broker = self.brokers.get(doc.broker)
        is_up = broker is not None and broker.incarnation == doc.incarnation
        return doc.broker if is_up else None

    def wanted(self) -> tuple[list[int], list[int]]:
        """The shards to take, and those to give back."""
        owners = {shard: self.owner(shard) for shard in range(len(self.shards))}
        ready = [broker for broker, doc in self.brokers.items() if doc.is_ready]
        placed = place_shards(owners, ready)
        me = self.broker_id
        if me not in ready:
            return [], []
        mine = [shard for shard, broker in placed.items() if broker == me]
        take = [shard for shard in sorted(mine) if owners[shard] is None]
        give = [s for s, owner in owners.items() if owner == me and placed[s] != me]
        return take, give

    def owned(self) -> list[int]:
        """The shards of this broker, as far as ZooKeeper knows."""
        return [s for s in range(len(self.shards)) if self.owner(s) == self.broker_id]

    # Changing.

    async def take(self, shards: Sequence[int]) -> list[Tenure]:
        """Take shards over, each with an epoch of its own; those that somebody else was quicker
        with are left out. Raises `SessionOver`.
        """
        taken: list[Tenure] = []
        for begin in range(0, len(shards), _CHANGED_AT_ONCE):
            taken += await self._take(shards[begin : begin + _CHANGED_AT_ONCE])
        return taken

    async def _take(self, shards: Sequence[int]) -> list[Tenure]:
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
            Tenure(shard=shard, version=version, epoch=docs[shard].epoch)
            for shard, version in done.items()
        ]

    async def give(self, shards: Sequence[int]) -> None:
        """Give shards back, for others to take; whoever calls has stopped answering for them."""
        for begin in range(0, len(shards), _CHANGED_AT_ONCE):
            part = shards[begin : begin + _CHANGED_AT_ONCE]
            await self._change({shard: ShardDoc(epoch=self.shards[shard].epoch) for shard in part})

    async def _change(self, docs: dict[int, ShardDoc]) -> dict[int, int]:
        """Compare and set; the new versions where that went well, the roster brought up to date."""
        left, is_in_doubt = dict(docs), False
        versions = {shard: self._versions[shard] for shard in docs}  # somebody may read newer ones
        while left:
            operations: list[Operation] = [
                SetData(self._tree.shard(shard), encode(doc), versions[shard])
                for shard, doc in left.items()
            ]
            try:
                await self._session.transact([*operations, SetData(self._tree.shards, b"")])
            except InDoubt:
                is_in_doubt = True
                await self._session.connected()
            except Refused as refused:
                shard = list(left)[refused.position]
                if is_in_doubt and await self._has_happened(shard, left[shard], versions[shard]):
                    break  # all of it, then
                del left[shard]
            else:
                break
        for shard, doc in left.items():
            if self._versions[shard] == versions[shard]:
                self.shards[shard] = doc
                self._versions[shard] += 1
        return {shard: versions[shard] + 1 for shard in left}

    async def _has_happened(self, shard: int, doc: ShardDoc, before: int) -> bool:
        path = self._tree.shard(shard)
        node = await surely(self._session, lambda: self._session.read(path))
        is_next = node is not None and node.version == before + 1
        return is_next and node is not None and decode(path, node.data, ShardDoc) == doc


def ahead_of(theirs_ms: int, before_ms: int, after_ms: int) -> int:
    """How far our clock is ahead of another, at least, which said ``theirs_ms`` at some moment
    between two readings of ours; below 0 if it is behind.
    """
    if theirs_ms < before_ms:
        return before_ms - theirs_ms
    return min(0, after_ms - theirs_ms)
