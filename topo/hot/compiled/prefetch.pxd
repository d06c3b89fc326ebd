# cython: language_level=3
"""Asking for memory before it is read, in loops whose elements lie apart."""

cdef extern from *:
    void __builtin_prefetch(const void *) noexcept nogil

cdef enum:
    AHEAD = 8  # elements from one stage of such a loop to the next: from asking for memory to reading it
