# cython: language_level=3
"""The compiled CRC-32C; `checksum` documents it."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "_crc32c.h" nogil:
    void crc32c_init()
    uint32_t crc32c_continued(uint32_t crc, const uint8_t* at, size_t size)

crc32c_init()

cdef enum:
    #: Other threads may run during longer computations, which take microseconds.
    NOGIL_SIZE = 32768


def crc32c(data, uint32_t value=0):
    """Return the CRC-32C of ``data``, continued from ``value``."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len < NOGIL_SIZE:
        value = crc32c_continued(value, <const uint8_t*>view.buf, view.len)
    else:
        with nogil:
            value = crc32c_continued(value, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return value
