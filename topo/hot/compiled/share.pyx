# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.share`: rows are counted by target first, so that each share is made at its size and filled in one pass."""

from operator import itemgetter

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches, PyErr_Occurred
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc

from topo.hot.compiled.columns cimport read_column, word_at

from topo.hot.plain.share import share as share_plainly

cdef extern from *:
    PyObject *PyDict_GetItemWithError(object of, object key) noexcept


cdef int _leave_unless_exception() except -1:
    """Clear the Exception that is being raised; leave with one of another class."""
    if PyErr_Occurred() != NULL:
        if not PyErr_ExceptionMatches(Exception):
            return -1
        PyErr_Clear()
    return 0


cdef class _Places:
    """For each row its position among the targets, and for each target the number of its rows."""

    cdef Py_ssize_t *of_rows
    cdef Py_ssize_t *counts

    def __cinit__(self, Py_ssize_t rows, Py_ssize_t targets):
        self.of_rows = <Py_ssize_t *>malloc(sizeof(Py_ssize_t) * (rows + 1))
        self.counts = <Py_ssize_t *>calloc(targets + 1, sizeof(Py_ssize_t))
        if self.of_rows == NULL or self.counts == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.of_rows)
        free(self.counts)


def share(rows, fields, routes, Py_ssize_t targets, look_up, *columns):
    cdef Py_ssize_t count = len(rows), at, position, field = -1, width = len(fields)
    cdef _Places places
    cdef PyObject *found
    cdef tuple row, wanted = tuple(fields)
    cdef list every, result = [], filled
    cdef object key_of
    if type(rows) is not list or type(routes) is not dict or targets < 1:
        return share_plainly(rows, fields, routes, targets, look_up, *columns)
    # A copy: looking up a key runs user code, which may change the list.
    every = list(rows)
    count = len(every)
    places = _Places(count, targets)
    key_of = itemgetter(*wanted)
    if width == 1:
        field = wanted[0]
    for at in range(count):
        value = every[at]
        if type(value) is not tuple:
            return share_plainly(rows, fields, routes, targets, look_up, *columns)
        row = value
        key = row[field] if 0 <= field < len(row) else key_of(row)
        found = PyDict_GetItemWithError(routes, key)
        if found == NULL:
            _leave_unless_exception()
            position = look_up(key)
        else:
            position = <object>found
        if not 0 <= position < targets:
            return share_plainly(rows, fields, routes, targets, look_up, *columns)
        places.of_rows[at] = position
        places.counts[position] += 1
    filled = [None] * targets
    for position in range(targets):
        if places.counts[position]:
            one = (position, PyList_New(places.counts[position]), PyList_New(places.counts[position]), [])
            filled[position] = one
            result.append(one)
    _fill_lists(filled, every, places, count)
    for column in columns:
        _fill_column(filled, column, places, targets, count)
    return result


def share_ids(ids, values, Py_ssize_t targets):
    cdef Py_ssize_t count, at, position
    cdef Py_buffer view
    cdef _Places places
    cdef list filled, result = []
    if targets < 1:
        raise ValueError("ids cannot be shared among no targets")
    count = read_column(ids, &view)
    try:
        places = _Places(count, targets)
        for at in range(count):
            position = <Py_ssize_t>(word_at(view.buf, at) % <uint64_t>targets)
            places.of_rows[at] = position
            places.counts[position] += 1
    finally:
        PyBuffer_Release(&view)
    filled = [None] * targets
    for position in range(targets):
        if places.counts[position]:
            filled[position] = (position, None, None, [])
    _fill_column(filled, ids, places, targets, count)
    _fill_column(filled, values, places, targets, count)
    for one in filled:
        if one is not None:
            result.append((one[0], *one[3]))
    return result


cdef int _fill_lists(list filled, list rows, _Places places, Py_ssize_t count) except -1:
    """Put places and rows into the lists of their shares."""
    cdef Py_ssize_t at, position, row
    cdef tuple one
    cdef object number, values  # declared: of a C number, which Cython would infer, the reference below would be to nothing
    cdef Py_ssize_t *taken = <Py_ssize_t *>calloc(len(filled), sizeof(Py_ssize_t))
    if taken == NULL:
        raise MemoryError()
    try:
        for at in range(count):
            position = places.of_rows[at]
            one = filled[position]
            row = taken[position]
            taken[position] += 1
            number, values = at, rows[at]
            Py_INCREF(number)
            PyList_SET_ITEM(<list>one[1], row, number)
            Py_INCREF(values)
            PyList_SET_ITEM(<list>one[2], row, values)
    finally:
        free(taken)
    return 0


cdef int _fill_column(list filled, column, _Places places, Py_ssize_t targets, Py_ssize_t count) except -1:
    """Append to each share its words of a column."""
    cdef Py_ssize_t at, position, words
    cdef Py_buffer view
    cdef bytes part
    cdef uint64_t **ends = <uint64_t **>calloc(targets, sizeof(uint64_t *))
    if ends == NULL:
        raise MemoryError()
    try:
        words = read_column(column, &view)
        try:
            if words and words != count:
                raise ValueError("a column has neither a word for each row nor none")
            count = words
            for position in range(targets):
                if places.counts[position]:
                    part = PyBytes_FromStringAndSize(NULL, 8 * places.counts[position]) if count else b""
                    (<list>(<tuple>filled[position])[3]).append(part)
                    ends[position] = <uint64_t *>PyBytes_AS_STRING(part)
            for at in range(count):
                position = places.of_rows[at]
                ends[position][0] = word_at(view.buf, at)
                ends[position] += 1
        finally:
            PyBuffer_Release(&view)
    finally:
        free(ends)
    return 0
