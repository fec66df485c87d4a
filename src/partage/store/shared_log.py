"""A shard's log in ZooKeeper, for as long as one broker has the shard.

Taking a shard over raises the version of its node, and everything that is written carries a check
of that version in the same transaction: what an owner of before sends, however late, is refused by
the servers, whatever it believes itself to be.

The log is made of entries, each a record batch under its number. Every so many entries are merged
into a part, and parts into one when they have become many; the node ``state`` says which parts
count and from which entry on the log does. What is too large for one packet is written in chunks
under a version that nobody has used, and counts once a small transaction points to it.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from partage.store.shard_log import merge
from partage.store.tree import Part, StateDoc, Tree, decode, encode, numbered
from partage.store.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    Refused,
    Session,
    SetData,
    settle,
    surely,
)
from partage.wire.primitives import Malformed
from partage.wire.types import Buffer

CHUNK_BYTES: Final = 384 * 1024
_MERGED_ENTRIES: Final = 64
_MERGED_BYTES: Final = 256 * 1024
_PARTS_MAX: Final = 8
_SWEPT_AT_ONCE: Final = 500
_INLINE, _CHUNKED = 0, 1
_HEADER: Final = struct.Struct(">BI")  # of an entry: its kind, and the CRC-32C of what follows

#: Runs a function that takes its time, in a thread where there are threads.
Offload = Callable[[Callable[[], list[bytes]]], Awaitable[list[bytes]]]


class Entry(msgspec.Struct, frozen=True):
    """A record batch in the log; ``part`` is where it lies if it is too large for its node."""

    number: int
    batch: bytes
    part: Part | None = None


class SharedLog:
    """The log of ``shard`` in one tenure, that of the owner whose node has ``version``.

    Load it first. For one task at a time, merging apart, which may run beside appending.
    """

    def __init__(self, session: Session, tree: Tree, shard: int, version: int, epoch: int) -> None:
        self.shard = shard
        self.epoch = epoch
        self.fence = Check(tree.shard(shard), version)
        self._session = session
        self._tree = tree
        self._parts: list[tuple[Part, bytes]] = []
        self._entries: list[Entry] = []  # those that are durable
        self._next = 0
        self._state_version = 0  # of the node that says what counts
        self._versions = 0
        self._is_merging = False
        self._is_swept = False

    # Loading.

    async def load(self) -> Sequence[Buffer]:
        """Everything that the log holds, as record batches.

        Raises `Malformed` where something is missing or damaged, `ForeignData` where the state is
        something else, `InDoubt` and `SessionOver`.
        """
        tree, shard = self._tree, self.shard
        node = await self._session.read(tree.state(shard))
        if node is None:
            raise Malformed(f"{tree.state(shard)} is missing in ZooKeeper")
        self._state_version = node.version
        state = decode(tree.state(shard), node.data, StateDoc)
        names = await self._session.children(tree.log(shard))
        found = [numbered(tree.log(shard), name) for name in names]
        numbers = sorted(number for number in found if number >= state.first)
        if numbers != list(range(state.first, state.first + len(numbers))):
            raise Malformed(f"{tree.log(shard)} lacks entries after {state.first}: {numbers}")
        self._parts = [(part, await self._joined(part)) for part in state.parts]
        contents = await self._session.read_all([tree.entry(shard, n) for n in numbers])
        self._entries = []
        for number, content in zip(numbers, contents, strict=True):
            if content is None:
                raise Malformed(f"{tree.entry(shard, number)} went while it was read")
            self._entries.append(await self._entry(number, content.data))
        self._next = state.first + len(numbers)
        return [blob for _, blob in self._parts] + [entry.batch for entry in self._entries]

    async def _entry(self, number: int, content: bytes) -> Entry:
        path = self._tree.entry(self.shard, number)
        body = content[_HEADER.size :]
        if len(content) < _HEADER.size or _HEADER.unpack_from(content)[1] != crc32c(body):
            raise Malformed(f"{path} does not match its checksum")
        kind = _HEADER.unpack_from(content)[0]
        if kind == _INLINE:
            return Entry(number, body)
        if kind != _CHUNKED:
            raise Malformed(f"{path} is of an unknown kind, {kind}")
        part = decode(path, body, Part)
        return Entry(number, await self._joined(part), part)

    async def _joined(self, part: Part) -> bytes:
        nodes = await self._session.read_all(self._paths(part))
        joined = b"".join(b"" if node is None else node.data for node in nodes)
        if len(joined) != part.length or crc32c(joined) != part.crc32c:
            raise Malformed(f"the chunks {part.version} of shard {self.shard} are not whole")
        return joined

    def _paths(self, part: Part) -> list[str]:
        return [self._tree.chunk(self.shard, part.version, index) for index in range(part.chunks)]

    # Appending: `gathering` puts the entries of many logs into one transaction.

    def next_entry(self, batch: bytes) -> Entry:
        """The batch as the log's next entry; entries are written in the order of their numbers."""
        self._next += 1
        return Entry(self._next - 1, batch)

    async def prepared(self, entry: Entry) -> Entry:
        """The entry, its chunks written if it needs any."""
        if len(entry.batch) < CHUNK_BYTES:
            return entry
        part = self._part(entry.batch)
        for chunk in self._chunks(part, entry.batch):
            await self._write(chunk)
        return Entry(entry.number, entry.batch, part)

    def creation(self, entry: Entry) -> Create:
        """What makes a prepared entry count, in a transaction with the fence."""
        kind, body = _INLINE, entry.batch
        if entry.part is not None:
            kind, body = _CHUNKED, encode(entry.part)
        content = _HEADER.pack(kind, crc32c(body)) + body
        return Create(self._tree.entry(self.shard, entry.number), content)

    def written(self, entry: Entry) -> None:
        """The entry is durable."""
        self._entries.append(entry)

    def _part(self, content: bytes) -> Part:
        self._versions += 1
        return Part(
            version=f"{self.epoch}-{self._versions}",
            chunks=-(-len(content) // CHUNK_BYTES),
            length=len(content),
            crc32c=crc32c(content),
        )

    def _chunks(self, part: Part, content: bytes) -> Iterator[Create]:
        for index, path in enumerate(self._paths(part)):
            yield Create(path, content[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])

    async def _write(self, chunk: Create) -> None:
        async def is_there() -> bool:
            return await self._session.read(chunk.path) is not None

        await settle(self._session, [self.fence, chunk], is_there)

    # Merging.

    @property
    def wants_merging(self) -> bool:
        """Whether enough entries have come together."""
        entries = self._entries
        return not self._is_merging and (
            len(entries) >= _MERGED_ENTRIES
            or sum(len(entry.batch) for entry in entries) >= max(_MERGED_BYTES, self._largest())
        )

    def _largest(self) -> int:
        return max((part.length for part, _ in self._parts), default=0)

    async def merge(self, offload: Offload) -> None:
        """Put the entries that are durable by now into a part, and all parts into one when those
        after the first have become many, or as large as it.

        Raises `Refused`, `InDoubt`, where something is left for the next time, and `SessionOver`.
        """
        if self._is_merging:
            return
        self._is_merging = True
        try:
            if not self._is_swept:
                await self.sweep()
            await self._merge(offload)
        finally:
            self._is_merging = False

    async def _merge(self, offload: Offload) -> None:
        entries, parts = list(self._entries), list(self._parts)
        if not entries:
            return
        later = sum(part.length for part, _ in parts[1:]) + sum(len(e.batch) for e in entries)
        is_whole = not parts or len(parts) >= _PARTS_MAX or later >= parts[0][0].length
        kept = [] if is_whole else parts
        blobs: list[Buffer] = [blob for _, blob in parts] if is_whole else []
        blobs += [entry.batch for entry in entries]
        merged = b"".join(await offload(lambda: merge(blobs, keeps_removals=not is_whole)))
        creations: list[Operation] = []
        if merged:
            part = self._part(merged)
            kept = [*kept, (part, merged)]
            creations += self._chunks(part, merged)
            if len(creations) > 1:
                for chunk in self._chunks(part, merged):
                    await self._write(chunk)
                creations = []
        await self._swing(entries[-1].number + 1, [part for part, _ in kept], creations)
        self._parts = kept
        del self._entries[: len(entries)]
        gone = [entry.part for entry in entries if entry.part is not None]
        gone += [part for part, _ in parts] if is_whole else []
        removals = [Delete(self._tree.entry(self.shard, entry.number)) for entry in entries]
        removals += [Delete(chunk) for part in gone for chunk in self._paths(part)]
        await self._remove(removals)

    async def _swing(
        self, first: int, parts: Sequence[Part], creations: Sequence[Operation]
    ) -> None:
        """Have ``parts`` count from now on, and of the entries those from ``first`` on.

        What was sent and seems lost may arrive when later merges have been done, and must not undo
        them: it is for one version of the node.
        """
        path = self._tree.state(self.shard)
        state = encode(StateDoc(first=first, parts=tuple(parts)))

        async def is_swung() -> bool:
            node = await self._session.read(path)
            return node is not None and node.data == state

        swing = SetData(path, state, self._state_version)
        try:
            await settle(self._session, [self.fence, *creations, swing], is_swung)
        except Refused:
            node = await surely(self._session, lambda: self._session.read(path))
            self._state_version = self._state_version if node is None else node.version
            raise
        self._state_version += 1

    async def _remove(self, removals: Sequence[Delete]) -> None:
        """Remove what does not count any more, however much it is; the next owner sweeps up what is
        left of it.
        """
        for begin in range(0, len(removals), _SWEPT_AT_ONCE):
            some = removals[begin : begin + _SWEPT_AT_ONCE]

            async def are_gone(first: str = some[0].path) -> bool:
                return await self._session.read(first) is None

            await settle(self._session, [self.fence, *some], are_gone)

    async def sweep(self) -> None:
        """Remove what owners of before left unfinished: chunks that nothing points to, and entries
        before the first that counts.
        """
        names = await surely(
            self._session, lambda: self._session.children(self._tree.chunks(self.shard))
        )
        entries = await surely(
            self._session, lambda: self._session.children(self._tree.log(self.shard))
        )
        mine = f"{self.epoch}-"
        live = [part for part, _ in self._parts] + [e.part for e in self._entries if e.part]
        used = {path for part in live for path in self._paths(part)}
        parent = self._tree.chunks(self.shard)
        paths = [f"{parent}/{name}" for name in names if not name.startswith(mine)]
        left = [Delete(path) for path in paths if path not in used]
        first = self._entries[0].number if self._entries else self._next
        log = self._tree.log(self.shard)
        left += [Delete(f"{log}/{name}") for name in entries if numbered(log, name) < first]
        for begin in range(0, len(left), _SWEPT_AT_ONCE):
            await self._session.transact([self.fence, *left[begin : begin + _SWEPT_AT_ONCE]])
        self._is_swept = True
