# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.acks` with a C table in place of a dict of ints."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t

from topo.hot.compiled.columns cimport close_pair, read_pair, word_at
from topo.hot.compiled.table cimport Slot, Table, table_add, table_bytes, table_clear, table_close, table_find, table_open


cdef class Acks:
    cdef Table _table

    def __cinit__(self):
        table_open(&self._table)

    def __dealloc__(self):
        table_close(&self._table)

    def __len__(self):
        return self._table.alive

    def __sizeof__(self):
        return object.__sizeof__(self) + table_bytes(&self._table)

    cdef int _fold(self, uint64_t root, uint64_t value) except -1:
        cdef Slot *slot = table_find(&self._table, root)
        if slot == NULL:
            slot = table_add(&self._table, root, 0)
        slot.value ^= value
        return 0

    def fold(self, roots, values):
        cdef Py_buffer of_roots, of_values
        cdef Py_ssize_t at = 0, count = read_pair(roots, values, &of_roots, &of_values)
        cdef uint64_t root, value
        try:
            while at < count:
                root, value = word_at(of_roots.buf, at), word_at(of_values.buf, at)
                at += 1
                while at < count and word_at(of_roots.buf, at) == root:
                    value ^= word_at(of_values.buf, at)
                    at += 1
                if root:
                    self._fold(root, value)
        finally:
            close_pair(&of_roots, &of_values)

    def add(self, roots, edges, uint64_t out=0):
        cdef uint64_t edge
        for root, value in zip(roots, edges, strict=True):
            edge = value
            self._fold(root, edge ^ out)

    def merge(self, Acks other):
        cdef size_t at
        if not self._table.alive:
            self._table, other._table = other._table, self._table
            return
        for at in range(other._table.first, other._table.end):
            self._fold(other._table.slots[at].key, other._table.slots[at].value)
        table_clear(&other._table)

    def take(self):
        cdef size_t at
        cdef bytes roots = PyBytes_FromStringAndSize(NULL, 8 * self._table.end)
        cdef bytes values = PyBytes_FromStringAndSize(NULL, 8 * self._table.end)
        for at in range(self._table.end):
            (<uint64_t *>PyBytes_AS_STRING(roots))[at] = self._table.slots[at].key
            (<uint64_t *>PyBytes_AS_STRING(values))[at] = self._table.slots[at].value
        table_clear(&self._table)
        return roots, values

    def clear(self):
        table_clear(&self._table)
