# Part of _native: the fields of a record. Nothing here uses the Python API.

cdef enum:
    START_MAX = 21  # bytes between a record's length and its key: at most 1, 10, 5 and 5


cdef struct Record:
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t* key
    Py_ssize_t key_size  # -1: null
    const uint8_t* value
    Py_ssize_t value_size  # -1: null
    const uint8_t* headers  # position of their count


cdef inline const uint8_t* read_varint(
    const uint8_t* at, const uint8_t* end, int bits, uint64_t* raw
) noexcept nogil:
    """Return the position after the varint at ``at``; NULL if truncated or wider than ``bits``.

    ``raw`` stays zig-zag encoded: an odd value is negative. `signed` decodes it.
    """
    cdef uint64_t byte
    if at == end:
        return NULL
    raw[0] = at[0]
    at += 1
    if raw[0] >= 0x80:
        if at == end:
            return NULL
        byte = at[0]
        at += 1
        raw[0] += (byte << 7) - 0x80
        if byte >= 0x80:
            return read_rest(at, end, bits, raw)
    return at


cdef const uint8_t* read_rest(
    const uint8_t* at, const uint8_t* end, int bits, uint64_t* raw
) noexcept nogil:
    """Read the bytes of a varint after the second one."""
    cdef uint64_t byte = 0x80
    cdef int shift = 14
    raw[0] -= 1 << 14  # the continuation bit of the second byte
    while byte >= 0x80:
        if at == end:
            return NULL
        byte = at[0]
        at += 1
        # The last group holds bits - shift bits, and no group may follow it.
        if bits - shift < 7 and byte >> (bits - shift):
            return NULL
        raw[0] |= (byte & 0x7F) << shift
        shift += 7
    return at


cdef inline int64_t signed(uint64_t raw) noexcept nogil:
    """Return the signed value of a zig-zag encoded number."""
    return <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)


cdef inline const uint8_t* read_blob(
    const uint8_t* at, const uint8_t* end, const uint8_t** blob, Py_ssize_t* size
) noexcept nogil:
    """Return the position after the length and the bytes at ``at``; NULL if they do not fit."""
    cdef uint64_t raw = 0
    at = read_varint(at, end, 32, &raw)
    if at == NULL:
        return NULL
    return take_blob(at, end, raw, blob, size)


cdef inline const uint8_t* take_blob(
    const uint8_t* at, const uint8_t* end, uint64_t raw, const uint8_t** blob, Py_ssize_t* size
) noexcept nogil:
    """Like `read_blob`, after the length has been read into ``raw``."""
    blob[0] = at
    if raw & 1:  # negative
        size[0] = -1
        return at if raw == 1 else NULL
    size[0] = raw >> 1
    return at + size[0] if size[0] <= end - at else NULL


cdef inline const uint8_t* read_record(
    const uint8_t* at, const uint8_t* end, int32_t delta_max, Record* record
) noexcept nogil:
    """Return the position after the record at ``at``; NULL if it is malformed.

    Does not read its headers.
    """
    cdef uint64_t raw = 0
    cdef Py_ssize_t length
    cdef const uint8_t* stop
    at = read_varint(at, end, 32, &raw)
    if at == NULL or raw & 1 or raw == 0:
        return NULL
    length = raw >> 1
    if length > end - at:
        return NULL
    stop = at + length
    if length >= START_MAX:
        at = read_start(at, stop, True, delta_max, record)
    else:
        at = read_start(at, stop, False, delta_max, record)
    if at == NULL:
        return NULL
    record.headers = read_blob(at, stop, &record.value, &record.value_size)
    return stop if record.headers != NULL else NULL


cdef inline const uint8_t* read_start(
    const uint8_t* at, const uint8_t* stop, bint is_long, int32_t delta_max, Record* record
) noexcept nogil:
    """Return the position after the key; NULL if the key or a field before it is malformed.

    ``is_long`` means that the fields before the key's bytes fit at any width. Callers pass a
    constant, so the inlined code needs no bounds checks for these fields.
    """
    cdef uint64_t raw = 0
    at += 1  # the unused attributes
    at = read_varint(at, at + 10 if is_long else stop, 64, &raw)
    if at == NULL:
        return NULL
    record.timestamp_delta = signed(raw)
    at = read_varint(at, at + 5 if is_long else stop, 32, &raw)
    if at == NULL or raw & 1 or raw >> 1 > <uint64_t>delta_max:
        return NULL
    record.offset_delta = raw >> 1
    at = read_varint(at, at + 5 if is_long else stop, 32, &raw)
    if at == NULL:
        return NULL
    return take_blob(at, stop, raw, &record.key, &record.key_size)


cdef const uint8_t* read_header_count(
    const uint8_t* at, const uint8_t* end, int64_t* count
) noexcept nogil:
    """Return the position after the header count; NULL if the count cannot fit (two bytes each)."""
    cdef uint64_t raw = 0
    at = read_varint(at, end, 32, &raw)
    if at == NULL or raw & 1 or <int64_t>(raw >> 1) > (end - at) // 2:
        return NULL
    count[0] = raw >> 1
    return at


cdef const uint8_t* read_header(
    const uint8_t* at, const uint8_t* end,
    const uint8_t** key, Py_ssize_t* key_size, const uint8_t** value, Py_ssize_t* value_size,
) noexcept nogil:
    """Return the position after the header at ``at``; NULL if it is malformed."""
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
