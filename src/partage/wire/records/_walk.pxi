# Part of _native: going over the batches of a fetch.

cdef object malformed(Batch* batch, int64_t index, str what):
    return MalformedError(f"record {index} of the batch at offset {batch.base_offset} {what}")


cdef class Sink:
    """Takes the records of the batches that a walk comes upon."""

    cdef int64_t from_offset, to_offset, next_offset
    cdef Py_ssize_t likely  # how many batches like this one the buffer has, this one included

    cdef bint take(self, const uint8_t* at, const uint8_t* end, Batch* batch) except -1:
        """Take the batch's records, which are the bytes up to ``end``; True to stop the walk."""
        raise NotImplementedError


cdef class AbortedTransactions:
    """Which batches belong to aborted transactions, as a consumer tells them (KIP-98).

    From its first offset on an aborted transaction's producer is skipped, until its marker.
    """

    cdef list ahead
    cdef set producers

    def __cinit__(self, aborted):
        self.ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self.producers = set()

    cdef int reach(self, Batch* batch) except -1:
        """Begin the transactions whose first offset has come; to be done for every batch."""
        while self.ahead and self.ahead[-1][0] < batch.next_offset:
            self.producers.add(self.ahead.pop()[1])
        return 0

    cdef bint skips(self, Batch* batch) except -1:
        return batch.attributes & TRANSACTIONAL and batch.producer_id in self.producers

    cdef int mark(self, const uint8_t* at, const uint8_t* end, Batch* batch) except -1:
        """Read a control batch: an abort marker ends its producer's transaction."""
        cdef Record record
        if batch.count == 0:
            return 0
        if read_record(at, end, batch.last_delta, &record) == NULL or record.key_size < 4:
            raise malformed(batch, 0, "is no transaction marker")
        if be16(record.key + 2) == 0:
            self.producers.discard(batch.producer_id)
        return 0


cdef int walk(blobs, Sink sink, bint verify_crc, Py_ssize_t decompressed_max, aborted) except -1:
    """Hand the batches in range to ``sink``; its ``next_offset`` moves with each."""
    cdef Py_buffer view
    cdef bint stop
    cdef AbortedTransactions transactions = None if aborted is None else AbortedTransactions(aborted)
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
    bint verify_crc, Py_ssize_t decompressed_max, AbortedTransactions transactions,
) except -1:
    """True when nothing after this blob is to be looked at."""
    cdef Batch batch
    cdef Py_ssize_t pos = 0
    cdef Found found
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef bint control, wanted
    cdef bytes unpacked
    while True:
        found = read_batch(start + pos, size - pos, verify_crc, &batch)
        if found == END or found == INCOMPLETE:
            return False
        if found != SOUND:
            raise MalformedError(f"record batch at byte {pos} is not sound: {REASONS[found]}")
        if batch.base_offset >= sink.to_offset:
            return True
        control = batch.attributes & CONTROL
        wanted = not control and batch.count > 0 and batch.next_offset > sink.from_offset
        if transactions is not None:
            transactions.reach(&batch)
            if control:
                wanted = True
            elif transactions.skips(&batch):
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
                    raise MalformedError(f"record batch at byte {pos} is not sound: count")
            if control:
                transactions.mark(at, end, &batch)
            else:
                sink.likely = (size - pos + batch.size - 1) // batch.size
                if sink.take(at, end, &batch):
                    return True
        sink.next_offset = max(sink.next_offset, min(batch.next_offset, sink.to_offset))
        pos += batch.size
