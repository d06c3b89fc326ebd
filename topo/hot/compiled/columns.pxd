# cython: language_level=3
"""Reading the words of a column, at any alignment."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef inline uint64_t word_at(const void *words, Py_ssize_t at) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, <const char *>words + 8 * at, 8)
    return word

cdef inline Py_ssize_t read_column(object column, Py_buffer *view) except -1:
    """Open a column. Returns the number of its words; the caller releases `view`, unless it raises."""
    PyObject_GetBuffer(column, view, PyBUF_SIMPLE)
    if view.len & 7:
        PyBuffer_Release(view)
        raise TypeError("the length of a column is not a multiple of 8 bytes")
    return view.len >> 3

cdef inline int read_words(object column, Py_ssize_t count, Py_buffer *view) except -1:
    """Open a column of that many words; the caller releases `view`, unless it raises."""
    if read_column(column, view) != count:
        PyBuffer_Release(view)
        raise ValueError("columns of unequal length")
    return 0

cdef inline Py_ssize_t read_pair(object roots, object values, Py_buffer *of_roots, Py_buffer *of_values) except -1:
    """Open columns of roots and of values. Returns the number of words in each; the caller calls `close_pair`, unless it raises."""
    cdef Py_ssize_t count = read_column(roots, of_roots)
    try:
        read_words(values, count, of_values)
    except:
        PyBuffer_Release(of_roots)
        raise
    return count

cdef inline void close_pair(Py_buffer *of_roots, Py_buffer *of_values) noexcept:
    PyBuffer_Release(of_values)
    PyBuffer_Release(of_roots)
