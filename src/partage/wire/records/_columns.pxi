# Part of _native: records as Arrow columns.

cdef enum:
    LIKELY_MAX = 16 * 1024 * 1024  # bytes that may be reserved for expected records
    PAD = 64  # bytes after a column's data that may be overwritten
    SHORT = 256


cdef class GrowingBuffer:
    """A `PooledBuffer` that is written through ``at`` and doubles as needed."""

    cdef PooledBuffer buffer
    cdef char* at
    cdef Py_ssize_t capacity

    def __cinit__(self):
        self.buffer = PooledBuffer(0)
        self.at = self.buffer.at
        self.capacity = 0

    cdef int reserve(self, Py_ssize_t size, Py_ssize_t likely) except -1:
        """Reserve ``size`` bytes; reserve the ``likely`` total if the buffer must grow."""
        cdef PooledBuffer larger
        if size > self.capacity:
            larger = PooledBuffer(max(size, min(likely, LIKELY_MAX), 2 * self.capacity))
            memcpy(larger.at, self.at, self.capacity)
            self.buffer, self.at, self.capacity = larger, larger.at, larger.size
        return 0

    cdef object trim(self, Py_ssize_t size):
        """Return a view of the first ``size`` bytes. Do not use this object afterwards."""
        self.buffer.size = size
        return memoryview(self.buffer)


cdef struct Cells:
    # Pointers into a binary column's buffers, so that a loop can keep them in registers.
    char* validity
    int32_t* offsets
    char* data
    Py_ssize_t used
    Py_ssize_t nulls


cdef inline void copy(
    char* to, const uint8_t* at, Py_ssize_t size, Py_ssize_t readable
) noexcept nogil:
    """Copy ``size`` of ``readable`` bytes; up to PAD bytes after them may be overwritten.

    Copies of constant size need no function call, which for short keys and values costs more than
    the copy itself.
    """
    cdef char* stop = to + size
    if size > SHORT or readable - size < PAD:
        memcpy(to, at, size)
        return
    while True:
        memcpy(to, at, PAD)
        to += PAD
        at += PAD
        if to >= stop:
            break


cdef inline void put(
    Cells* cells, Py_ssize_t row, const uint8_t* at, Py_ssize_t size, const uint8_t* end
) noexcept nogil:
    """Add a cell. Its source is readable up to ``end``, which may lie after its own bytes."""
    if size > 0:
        copy(cells.data + cells.used, at, size, end - at)
        cells.used += size
    elif size < 0:
        cells.validity[row >> 3] &= ~(1 << (row & 7))
        cells.nulls += 1
    cells.offsets[row + 1] = <int32_t>cells.used


cdef class BinaryColumn:
    """Builds an Arrow binary column. Reserve rows and bytes before adding cells."""

    cdef GrowingBuffer validity, offsets, data
    cdef Cells cells

    def __cinit__(self):
        self.validity, self.offsets, self.data = GrowingBuffer(), GrowingBuffer(), GrowingBuffer()
        self.cells.used = self.cells.nulls = 0
        self.reserve(0, 0, 0, 0)
        self.cells.offsets[0] = 0

    cdef int reserve(
        self, Py_ssize_t rows, Py_ssize_t size, Py_ssize_t likely_rows, Py_ssize_t likely_size
    ) except -1:
        """Reserve space for a total of ``rows`` rows and ``size`` bytes of data."""
        cdef Py_ssize_t before = self.validity.capacity
        self.validity.reserve((rows + 7) >> 3, (likely_rows + 7) >> 3)
        if self.validity.capacity > before:
            memset(self.validity.at + before, 0xFF, self.validity.capacity - before)
        self.offsets.reserve(4 * (rows + 1), 4 * (likely_rows + 1))
        self.data.reserve(size + PAD, likely_size)
        self.cells.validity = self.validity.at
        self.cells.offsets = <int32_t*>self.offsets.at
        self.cells.data = self.data.at
        return 0

    cdef void restore(self, const Cells* cells) noexcept:
        self.cells.used = cells.used
        self.cells.nulls = cells.nulls

    cdef object finish(self, Py_ssize_t rows):
        validity = None
        if self.cells.nulls:
            validity = self.validity.trim((rows + 7) >> 3)
            if rows & 7:
                validity[-1] &= (1 << (rows & 7)) - 1
        return BinaryBuffers(
            self.cells.nulls,
            validity,
            self.offsets.trim(4 * (rows + 1)),
            self.data.trim(self.cells.used),
        )


