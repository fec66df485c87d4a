"""The log of a shard in ZooKeeper, as one owner of the shard sees it.

Taking over a shard raises the version of its node. Every write checks that version in the same
transaction. So the servers refuse all writes of a former owner, however late they arrive.

The log consists of entries, each a record batch with a number. After some number of entries they
are merged into a blob, and many blobs are merged into one. The node ``state`` lists the valid blobs
and the number of the first valid entry. Data that is too large for one packet is written in chunks
under an unused version. It becomes valid when a small transaction refers to it.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec

from partage.store.log_merge import merge
from partage.store.zk_schema import ChunkedBlob, StateDoc, ZkPaths, decode, encode, parse_number
from partage.store.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    RefusedError,
    Session,
    SetData,
    retry_read,
    transact_once,
)
from partage.wire.primitives import MalformedError
from partage.wire.records.checksum import crc32c
from partage.wire.types import Buffer

CHUNK_BYTES: Final = 384 * 1024
_MERGE_ENTRIES_MIN: Final = 64
_MERGE_BYTES_MIN: Final = 256 * 1024
_BLOBS_MAX: Final = 8
_REMOVALS_PER_TRANSACTION: Final = 500
_INLINE, _CHUNKED = 0, 1
_HEADER: Final = struct.Struct(">BI")  # of an entry: its kind, and the CRC-32C of the rest

#: Runs a slow function, in a thread if the shell has threads.
Offload = Callable[[Callable[[], list[bytes]]], Awaitable[list[bytes]]]


class LogEntry(msgspec.Struct, frozen=True):
    """A record batch in the log; ``blob`` locates it if it is too large for one node."""

    number: int
    batch: bytes
    blob: ChunkedBlob | None = None


class SharedLog:
    """The log of a shard, written by the owner whose node has ``version``.

    Call `load` first. Use it from one task at a time; only `merge` may run concurrently with
    appending.
    """

    def __init__(
        self, session: Session, paths: ZkPaths, shard: int, version: int, epoch: int
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        self.fence = Check(paths.shard(shard), version)
        self._session = session
        self._paths = paths
        self._blobs: list[tuple[ChunkedBlob, bytes]] = []
        self._entries: list[LogEntry] = []  # durable entries
        self._next = 0
        self._state_version = 0  # of the ``state`` node
        self._blob_count = 0
        self._is_merging = False
        self._has_removed_orphans = False

    # Loading.

    async def load(self) -> Sequence[Buffer]:
        """Return the content of the log, as record batches.

        Raises:
            Malformed: Data is missing or damaged.
            ForeignDataError: The state node was not written by Partage.
            InDoubtError: The connection was lost.
            SessionEndedError: The session ended.
        """
        paths, shard = self._paths, self.shard
        node = await self._session.read(paths.state(shard))
        if node is None:
            raise MalformedError(f"{paths.state(shard)} is missing in ZooKeeper")
        self._state_version = node.version
        state = decode(paths.state(shard), node.data, StateDoc)
        names = await self._session.children(paths.log(shard))
        found = [parse_number(paths.log(shard), name) for name in names]
        numbers = sorted(number for number in found if number >= state.first)
        if numbers != list(range(state.first, state.first + len(numbers))):
            raise MalformedError(
                f"{paths.log(shard)} has a gap in the entries from {state.first} on: {numbers}"
            )
        self._blobs = [(part, await self._read_blob(part)) for part in state.parts]
        contents = await self._session.read_all([paths.entry(shard, n) for n in numbers])
        self._entries = []
        for number, content in zip(numbers, contents, strict=True):
            if content is None:
                raise MalformedError(f"{paths.entry(shard, number)} was removed while it was read")
            self._entries.append(await self._decode_entry(number, content.data))
        self._next = state.first + len(numbers)
        return [blob for _, blob in self._blobs] + [entry.batch for entry in self._entries]

    async def _decode_entry(self, number: int, content: bytes) -> LogEntry:
        path = self._paths.entry(self.shard, number)
        body = content[_HEADER.size :]
        if len(content) < _HEADER.size or _HEADER.unpack_from(content)[1] != crc32c(body):
            raise MalformedError(f"{path} does not match its checksum")
        kind = _HEADER.unpack_from(content)[0]
        if kind == _INLINE:
            return LogEntry(number, body)
        if kind != _CHUNKED:
            raise MalformedError(f"{path} has unknown kind {kind}")
        part = decode(path, body, ChunkedBlob)
        return LogEntry(number, await self._read_blob(part), part)

    async def _read_blob(self, part: ChunkedBlob) -> bytes:
        nodes = await self._session.read_all(self._chunk_paths(part))
        joined = b"".join(b"" if node is None else node.data for node in nodes)
        if len(joined) != part.length or crc32c(joined) != part.crc32c:
            raise MalformedError(
                f"chunks {part.version} of shard {self.shard} are missing or damaged"
            )
        return joined

    def _chunk_paths(self, part: ChunkedBlob) -> list[str]:
        return [self._paths.chunk(self.shard, part.version, index) for index in range(part.chunks)]

    # Appending. `WriteBatcher` puts the entries of many logs into one transaction.

    def next_entry(self, batch: bytes) -> LogEntry:
        """Return the batch as the next entry. Entries must be written in the order of their
        numbers.
        """
        self._next += 1
        return LogEntry(self._next - 1, batch)

    async def write_chunks(self, entry: LogEntry) -> LogEntry:
        """Write the chunks of a large entry, and return the entry that refers to them."""
        if len(entry.batch) < CHUNK_BYTES:
            return entry
        part = self._new_blob(entry.batch)
        for chunk in self._chunks(part, entry.batch):
            await self._write(chunk)
        return LogEntry(entry.number, entry.batch, part)

    def create_operation(self, entry: LogEntry) -> Create:
        """Return the operation that appends an entry; its transaction must include the fence."""
        kind, body = _INLINE, entry.batch
        if entry.blob is not None:
            kind, body = _CHUNKED, encode(entry.blob)
        content = _HEADER.pack(kind, crc32c(body)) + body
        return Create(self._paths.entry(self.shard, entry.number), content)

    def on_written(self, entry: LogEntry) -> None:
        """Note that the entry is durable."""
        self._entries.append(entry)

    def _new_blob(self, content: bytes) -> ChunkedBlob:
        self._blob_count += 1
        return ChunkedBlob(
            version=f"{self.epoch}-{self._blob_count}",
            chunks=-(-len(content) // CHUNK_BYTES),
            length=len(content),
            crc32c=crc32c(content),
        )

    def _chunks(self, part: ChunkedBlob, content: bytes) -> Iterator[Create]:
        for index, path in enumerate(self._chunk_paths(part)):
            yield Create(path, content[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])

    async def _write(self, chunk: Create) -> None:
        async def is_there() -> bool:
            return await self._session.read(chunk.path) is not None

        await transact_once(self._session, [self.fence, chunk], is_there)

    # Merging.

    @property
    def needs_merge(self) -> bool:
        """True if there are enough entries to merge."""
        entries = self._entries
        return not self._is_merging and (
            len(entries) >= _MERGE_ENTRIES_MIN
            or sum(len(entry.batch) for entry in entries)
            >= max(_MERGE_BYTES_MIN, self._largest_blob_bytes())
        )

    def _largest_blob_bytes(self) -> int:
        return max((part.length for part, _ in self._blobs), default=0)

    async def merge(self, offload: Offload) -> None:
        """Merge the durable entries into a blob.

        All blobs are merged into one if there are many, or if the later ones are as large as the
        first.

        Args:
            offload: Runs the slow part.

        Raises:
            RefusedError: Another broker owns the shard.
            InDoubtError: The connection was lost; the next merge completes the work.
            SessionEndedError: The session ended.
        """
        if self._is_merging:
            return
        self._is_merging = True
        try:
            if not self._has_removed_orphans:
                await self.remove_orphans()
            await self._merge(offload)
        finally:
            self._is_merging = False

    async def _merge(self, offload: Offload) -> None:
        entries, parts = list(self._entries), list(self._blobs)
        if not entries:
            return
        later = sum(part.length for part, _ in parts[1:]) + sum(len(e.batch) for e in entries)
        is_whole = not parts or len(parts) >= _BLOBS_MAX or later >= parts[0][0].length
        kept = [] if is_whole else parts
        blobs: list[Buffer] = [blob for _, blob in parts] if is_whole else []
        blobs += [entry.batch for entry in entries]
        merged = b"".join(await offload(lambda: merge(blobs, keeps_removals=not is_whole)))
        creations: list[Operation] = []
        if merged:
            part = self._new_blob(merged)
            kept = [*kept, (part, merged)]
            creations += self._chunks(part, merged)
            if len(creations) > 1:
                for chunk in self._chunks(part, merged):
                    await self._write(chunk)
                creations = []
        await self._commit_state(entries[-1].number + 1, [part for part, _ in kept], creations)
        self._blobs = kept
        del self._entries[: len(entries)]
        gone = [entry.blob for entry in entries if entry.blob is not None]
        gone += [part for part, _ in parts] if is_whole else []
        removals = [Delete(self._paths.entry(self.shard, entry.number)) for entry in entries]
        removals += [Delete(chunk) for part in gone for chunk in self._chunk_paths(part)]
        await self._remove(removals)

    async def _commit_state(
        self, first: int, parts: Sequence[ChunkedBlob], creations: Sequence[Operation]
    ) -> None:
        """Make ``parts`` and the entries from ``first`` on the valid content of the log.

        A request that seems lost may arrive after later merges and must not undo them. So it is
        bound to one version of the node.
        """
        path = self._paths.state(self.shard)
        state = encode(StateDoc(first=first, parts=tuple(parts)))

        async def is_swung() -> bool:
            node = await self._session.read(path)
            return node is not None and node.data == state

        swing = SetData(path, state, self._state_version)
        try:
            await transact_once(self._session, [self.fence, *creations, swing], is_swung)
        except RefusedError:
            node = await retry_read(self._session, lambda: self._session.read(path))
            self._state_version = self._state_version if node is None else node.version
            raise
        self._state_version += 1

    async def _remove(self, removals: Sequence[Delete]) -> None:
        """Remove data that is no longer valid; after a crash, the next owner removes the rest."""
        for begin in range(0, len(removals), _REMOVALS_PER_TRANSACTION):
            some = removals[begin : begin + _REMOVALS_PER_TRANSACTION]

            async def are_removed(first: str = some[0].path) -> bool:
                return await self._session.read(first) is None

            await transact_once(self._session, [self.fence, *some], are_removed)

    async def remove_orphans(self) -> None:
        """Remove data that former owners left: chunks without a reference, and merged entries."""
        names = await retry_read(
            self._session, lambda: self._session.children(self._paths.chunks(self.shard))
        )
        entries = await retry_read(
            self._session, lambda: self._session.children(self._paths.log(self.shard))
        )
        mine = f"{self.epoch}-"
        live = [part for part, _ in self._blobs] + [e.blob for e in self._entries if e.blob]
        used = {path for part in live for path in self._chunk_paths(part)}
        parent = self._paths.chunks(self.shard)
        paths = [f"{parent}/{name}" for name in names if not name.startswith(mine)]
        left = [Delete(path) for path in paths if path not in used]
        first = self._entries[0].number if self._entries else self._next
        log = self._paths.log(self.shard)
        left += [Delete(f"{log}/{name}") for name in entries if parse_number(log, name) < first]
        for begin in range(0, len(left), _REMOVALS_PER_TRANSACTION):
            await self._session.transact(
                [self.fence, *left[begin : begin + _REMOVALS_PER_TRANSACTION]]
            )
        self._has_removed_orphans = True
