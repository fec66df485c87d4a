"""Records in parallel lists, and their conversion to columns, in pure Python."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from partage.wire.primitives import MalformedError, decode_varint
from partage.wire.records.batch import BatchHeader
from partage.wire.records.columns import (
    BinaryBuffers,
    Bytes,
    HeaderColumns,
    HeaderTuples,
    RecordColumns,
)

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class RecordRows:
    """The records of some batches with ``from_offset <= offset < to_offset``.

    Holds at most ``size_max`` bytes of records, but at least one record.
    """

    def __init__(
        self, from_offset: int, to_offset: int, size_max: int, *, with_headers: bool
    ) -> None:
        self.next_offset = self._from_offset = from_offset
        self._to_offset = to_offset
        self._size_left = size_max
        self._with_headers = with_headers
        self.offsets: list[int] = []
        self.timestamps_ms: list[int] = []
        self.timestamp_types = array("i")
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[HeaderTuples] = []

    def read_batch(self, header: BatchHeader, payload: bytes, *, whole: bool = True) -> bool:
        """Read the batch's records; return True if a record was left out because of ``size_max``.

        Args:
            whole: If False, bytes may follow the last record.

        Raises:
            MalformedError: A record does not fit its bytes, or bytes follow the last one.
        """
        before = len(self.keys)
        ages: list[int] = []
        deltas: list[int] = []
        try:
            stopped = self._read(header, payload, ages, deltas, whole)
        except IndexError:
            raise _malformed(header, "extends beyond the batch") from None
        base = header.base_offset
        self.offsets += [base + delta for delta in deltas] if base else deltas
        count = len(self.keys) - before
        if header.attributes & 0x08:
            self.timestamps_ms += [header.max_timestamp_ms] * count
            self.timestamp_types.extend([1] * count)
        else:
            base = header.base_timestamp_ms
            stamps = [base + age for age in ages]
            if ages and not _INT64_MIN <= min(stamps) <= max(stamps) <= _INT64_MAX:
                stamps = _saturated(stamps)
            self.timestamps_ms += stamps
            self.timestamp_types.extend([0] * count)
        return stopped

    def _read(
        self, header: BatchHeader, payload: bytes, ages: list[int], deltas: list[int], whole: bool
    ) -> bool:
        """Run the loop of `read_batch`. The first two bytes of each varint are read inline."""
        end = len(payload)
        delta_max = header.last_offset_delta
        delta_from = self._from_offset - header.base_offset
        delta_to = self._to_offset - header.base_offset
        size_left = self._size_left
        with_headers = self._with_headers
        careful = delta_from > 0 or delta_to <= delta_max or end > size_left
        add_age, add_delta = ages.append, deltas.append
        add_key, add_value = self.keys.append, self.values.append
        add_headers = self.headers.append
        pos = 0
        for _ in range(header.record_count):
            start = pos
            raw = payload[pos]
            pos += 1
            if raw > 0x7F:
                byte = payload[pos]
                pos += 1
                raw = raw & 0x7F | byte << 7
                if byte > 0x7F:
                    raw, pos = _long_varint(payload, pos, raw & 0x3FFF, 32)
            stop = pos + (raw >> 1)
            if raw & 1 or stop > end:
                raise _malformed(header, "does not fit the batch")
            pos += 1  # the attributes, which are unused
            age = payload[pos]
            pos += 1
            if age > 0x7F:
                byte = payload[pos]
                pos += 1
                age = age & 0x7F | byte << 7
                if byte > 0x7F:
                    age, pos = _long_varint(payload, pos, age & 0x3FFF, 64)
            raw = payload[pos]
            pos += 1
            if raw > 0x7F:
                byte = payload[pos]
                pos += 1
                raw = raw & 0x7F | byte << 7
                if byte > 0x7F:
                    raw, pos = _long_varint(payload, pos, raw & 0x3FFF, 32)
            delta = raw >> 1
            if raw & 1 or delta > delta_max:
                raise _malformed(header, "has an offset outside the batch")
            raw = payload[pos]
            pos += 1
            if raw > 0x7F:
                byte = payload[pos]
                pos += 1
                raw = raw & 0x7F | byte << 7
                if byte > 0x7F:
                    raw, pos = _long_varint(payload, pos, raw & 0x3FFF, 32)
            if raw & 1:
                if raw != 1:
                    raise _malformed(header, "has a key of negative length")
                key = None
            else:
                at = pos
                pos += raw >> 1
                key = payload[at:pos]
            raw = payload[pos]
            pos += 1
            if raw > 0x7F:
                byte = payload[pos]
                pos += 1
                raw = raw & 0x7F | byte << 7
                if byte > 0x7F:
                    raw, pos = _long_varint(payload, pos, raw & 0x3FFF, 32)
            if raw & 1:
                if raw != 1:
                    raise _malformed(header, "has a value of negative length")
                value = None
            else:
                at = pos
                pos += raw >> 1
                value = payload[at:pos]
            if pos > stop:
                raise _malformed(header, "has fields beyond its length")
            if careful:
                if not delta_from <= delta < delta_to:
                    pos = stop
                    continue
                if stop - start > size_left and self.keys:
                    self.next_offset = header.base_offset + delta
                    self._size_left = 0
                    return True
                size_left -= stop - start
            if with_headers:
                if stop - pos == 1 and payload[pos] == 0:
                    add_headers(())
                else:
                    add_headers(_headers(header, payload[pos:stop]))
            add_age(age >> 1 ^ -(age & 1))
            add_delta(delta)
            add_key(key)
            add_value(value)
            pos = stop
        if whole and pos != end:
            raise _malformed(header, "is followed by more bytes")
        self._size_left = size_left if careful else size_left - end
        return False

    def truncate(self, count: int) -> None:
        """Remove all rows after the first ``count``."""
        for rows in (self.offsets, self.timestamps_ms, self.keys, self.values, self.headers):
            del rows[count:]
        del self.timestamp_types[count:]

    def to_columns(self) -> RecordColumns:
        """Return the rows in Arrow's layout."""
        try:
            timestamps_us = array("q", [ms * 1000 for ms in self.timestamps_ms])
        except OverflowError:
            timestamps_us = array("q", _saturated([ms * 1000 for ms in self.timestamps_ms]))
        return RecordColumns(
            count=len(self.offsets),
            next_offset=self.next_offset,
            key=_binary(self.keys),
            value=_binary(self.values),
            offset=array("q", self.offsets).tobytes(),
            timestamp_us=timestamps_us.tobytes(),
            timestamp_type=self.timestamp_types.tobytes(),
            headers=self._header_columns() if self._with_headers else None,
        )

    def _header_columns(self) -> HeaderColumns:
        flat = [header for headers in self.headers for header in headers]
        return HeaderColumns(
            count=len(flat),
            offsets=_offsets(map(len, self.headers)),
            key=_binary([name.encode() for name, _ in flat]),
            value=_binary([value for _, value in flat]),
        )


