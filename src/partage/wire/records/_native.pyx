# cython: language_level=3, cdivision=True
"""The compiled record decoder. `plain` implements and documents the same contract in Python.

Bounds checks compare the bytes left (``end - at``) with the size to read before a pointer moves.
They never compute ``at + size`` first, because that sum may wrap.
"""

from array import array as python_array

from cpython cimport array
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport (
    INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy, memset

from partage.wire.primitives import MalformedError
from partage.wire.records.columns import (
    SCAN_TYPECODES,
    BatchScan,
    BinaryBuffers,
    HeaderColumns,
    RecordColumns,
)
from partage.wire.records.compression import DECOMPRESSED_MAX, decompress


cdef extern from "Python.h":
    # A tuple of bytes and numbers cannot be part of a reference cycle. The garbage collector
    # untracks such tuples too, but only after it has visited every tuple of a large list.
    void PyObject_GC_UnTrack(object tracked)


cdef extern from "_crc32c.h" nogil:
    void crc32c_init()
    uint32_t crc32c(const uint8_t* at, size_t size)
    uint32_t crc32c_by_tables(uint32_t crc, const uint8_t* at, size_t size)

crc32c_init()


def checksums(const uint8_t[::1] content):
    """Return the CRC-32C as computed on this machine, and as computed by tables. For tests."""
    cdef size_t size = content.shape[0]
    cdef const uint8_t* at = &content[0] if size else NULL
    return crc32c(at, size), ~crc32c_by_tables(~<uint32_t>0, at, size)


cdef enum:
    HEADER_SIZE = 61
    LENGTH_OVERHEAD = 12
    CRC_FROM = 21
    RECORD_SIZE_MIN = 7
    COMPRESSION = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    INT32_MAX = 0x7FFFFFFF

cdef enum BatchStatus:
    SOUND
    END
    INCOMPLETE
    FULL
    BAD_MAGIC
    BAD_LENGTH
    BAD_CRC
    BAD_ORDER
    BAD_COUNT
    ARRAYS_FULL

REASONS = (None, "end", "incomplete", "full", "magic", "length", "crc", "order", "count")


include "_batches.pxi"
include "_fields.pxi"
include "_walk.pxi"
include "_buffers.pxi"
include "_columns.pxi"


cdef inline object blob_object(const uint8_t* at, Py_ssize_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>at, size)


cdef tuple header_tuple(const uint8_t* at, const uint8_t* end):
    """Return the headers; None if they do not fit the bytes up to ``end`` exactly."""
    cdef int64_t count = 0
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef Py_ssize_t key_size = 0, value_size = 0
    cdef list headers
    at = read_header_count(at, end, &count)
    if at == NULL:
        return None
    if count == 0:
        return () if at == end else None
    headers = []
    for _ in range(count):
        at = read_header(at, end, &key, &key_size, &value, &value_size)
        if at == NULL:
            return None
        name = (<bytes>blob_object(key, key_size)).decode("utf-8", "replace")
        headers.append((name, blob_object(value, value_size)))
    return tuple(headers) if at == end else None


cdef class RecordSink(Sink):
    """A sink that collects records as tuples."""

    cdef list records

    def __cinit__(self, from_offset, to_offset):
        self.from_offset = self.next_offset = from_offset
        self.to_offset = to_offset
        self.records = []

    cdef bint read_records(self, const uint8_t* at, const uint8_t* end, Batch* batch) except -1:
        cdef Record record
        cdef int32_t index
        cdef int64_t offset, timestamp
        cdef tuple headers
        for index in range(batch.count):
            at = read_record(at, end, batch.last_delta, &record)
            if at == NULL:
                raise malformed(batch, index, "does not fit the bytes left")
            offset = batch.base_offset + record.offset_delta
            if offset < self.from_offset or offset >= self.to_offset:
                continue
            headers = header_tuple(record.headers, at)
            if headers is None:
                raise malformed(batch, index, "has malformed headers")
            timestamp = batch.max_timestamp
            if not batch.attributes & LOG_APPEND_TIME:
                timestamp = saturated_sum(batch.base_timestamp, record.timestamp_delta)
            row = (
                offset,
                timestamp,
                blob_object(record.key, record.key_size),
                blob_object(record.value, record.value_size),
                headers,
            )
            PyObject_GC_UnTrack(row)
            PyList_Append(self.records, row)
        if at != end:
            raise malformed(batch, batch.count, "is beyond the declared record count")
        return False


cdef class PairSink(Sink):
    """A sink that collects keys and values."""

    cdef list pairs

    def __cinit__(self):
        self.from_offset = self.next_offset = 0
        self.to_offset = INT64_MAX
        self.pairs = []

    cdef bint read_records(self, const uint8_t* at, const uint8_t* end, Batch* batch) except -1:
        cdef Record record
        cdef int32_t index
        for index in range(batch.count):
            at = read_record(at, end, batch.last_delta, &record)
            if at == NULL:
                raise malformed(batch, index, "does not fit the bytes left")
            row = (
                blob_object(record.key, record.key_size),
                blob_object(record.value, record.value_size),
            )
            PyObject_GC_UnTrack(row)
            PyList_Append(self.pairs, row)
        if at != end:
            raise malformed(batch, batch.count, "is beyond the declared record count")
        return False


def decode_records(
    blobs, from_offset=0, to_offset=INT64_MAX, *, verify_crc=True,
    decompressed_max=DECOMPRESSED_MAX, read_committed_aborted=None,
):
    """See `plain.decode_records`."""
    cdef RecordSink sink = RecordSink(from_offset, to_offset)
    walk(blobs, sink, verify_crc, decompressed_max, read_committed_aborted)
    return sink.records


def decode_pairs(blobs, *, verify_crc=True, decompressed_max=DECOMPRESSED_MAX):
    """See `plain.decode_pairs`."""
    cdef PairSink sink = PairSink()
    walk(blobs, sink, verify_crc, decompressed_max, None)
    return sink.pairs


def uninitialized_buffer(Py_ssize_t size):
    """See `plain.uninitialized_buffer`. The previous content of the memory is still there."""
    if size < 0:
        raise ValueError(f"buffer size must not be negative: {size}")
    return PyByteArray_FromStringAndSize(NULL, size)


def check_records(payload, int32_t count):
    """See `plain.check_records`."""
    cdef Py_buffer view
    cdef const char* fault = NULL
    cdef int64_t index = 0
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            fault = first_fault(
                <const uint8_t*>view.buf, <const uint8_t*>view.buf + view.len, count, &index
            )
    finally:
        PyBuffer_Release(&view)
    if fault != NULL:
        raise MalformedError(f"record {index} of {count} {fault.decode()}")


cdef const char* first_fault(
    const uint8_t* at, const uint8_t* end, int32_t count, int64_t* index
) noexcept nogil:
    """Return what is wrong with the first invalid record and set ``index`` to it; NULL if none."""
    cdef Record record
    cdef int32_t i
    cdef int64_t left
    cdef const uint8_t* inner
    cdef const uint8_t* key = NULL
    cdef Py_ssize_t size = 0
    for i in range(count):
        index[0] = i
        at = read_record(at, end, INT32_MAX, &record)
        if at == NULL:
            return "does not fit the bytes left"
        if record.offset_delta != i:
            return "has an offset out of order"
        left = 0
        inner = read_header_count(record.headers, at, &left)
        while inner != NULL and left > 0:
            inner = read_header(inner, at, &key, &size, &key, &size)
            left -= 1
        if inner != at:
            return "has malformed headers"
    index[0] = count
    if at != end:
        return "is beyond the declared record count"
    return NULL