cdef struct SavedState:
    Py_ssize_t rows, headers, size
    Cells key, value, header_key, header_value


cdef class ColumnSink(Sink):
    """A sink that collects at most ``size_max`` bytes of records as columns, but at least one."""

    cdef BinaryColumn key, value, header_key, header_value
    cdef GrowingBuffer offset, timestamp, timestamp_type, header_offsets
    cdef Py_ssize_t rows, headers, size, size_max
    cdef bint with_headers
    cdef SavedState saved

    def __cinit__(self, from_offset, to_offset, with_headers, Py_ssize_t size_max):
        self.from_offset = self.next_offset = from_offset
        self.to_offset = to_offset
        self.with_headers = with_headers
        self.size_max = min(size_max, INT32_MAX)
        self.key, self.value = BinaryColumn(), BinaryColumn()
        self.header_key, self.header_value = BinaryColumn(), BinaryColumn()
        self.offset, self.timestamp, self.timestamp_type = GrowingBuffer(), GrowingBuffer(), GrowingBuffer()
        self.header_offsets = GrowingBuffer()
        self.rows = self.headers = self.size = 0
        self.likely = 1
        self.reserve(0, 0)
        if with_headers:
            (<int32_t*>self.header_offsets.at)[0] = 0
        self.save()

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        """Reserve space for ``rows`` more records with ``size`` more bytes.

        A buffer that must grow grows for all ``likely`` batches. Key data only doubles, because
        most keys are short.
        """
        cdef Py_ssize_t later = self.rows + rows * self.likely
        rows += self.rows
        self.key.reserve(rows, self.key.cells.used + size, later, 0)
        self.value.reserve(
            rows, self.value.cells.used + size, later, self.value.cells.used + size * self.likely
        )
        self.offset.reserve(8 * rows, 8 * later)
        self.timestamp.reserve(8 * rows, 8 * later)
        self.timestamp_type.reserve(4 * rows, 4 * later)
        if self.with_headers:
            self.header_offsets.reserve(4 * (rows + 1), 4 * (later + 1))
        return 0

    cdef bint read_records(self, const uint8_t* at, const uint8_t* end, Batch* batch) except -1:
        cdef Record record
        cdef const uint8_t* start
        cdef int32_t index
        cdef int64_t offset
        cdef bint stopped = False
        self.reserve(batch.count, end - at)
        cdef Cells key = self.key.cells
        cdef Cells value = self.value.cells
        cdef int64_t* offsets = <int64_t*>self.offset.at
        cdef int64_t* timestamps = <int64_t*>self.timestamp.at
        cdef int32_t* header_offsets = <int32_t*>self.header_offsets.at
        cdef int64_t base_offset = batch.base_offset
        cdef int64_t base_timestamp = batch.base_timestamp
        cdef int32_t last_delta = batch.last_delta
        cdef int32_t count = batch.count
        cdef bint with_headers = self.with_headers
        cdef Py_ssize_t first = self.rows
        cdef Py_ssize_t row = first
        cdef Py_ssize_t size = self.size
        # All records are in the offset range and fit the size limit.
        cdef bint is_whole = (
            base_offset >= self.from_offset
            and batch.next_offset <= self.to_offset
            and end - at <= self.size_max - size
        )
        for index in range(count):
            start = at
            at = read_record(at, end, last_delta, &record)
            if at == NULL:
                raise malformed(batch, index, "does not fit the bytes left")
            offset = base_offset + record.offset_delta
            if not is_whole:
                if offset < self.from_offset or offset >= self.to_offset:
                    continue
                if at - start > self.size_max - size and row > 0:
                    self.next_offset = offset
                    stopped = True
                    break
            size += at - start
            if with_headers:
                # Most records have no headers, which is one byte.
                if at - record.headers != 1 or record.headers[0] != 0:
                    if not self.read_headers(record.headers, at):
                        raise malformed(batch, index, "has malformed headers")
                header_offsets[row + 1] = <int32_t>self.headers
            put(&key, row, record.key, record.key_size, end)
            put(&value, row, record.value, record.value_size, end)
            offsets[row] = offset
            timestamps[row] = microseconds(saturated_sum(base_timestamp, record.timestamp_delta))
            row += 1
        if at != end and not stopped:
            raise malformed(batch, batch.count, "is beyond the declared record count")
        self.key.cells = key
        self.value.cells = value
        self.rows = row
        self.size = size
        self.stamp(first, batch)
        self.save()
        return stopped

    cdef void stamp(self, Py_ssize_t row, Batch* batch) noexcept:
        """Set the timestamp types of the batch's rows, from ``row`` on, and its append time if used."""
        cdef int32_t append_time = (batch.attributes & LOG_APPEND_TIME) != 0
        cdef int64_t append_us = microseconds(batch.max_timestamp)
        cdef int64_t* timestamps = <int64_t*>self.timestamp.at
        cdef int32_t* types = <int32_t*>self.timestamp_type.at
        cdef Py_ssize_t n
        for n in range(row, self.rows):
            types[n] = append_time
        if append_time:
            for n in range(row, self.rows):
                timestamps[n] = append_us

    cdef bint read_headers(self, const uint8_t* at, const uint8_t* end) except -1:
        """Read headers; return False if they do not fit the bytes up to ``end`` exactly."""
        cdef int64_t count = 0
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef Py_ssize_t key_size = 0, value_size = 0
        at = read_header_count(at, end, &count)
        if at == NULL:
            return False
        self.header_key.reserve(self.headers + count, self.header_key.cells.used + (end - at), 0, 0)
        self.header_value.reserve(
            self.headers + count, self.header_value.cells.used + (end - at), 0, 0
        )
        for _ in range(count):
            at = read_header(at, end, &key, &key_size, &value, &value_size)
            if at == NULL:
                return False
            if is_ascii(key, key_size):
                put(&self.header_key.cells, self.headers, key, key_size, end)
            else:
                self.add_header_key(key, key_size, end - at)
            put(&self.header_value.cells, self.headers, value, value_size, end)
            self.headers += 1
        return at == end

    cdef int add_header_key(self, const uint8_t* at, Py_ssize_t size, Py_ssize_t left) except -1:
        """Add a key that may not be UTF-8. Replacement characters can make it longer."""
        cdef bytes key = PyBytes_FromStringAndSize(<const char*>at, size)
        key = key.decode("utf-8", "replace").encode()
        size = PyBytes_GET_SIZE(key)
        if size > INT32_MAX - self.header_key.cells.used - left:
            raise MalformedError("header keys are too large for one column")
        self.header_key.reserve(self.headers + 1, self.header_key.cells.used + size + left, 0, 0)
        at = <const uint8_t*>PyBytes_AS_STRING(key)
        put(&self.header_key.cells, self.headers, at, size, at + size)
        return 0

    cdef void save(self) noexcept:
        """Save the state after a complete batch."""
        self.saved = SavedState(
            self.rows, self.headers, self.size,
            self.key.cells, self.value.cells, self.header_key.cells, self.header_value.cells,
        )

    cdef void restore(self) noexcept:
        """Discard the rows added since the last complete batch."""
        self.rows, self.headers, self.size = self.saved.rows, self.saved.headers, self.saved.size
        self.key.restore(&self.saved.key)
        self.value.restore(&self.saved.value)
        self.header_key.restore(&self.saved.header_key)
        self.header_value.restore(&self.saved.header_value)

    cdef object finish(self):
        headers = None
        if self.with_headers:
            headers = HeaderColumns(
                self.headers,
                self.header_offsets.trim(4 * (self.rows + 1)),
                self.header_key.finish(self.headers),
                self.header_value.finish(self.headers),
            )
        return RecordColumns(
            self.rows,
            self.next_offset,
            self.key.finish(self.rows),
            self.value.finish(self.rows),
            self.offset.trim(8 * self.rows),
            self.timestamp.trim(8 * self.rows),
            self.timestamp_type.trim(4 * self.rows),
            headers,
        )


cdef bint is_ascii(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t index
    cdef uint8_t seen = 0
    for index in range(size):
        seen |= at[index]
    return seen < 0x80


def decode_columns(
    blobs, *, from_offset, to_offset, with_headers, verify_crc, decompressed_max=DECOMPRESSED_MAX,
    read_committed_aborted=None, size_max=INT32_MAX,
):
    """See `plain.decode_columns`."""
    cdef ColumnSink sink = ColumnSink(from_offset, to_offset, with_headers, size_max)
    try:
        walk(blobs, sink, verify_crc, decompressed_max, read_committed_aborted)
    except MalformedError:
        if sink.next_offset == sink.from_offset:
            raise
        sink.restore()
    return sink.finish()