def _long_varint(payload: bytes, pos: int, raw: int, bits: int) -> tuple[int, int]:
    """Return the unsigned varint whose first 14 bits are ``raw``, and the position after it.

    Raises:
        MalformedError: It is wider than ``bits``.
        IndexError: The bytes end inside it.
    """
    shift = 14
    while True:
        byte = payload[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift >= bits:
            raise MalformedError(f"varint is wider than {bits} bits")
    if raw >> bits:
        raise MalformedError(f"varint is wider than {bits} bits")
    return raw, pos


def _headers(header: BatchHeader, fields: bytes) -> HeaderTuples:
    """Return a record's headers, which must end exactly at the end of ``fields``."""
    end = len(fields)
    count, pos = decode_varint(fields, 0, 5)
    if not 0 <= count <= (end - pos) // 2:
        raise _malformed(header, "has an impossible number of headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, pos = decode_varint(fields, pos, 5)
        if size < 0 or size > end - pos:
            raise _malformed(header, "has a header that does not fit")
        name = fields[pos : pos + size].decode("utf-8", "replace")
        size, pos = decode_varint(fields, pos + size, 5)
        if size < -1 or size > end - pos:
            raise _malformed(header, "has a header that does not fit")
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, fields[pos : pos + size]))
            pos += size
    if pos != end:
        raise _malformed(header, "has bytes after its headers")
    return tuple(headers)


def _malformed(header: BatchHeader, what: str) -> MalformedError:
    return MalformedError(f"a record of the batch at offset {header.base_offset} {what}")


def _saturated(numbers: Sequence[int]) -> list[int]:
    """Return the numbers limited to the range of 64 bits."""
    return [max(_INT64_MIN, min(number, _INT64_MAX)) for number in numbers]


def _binary(blobs: Sequence[bytes | None]) -> BinaryBuffers:
    null_count = blobs.count(None)
    if not null_count:
        whole: Sequence[bytes] = blobs  # type: ignore[assignment]  # no None in it
        return BinaryBuffers(0, None, _offsets(map(len, whole)), b"".join(whole))
    bits = "".join(["0" if blob is None else "1" for blob in reversed(blobs)])
    validity = int(bits, 2).to_bytes((len(blobs) + 7) // 8, "little")
    sizes = [len(blob) if blob else 0 for blob in blobs]
    return BinaryBuffers(null_count, validity, _offsets(sizes), b"".join(filter(None, blobs)))


def _offsets(sizes: Iterable[int]) -> Bytes:
    return array("i", accumulate(sizes, initial=0)).tobytes()
