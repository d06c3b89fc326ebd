# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.ids` with Python's own generator, the Mersenne twister, in C: the same seed gives the same ids."""

from array import array
from os import urandom
from random import Random

from cpython.buffer cimport PyBuffer_Release
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from topo.hot.compiled.columns cimport read_column, read_words, word_at

from topo.ids import SUSPECT_BIT, TRACED_BIT

cdef enum:
    SIZE = 624
    MIDDLE = 397

cdef uint64_t _TRACED = TRACED_BIT
cdef uint64_t _SUSPECT = SUSPECT_BIT


cdef bint _has_zero(const char *column, Py_ssize_t length) noexcept nogil:
    """Whether eight zero bytes follow each other, at any alignment: one of them is the highest of a word then."""
    cdef Py_ssize_t at, first, last
    for at in range(7, length, 8):
        if column[at] == 0:
            first = last = at
            while first > 0 and column[first - 1] == 0:
                first -= 1
            while last < length - 1 and column[last + 1] == 0:
                last += 1
            if last - first >= 7:
                return True
    return False


cdef uint64_t _united(const void *words, Py_ssize_t count) noexcept nogil:
    """The OR of all words."""
    cdef uint64_t found = 0
    cdef Py_ssize_t at
    for at in range(count):
        found |= word_at(words, at)
    return found


def traced_places(roots):
    cdef Py_buffer view
    cdef Py_ssize_t count = read_column(roots, &view), at
    cdef list places = []
    try:
        if _united(view.buf, count) & _TRACED:
            for at in range(count):
                if word_at(view.buf, at) & _TRACED:
                    places.append(at)
        return places
    finally:
        PyBuffer_Release(&view)


def has_suspect(roots):
    cdef Py_buffer view
    cdef Py_ssize_t count = read_column(roots, &view)
    try:
        return (_united(view.buf, count) & _SUSPECT) != 0
    finally:
        PyBuffer_Release(&view)


cdef class Ids:
    cdef uint32_t _state[SIZE]
    cdef uint32_t _next

    def __init__(self, seed=None):
        cdef Py_ssize_t at
        _, words, _ = Random(seed if seed is not None else urandom(32)).getstate()
        for at in range(SIZE):
            self._state[at] = words[at]
        self._next = words[SIZE]

    cdef void _renew(self) noexcept nogil:
        cdef uint32_t *state = self._state
        cdef uint32_t at, word
        for at in range(SIZE):
            word = (state[at] & 0x80000000U) | (state[(at + 1) % SIZE] & 0x7FFFFFFFU)
            state[at] = state[(at + MIDDLE) % SIZE] ^ (word >> 1) ^ (0x9908B0DFU if word & 1 else 0U)
        self._next = 0

    cdef uint32_t _half(self) noexcept nogil:
        cdef uint32_t word
        if self._next >= SIZE:
            self._renew()
        word = self._state[self._next]
        self._next += 1
        word ^= word >> 11
        word ^= (word << 7) & 0x9D2C5680U
        word ^= (word << 15) & 0xEFC60000U
        return word ^ (word >> 18)

    cdef void _draw(self, uint64_t *words, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t at
        cdef uint64_t low
        for at in range(count):
            low = self._half()
            words[at] = low | <uint64_t>self._half() << 32

    cdef void _telescope(self, uint64_t *states, uint64_t *edges, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t at
        while True:
            self._draw(states, count + 1)
            for at in range(count):
                edges[at] = states[at] ^ states[at + 1]
            if not _has_zero(<const char *>edges, 8 * count):
                return

    def column(self, Py_ssize_t count):
        cdef bytes column
        cdef char *words
        if count < 0:
            raise ValueError("the number of ids is negative")
        column = PyBytes_FromStringAndSize(NULL, 8 * count)
        words = PyBytes_AS_STRING(column)
        while True:
            self._draw(<uint64_t *>words, count)
            if not _has_zero(words, 8 * count):
                return column

    def roots(self, count):
        return array("Q", self.column(count)).tolist()

    def unmarked_roots(self, count):
        return array("Q", self.unmarked_column(count)).tolist()

    def unmarked_column(self, count):
        cdef bytes column
        cdef char *words
        cdef Py_ssize_t at
        while True:
            column = self.column(count)
            words = PyBytes_AS_STRING(column)  # before anything else has a reference to it
            for at in range(7, len(column), 8):
                words[at] &= 0x1F
            if not _has_zero(words, len(column)):
                return column

    def telescoped(self, Py_ssize_t count):
        cdef bytes states = PyBytes_FromStringAndSize(NULL, 8 * count + 8)
        cdef bytes edges = PyBytes_FromStringAndSize(NULL, 8 * count)
        self._telescope(<uint64_t *>PyBytes_AS_STRING(states), <uint64_t *>PyBytes_AS_STRING(edges), count)
        return array("Q", states), edges

    def weave(self, roots, ends, bytearray owed):
        cdef Py_ssize_t inputs = len(owed) >> 3, count = inputs, start = 0, at, row, end
        cdef list bounds = None
        cdef bytes edges, repeated
        cdef uint64_t *states
        cdef uint64_t *owes = <uint64_t *>PyByteArray_AS_STRING(owed)
        cdef uint64_t *drawn
        cdef uint64_t *root_of
        cdef uint64_t root
        cdef Py_buffer view
        if ends is not None:
            bounds = ends if type(ends) is list else list(ends)
            count = bounds[inputs - 1] if inputs == len(bounds) and inputs else -1
            if count < 0:
                raise ValueError("the number of inputs is not that of their ends")
        edges = PyBytes_FromStringAndSize(NULL, 8 * count)
        drawn = <uint64_t *>PyBytes_AS_STRING(edges)
        states = <uint64_t *>malloc(8 * (count + 1))
        if states == NULL:
            raise MemoryError()
        try:
            self._telescope(states, drawn, count)
            if bounds is None:
                for at in range(count):
                    owes[at] ^= drawn[at]
                return roots, edges
            repeated = PyBytes_FromStringAndSize(NULL, 8 * count)
            root_of = <uint64_t *>PyBytes_AS_STRING(repeated)
            read_words(roots, inputs, &view)
            try:
                for at in range(inputs):
                    end = bounds[at]
                    if not start <= end <= count:
                        raise ValueError("ends of inputs do not ascend")
                    owes[at] ^= states[start] ^ states[end]
                    root = word_at(view.buf, at)
                    for row in range(start, end):
                        root_of[row] = root
                    start = end
            finally:
                PyBuffer_Release(&view)
            return repeated, edges
        finally:
            free(states)
