# Part of _native: the fields of a record. Nothing here touches Python.

cdef struct Record:
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t* key
    Py_ssize_t key_size  # -1: null
    const uint8_t* value
    Py_ssize_t value_size  # -1: null
    const uint8_t* headers  # where their count stands


cdef inline const uint8_t* read_varint(
    const uint8_t* at, const uint8_t* end, int bits, int64_t* value
) noexcept nogil:
    """Position after the zig-zag varint at ``at``; NULL if cut short or wider than ``bits``."""
    cdef uint64_t raw, byte
    if at == end:
        return NULL
    raw = at[0]
    at += 1
    if raw >= 0x80:
        if at == end:
            return NULL
        byte = at[0]
        at += 1
        raw = (raw & 0x7F) | (byte & 0x7F) << 7
        if byte >= 0x80:
            at = read_rest(at, end, bits, &raw)
    value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return at


cdef const uint8_t* read_rest(
    const uint8_t* at, const uint8_t* end, int bits, uint64_t* raw
) noexcept nogil:
    """What a varint has beyond two bytes."""
    cdef uint64_t byte = 0x80
    cdef int shift = 14
    while byte >= 0x80:
        if at == end:
            return NULL
        byte = at[0]
        at += 1
        # The last group has room for bits - shift bits, and no other may follow it.
        if bits - shift < 7 and byte >> (bits - shift):
            return NULL
        raw[0] |= (byte & 0x7F) << shift
        shift += 7
    return at


cdef inline const uint8_t* read_blob(
    const uint8_t* at, const uint8_t* end, const uint8_t** blob, Py_ssize_t* size
) noexcept nogil:
    """Position after the length and the bytes at ``at``; NULL if they do not fit."""
    cdef int64_t length = 0
    at = read_varint(at, end, 32, &length)
    if at == NULL or length < -1 or length > end - at:
        return NULL
    blob[0] = at
    size[0] = <Py_ssize_t>length
    return at + length if length > 0 else at


cdef inline const uint8_t* read_record(
    const uint8_t* at, const uint8_t* end, int32_t delta_max, Record* record
) noexcept nogil:
    """Position after the record at ``at``, its headers unread; NULL if it is malformed."""
    cdef int64_t length = 0
    cdef const uint8_t* stop
    at = read_varint(at, end, 32, &length)
    if at == NULL or length < 1 or length > end - at:
        return NULL
    stop = at + length
    at = read_varint(at + 1, stop, 64, &record.timestamp_delta)  # after the unused attributes
    if at == NULL:
        return NULL
    at = read_varint(at, stop, 32, &record.offset_delta)
    if at == NULL or record.offset_delta < 0 or record.offset_delta > delta_max:
        return NULL
    at = read_blob(at, stop, &record.key, &record.key_size)
    if at == NULL:
        return NULL
    record.headers = read_blob(at, stop, &record.value, &record.value_size)
    return stop if record.headers != NULL else NULL


cdef const uint8_t* read_header_count(
    const uint8_t* at, const uint8_t* end, int64_t* count
) noexcept nogil:
    """Position after the count; NULL if there cannot be that many (each has two bytes)."""
    at = read_varint(at, end, 32, count)
    if at == NULL or count[0] < 0 or count[0] > (end - at) // 2:
        return NULL
    return at


cdef const uint8_t* read_header(
    const uint8_t* at, const uint8_t* end,
    const uint8_t** key, Py_ssize_t* key_size, const uint8_t** value, Py_ssize_t* value_size,
) noexcept nogil:
    """Position after the header at ``at``; NULL if it is malformed."""
    at = read_blob(at, end, key, key_size)
    if at == NULL or key_size[0] < 0:
        return NULL
    return read_blob(at, end, value, value_size)


cdef inline int64_t saturated_sum(int64_t left, int64_t right) noexcept nogil:
    if right > 0 and left > INT64_MAX - right:
        return INT64_MAX
    if right < 0 and left < INT64_MIN - right:
        return INT64_MIN
    return left + right


cdef inline int64_t microseconds(int64_t ms) noexcept nogil:
    if ms > INT64_MAX // 1000:
        return INT64_MAX
    if ms < -(INT64_MAX // 1000):
        return INT64_MIN
    return ms * 1000
