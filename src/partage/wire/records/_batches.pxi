# Part of _native: batch headers and `scan`.

cdef struct Batch:
    Py_ssize_t size
    int64_t base_offset
    int64_t next_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t leader_epoch
    int32_t last_delta
    int32_t base_sequence
    int32_t count
    uint32_t crc
    int16_t attributes
    int16_t producer_epoch


cdef inline uint16_t be16(const uint8_t* at) noexcept nogil:
    return <uint16_t>(at[0] << 8 | at[1])


cdef inline uint32_t be32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint64_t be64(const uint8_t* at) noexcept nogil:
    return <uint64_t>be32(at) << 32 | be32(at + 4)


cdef BatchStatus read_batch(const uint8_t* at, Py_ssize_t left, bint verify_crc, Batch* batch) noexcept nogil:
    """Read the header at ``at``, where ``left`` bytes are readable, and check the batch."""
    cdef int32_t length
    if left < HEADER_SIZE:
        return INCOMPLETE if left else END
    if at[16] != 2:
        return BAD_MAGIC
    length = <int32_t>be32(at + 8)
    if length < HEADER_SIZE - LENGTH_OVERHEAD:
        return BAD_LENGTH
    batch.size = <Py_ssize_t>length + LENGTH_OVERHEAD
    if batch.size > left:
        return INCOMPLETE
    batch.base_offset = <int64_t>be64(at)
    batch.leader_epoch = <int32_t>be32(at + 12)
    batch.crc = be32(at + 17)
    batch.attributes = <int16_t>be16(at + 21)
    batch.last_delta = <int32_t>be32(at + 23)
    batch.base_timestamp = <int64_t>be64(at + 27)
    batch.max_timestamp = <int64_t>be64(at + 35)
    batch.producer_id = <int64_t>be64(at + 43)
    batch.producer_epoch = <int16_t>be16(at + 51)
    batch.base_sequence = <int32_t>be32(at + 53)
    batch.count = <int32_t>be32(at + 57)
    if verify_crc and crc32c(at + CRC_FROM, batch.size - CRC_FROM) != batch.crc:
        return BAD_CRC
    if batch.count < 0 or batch.last_delta < 0 or batch.count > <int64_t>batch.last_delta + 1:
        return BAD_COUNT
    if not batch.attributes & COMPRESSION and batch.count > (batch.size - HEADER_SIZE) // RECORD_SIZE_MIN:
        return BAD_COUNT
    if batch.base_offset < 0 or batch.base_offset >= INT64_MAX - batch.last_delta:
        return BAD_ORDER
    batch.next_offset = batch.base_offset + batch.last_delta + 1
    return SOUND


cdef struct Rows:
    int64_t* position
    int64_t* base_offset
    int64_t* last_offset
    int64_t* max_timestamp
    int64_t* producer_id
    int16_t* producer_epoch
    int32_t* base_sequence
    int32_t* count
    int16_t* attributes
    int32_t* leader_epoch


cdef BatchStatus scan_into(
    const uint8_t* start, Py_ssize_t size, Py_ssize_t* pos, int64_t* due,
    bint verify_crc, Rows* rows, Py_ssize_t* row, Py_ssize_t capacity,
) noexcept nogil:
    """Fill rows until the walk ends; return the reason, ARRAYS_FULL if the arrays must grow."""
    cdef Batch batch
    cdef BatchStatus found
    cdef Py_ssize_t n
    while True:
        found = read_batch(start + pos[0], size - pos[0], verify_crc, &batch)
        if found == SOUND and batch.base_offset < due[0]:
            found = BAD_ORDER
        if found != SOUND:
            return found
        n = row[0]
        if n == capacity:
            return ARRAYS_FULL
        rows.position[n] = pos[0]
        rows.base_offset[n] = batch.base_offset
        rows.last_offset[n] = batch.next_offset - 1
        rows.max_timestamp[n] = batch.max_timestamp
        rows.producer_id[n] = batch.producer_id
        rows.producer_epoch[n] = batch.producer_epoch
        rows.base_sequence[n] = batch.base_sequence
        rows.count[n] = batch.count
        rows.attributes[n] = batch.attributes
        rows.leader_epoch[n] = batch.leader_epoch
        row[0] = n + 1
        due[0] = batch.next_offset
        pos[0] += batch.size


def scan(buf, Py_ssize_t pos=0, *, bint verify_crc=True, int64_t offset_min=0, batches_max=None):
    """See `plain.scan`."""
    cdef Py_buffer view
    cdef Rows rows
    cdef Py_ssize_t row = 0, capacity = 0, limit
    cdef int64_t due = offset_min
    cdef BatchStatus found = ARRAYS_FULL
    cdef list columns = [python_array(code) for code in SCAN_TYPECODES]
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        if pos < 0 or pos > view.len:
            raise ValueError(f"position {pos} is outside a buffer of {view.len} bytes")
        limit = (view.len - pos) // HEADER_SIZE
        if batches_max is not None:
            limit = min(limit, max(<object>0, batches_max))
        while True:
            capacity = min(limit, max(1024, 2 * capacity))
            resize(columns, capacity)
            rows = pointers(columns)
            with nogil:
                found = scan_into(
                    <const uint8_t*>view.buf, view.len, &pos, &due,
                    verify_crc, &rows, &row, capacity,
                )
            if found != ARRAYS_FULL:
                break
            if row == limit:
                found = FULL
                break
    finally:
        PyBuffer_Release(&view)
    resize(columns, row)
    return BatchScan(*columns, pos, REASONS[found])


cdef int resize(list columns, Py_ssize_t size) except -1:
    for column in columns:
        array.resize(column, size)
    return 0


cdef Rows pointers(list columns):
    cdef Rows rows
    rows.position = <int64_t*>(<array.array>columns[0]).data.as_voidptr
    rows.base_offset = <int64_t*>(<array.array>columns[1]).data.as_voidptr
    rows.last_offset = <int64_t*>(<array.array>columns[2]).data.as_voidptr
    rows.max_timestamp = <int64_t*>(<array.array>columns[3]).data.as_voidptr
    rows.producer_id = <int64_t*>(<array.array>columns[4]).data.as_voidptr
    rows.producer_epoch = <int16_t*>(<array.array>columns[5]).data.as_voidptr
    rows.base_sequence = <int32_t*>(<array.array>columns[6]).data.as_voidptr
    rows.count = <int32_t*>(<array.array>columns[7]).data.as_voidptr
    rows.attributes = <int16_t*>(<array.array>columns[8]).data.as_voidptr
    rows.leader_epoch = <int32_t*>(<array.array>columns[9]).data.as_voidptr
    return rows
