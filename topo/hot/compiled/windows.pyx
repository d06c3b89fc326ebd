# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`topo.hot.plain.windows`: slots are computed in C, and found once for neighbours; ids go from column to column."""

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from topo.hot.plain.values import ATOMS
from topo.hot.plain.windows import accumulate as accumulate_plainly
from topo.hot.plain.windows import hold_run as hold_run_plainly

cdef extern from *:
    ctypedef struct arrayobject:
        Py_ssize_t allocated
        int ob_exports
    void Py_SET_SIZE(PyObject *column, Py_ssize_t count)

cdef frozenset _ATOMS = ATOMS
cdef int64_t _FAR = <int64_t>1 << 61


def accumulate(keys, values, stamps, Py_ssize_t at, dict slots, offset, step, more, first, protect):
    cdef Py_buffer view
    cdef int64_t start = 0, rest, stamp, length, shift
    cdef Py_ssize_t count
    cdef dict cells
    cdef list taken = None, added
    cdef tuple windows = None
    # Close to either end of the range a difference may not fit 64 bits.
    if type(keys) is not list or type(values) is not list or not (0 < step < _FAR and -_FAR < offset < _FAR):
        return accumulate_plainly(keys, values, stamps, at, slots, offset, step, more, first, protect)
    length, shift = step, offset
    PyObject_GetBuffer(stamps, &view, PyBUF_SIMPLE)
    try:
        count = min(len(<list>keys), view.len >> 3)
        # User code may let another thread run, which empties the list of values.
        while at < count and at < len(<list>values):
            stamp = (<int64_t *>view.buf)[at]
            if not -_FAR < stamp < _FAR:
                return accumulate_plainly(keys, values, stamps, at, slots, offset, step, more, first, protect)
            rest = (stamp - shift) % length
            if rest < 0:
                rest += length
            if windows is None or stamp - rest != start:
                start = stamp - rest
                slot = slots.get(start)
                if slot is None:
                    return at, None
                windows, taken = slot
            key, value = (<list>keys)[at], (<list>values)[at]
            added = []
            try:
                if first is None:
                    for cells in windows:
                        if key not in cells:
                            return at, None
                for cells in windows:
                    kept = cells.get(key)
                    if kept is None:
                        added.append(first(value))
                    else:
                        if protect is not None and type(kept) not in _ATOMS:
                            kept = protect(kept)
                        added.append(more(value, kept))
            except Exception as error:
                return at, error
            for cells, accumulator in zip(windows, added):
                if accumulator is None:
                    cells.pop(key, None)
                else:
                    cells[key] = accumulator
            taken.append(at)
            at += 1
    finally:
        PyBuffer_Release(&view)
    return at, None


cdef inline int _append(array column, uint64_t word) except -1:
    """Append where there is room already; else `array.append` has to make it, or to refuse."""
    cdef Py_ssize_t count = len(column)
    cdef arrayobject *fields = <arrayobject *><PyObject *>column
    if count < fields.allocated and not fields.ob_exports and column.ob_descr.itemsize == 8:
        column.data.as_ulonglongs[count] = word
        Py_SET_SIZE(<PyObject *>column, count + 1)
    else:
        column.append(word)
    return 0


def hold_run(list positions, keys, roots, edges, panes, make, bytearray held):
    cdef Py_ssize_t position, count = len(held)
    cdef array of_roots, of_edges
    cdef PyObject *found
    if not (type(keys) is list and type(panes) is dict and _is_words(roots) and _is_words(edges)):
        return hold_run_plainly(positions, keys, roots, edges, panes, make, held)
    of_roots, of_edges = roots, edges
    for position in positions:
        # Looked at each time: hash and equality of a key are user code.
        if not 0 <= position < min(count, len(of_roots), len(of_edges), len(<list>keys), len(held)):
            raise IndexError("a position outside of its batch")
        key = (<list>keys)[position]
        found = PyDict_GetItemWithError(panes, key)
        if found == NULL:
            pane = make()
            (<dict>panes)[key] = pane
        else:
            pane = <object>found
        held[position] = 1
        _append(pane.roots, of_roots.data.as_ulonglongs[position])
        _append(pane.edges, of_edges.data.as_ulonglongs[position])
        if pane.counts is not None:
            pane.counts.append(1)


cdef inline bint _is_words(column):
    return type(column) is array and (<array>column).typecode == "Q"
