# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`topo.hot.plain.windows`: slots are computed in C, and found once for neighbours."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from topo.hot.plain.values import ATOMS
from topo.hot.plain.windows import accumulate as accumulate_plainly

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
