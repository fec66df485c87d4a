# Part of _native: memory for what is large and soon given back.

cdef enum:
    SHELVED_FROM = 16  # blocks of 64 KiB: what is smaller, malloc itself has at hand
    SHELVED_TO = 26  # of 64 MiB
    SHELVED_MAX = 128 * 1024 * 1024  # bytes on all shelves

#: Blocks that nobody uses, by the power of two that their size is; each begins with where the next
#: one is. To be touched under the interpreter's lock.
cdef char* shelves[SHELVED_TO + 1]
cdef Py_ssize_t shelved = 0


cdef class Room:
    """Some bytes, as a buffer that can be written; what was in this memory before is still there.

    A fetch of a few MiB goes from the kernel into one, and from there into others as columns, many
    times a second. malloc would give such blocks back to the kernel each time, which then has to
    find and to clear every page of them again: a fifth of the time that a fetch takes.
    """

    cdef char* at
    cdef Py_ssize_t size
    cdef int shelf  # -1: none

    def __cinit__(self, Py_ssize_t size):
        global shelved
        cdef Py_ssize_t capacity = size
        self.size = size
        self.shelf = -1
        if (1 << SHELVED_FROM) <= size <= (1 << SHELVED_TO):
            self.shelf = SHELVED_FROM
            while (1 << self.shelf) < size:
                self.shelf += 1
            capacity = 1 << self.shelf
            self.at = shelves[self.shelf]
        if self.at != NULL:
            shelves[self.shelf] = (<char**>self.at)[0]
            shelved -= capacity
            return
        self.at = <char*>PyMem_RawMalloc(capacity)
        if self.at == NULL:
            raise MemoryError(f"no room for {size} bytes")

    def __dealloc__(self):
        global shelved
        if self.at == NULL:
            return
        if self.shelf >= 0 and shelved + (1 << self.shelf) <= SHELVED_MAX:
            (<char**>self.at)[0] = shelves[self.shelf]
            shelves[self.shelf] = self.at
            shelved += 1 << self.shelf
        else:
            PyMem_RawFree(self.at)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, 0, flags)


def pooled_buffer(Py_ssize_t size):
    """See `plain.pooled_buffer`."""
    if size < 0:
        raise ValueError(f"no room of {size} bytes")
    return memoryview(Room(size))
