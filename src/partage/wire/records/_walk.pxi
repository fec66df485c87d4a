# Part of _native: iteration over the batches of a fetch.

cdef object malformed(Batch* batch, int64_t index, str what):
    return MalformedError(f"record {index} of the batch at offset {batch.base_offset} {what}")


cdef class Sink:
    """Receives the records of the batches in a walk."""

    cdef int64_t from_offset, to_offset, next_offset
    cdef Py_ssize_t likely  # estimated batches left in the buffer, this one included

    cdef bint read_records(self, const uint8_t* at, const uint8_t* end, Batch* batch) except -1:
        """Read the batch's records, which end exactly at ``end``; return True to stop the walk."""
        raise NotImplementedError


cdef class AbortedTransactionFilter:
    """Recognizes batches of aborted transactions, as a consumer must (KIP-98).

    A producer's batches are skipped from the first offset of its aborted transaction up to the
    abort marker.
    """

    cdef list pending
    cdef set producers

    def __cinit__(self, aborted):
        self.pending = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self.producers = set()

    cdef int start_reached(self, Batch* batch) except -1:
        """Start the transactions whose first offset was reached; call it for every batch."""
        while self.pending and self.pending[-1][0] < batch.next_offset:
            self.producers.add(self.pending.pop()[1])
        return 0

    cdef bint is_aborted(self, Batch* batch) except -1:
        return batch.attributes & TRANSACTIONAL and batch.producer_id in self.producers

    cdef int read_marker(self, const uint8_t* at, const uint8_t* end, Batch* batch) except -1:
        """Read a control batch; an abort marker ends its producer's transaction."""
        cdef Record record
        if batch.count == 0:
            return 0
        if read_record(at, end, batch.last_delta, &record) == NULL or record.key_size < 4:
            raise malformed(batch, 0, "is not a transaction marker")
        if be16(record.key + 2) == 0:
            self.producers.discard(batch.producer_id)
        return 0


cdef int walk(blobs, Sink sink, bint verify_crc, Py_ssize_t decompressed_max, aborted) except -1:
    """Pass the batches in range to ``sink`` and advance its ``next_offset`` after each."""
    cdef Py_buffer view
    cdef bint stop
    cdef AbortedTransactionFilter transactions = None if aborted is None else AbortedTransactionFilter(aborted)
    for blob in (blobs,) if PyObject_CheckBuffer(blobs) else blobs:
        PyObject_GetBuffer(blob, &view, PyBUF_SIMPLE)
        try:
            stop = walk_blob(
                blob, <const uint8_t*>view.buf, view.len, sink,
                verify_crc, decompressed_max, transactions,
            )
        finally:
            PyBuffer_Release(&view)
        if stop:
            break
    return 0


cdef bint walk_blob(
    blob, const uint8_t* start, Py_ssize_t size, Sink sink,
    bint verify_crc, Py_ssize_t decompressed_max, AbortedTransactionFilter transactions,
) except -1:
    """Walk one blob; return True to skip all later blobs."""
    cdef Batch batch
    cdef Py_ssize_t pos = 0
    cdef BatchStatus found
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef bint control, wanted
    cdef bytes unpacked
    while True:
        found = read_batch(start + pos, size - pos, verify_crc, &batch)
        if found == END or found == INCOMPLETE:
            return False
        if found != SOUND:
            raise MalformedError(f"record batch at byte {pos} is invalid: {REASONS[found]}")
        if batch.base_offset >= sink.to_offset:
            sink.next_offset = max(sink.next_offset, sink.to_offset)  # no more records in range
            return True
        control = batch.attributes & CONTROL
        wanted = not control and batch.count > 0 and batch.next_offset > sink.from_offset
        if transactions is not None:
            transactions.start_reached(&batch)
            if control:
                wanted = True
            elif transactions.is_aborted(&batch):
                wanted = False
        if wanted:
            at = start + pos + HEADER_SIZE
            end = start + pos + batch.size
            if batch.attributes & COMPRESSION:
                unpacked = decompress(
                    batch.attributes & COMPRESSION,
                    memoryview(blob).cast("B")[pos + HEADER_SIZE : pos + batch.size],
                    decompressed_max,
                )
                at = <const uint8_t*>PyBytes_AS_STRING(unpacked)
                end = at + PyBytes_GET_SIZE(unpacked)
                if batch.count > (end - at) // RECORD_SIZE_MIN:
                    raise MalformedError(f"record batch at byte {pos} is invalid: count")
            if control:
                transactions.read_marker(at, end, &batch)
            else:
                sink.likely = (size - pos + batch.size - 1) // batch.size
                if sink.read_records(at, end, &batch):
                    return True
        sink.next_offset = max(sink.next_offset, min(batch.next_offset, sink.to_offset))
        pos += batch.size
