# Part of _native: a pool of large, short-lived buffers.

cdef enum:
    POOLED_LOG2_MIN = 16  # 64 KiB; malloc itself caches smaller blocks
    POOLED_LOG2_MAX = 26  # 64 MiB
    POOL_BYTES_MAX = 128 * 1024 * 1024  # bytes in all free lists

#: Free blocks by size, as log2. Each block begins with a pointer to the next one. Access them
#: only while holding the GIL.
cdef char* free_lists[POOLED_LOG2_MAX + 1]
cdef Py_ssize_t pool_bytes = 0


cdef class PooledBuffer:
    """A writable buffer from the pool. It may contain data from its previous use.

    A fetch of a few MiB is received into one such buffer and decoded into others, many times a
    second. malloc would return such blocks to the kernel each time. The kernel would then map and
    clear every page again, which takes a fifth of the time of a fetch.
    """

    cdef char* at
    cdef Py_ssize_t size
    cdef int size_class  # -1: none

    def __cinit__(self, Py_ssize_t size):
        global pool_bytes
        cdef Py_ssize_t capacity = size
        self.size = size
        self.size_class = -1
        if (1 << POOLED_LOG2_MIN) <= size <= (1 << POOLED_LOG2_MAX):
            self.size_class = POOLED_LOG2_MIN
            while (1 << self.size_class) < size:
                self.size_class += 1
            capacity = 1 << self.size_class
            self.at = free_lists[self.size_class]
        if self.at != NULL:
            free_lists[self.size_class] = (<char**>self.at)[0]
            pool_bytes -= capacity
            return
        self.at = <char*>PyMem_RawMalloc(capacity)
        if self.at == NULL:
            raise MemoryError(f"cannot allocate a buffer of {size} bytes")

    def __dealloc__(self):
        global pool_bytes
        if self.at == NULL:
            return
        if self.size_class >= 0 and pool_bytes + (1 << self.size_class) <= POOL_BYTES_MAX:
            (<char**>self.at)[0] = free_lists[self.size_class]
            free_lists[self.size_class] = self.at
            pool_bytes += 1 << self.size_class
        else:
            PyMem_RawFree(self.at)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, 0, flags)


def pooled_buffer(Py_ssize_t size):
    """See `plain.pooled_buffer`."""
    if size < 0:
        raise ValueError(f"buffer size must not be negative: {size}")
    return memoryview(PooledBuffer(size))
