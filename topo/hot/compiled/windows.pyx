# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`topo.hot.plain.windows`: slots are computed in C, and found once for neighbours; ids go from column to column.

The call of an `AddField` is additions here, and an element of one window needs no list of its accumulators.
"""

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItemWithError
from cpython.mem cimport PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from topo.hot.compiled.prefetch cimport AHEAD, __builtin_prefetch
from topo.hot.compiled.slots cimport offset_of, slot_of
from topo.hot.compiled.values cimport is_frequent

from topo.hot.plain.values import ATOMS
from topo.hot.plain.windows import AddField
from topo.hot.plain.windows import _added as added_plainly
from topo.hot.plain.windows import accumulate as accumulate_plainly
from topo.hot.plain.windows import hold_run as hold_run_plainly

cdef extern from *:
    """
    #define SET_ITEMS(column, items) ((column)->data.ob_item = (char *)(items))
    """
    ctypedef struct arrayobject:
        Py_ssize_t allocated
        int ob_exports
    void Py_SET_SIZE(PyObject *column, Py_ssize_t count)
    void SET_ITEMS(arrayobject *column, void *items)

cdef struct _Slots:
    PyObject *kind  # of the panes; NULL where its attributes are not slots
    Py_ssize_t roots, edges, counts  # offsets

cdef frozenset _ATOMS = ATOMS
cdef int64_t _FAR = <int64_t>1 << 61


cdef class _Fold:
    """How elements become accumulators: the arguments of `accumulate`."""

    cdef object more, first, protect, place, zero
    cdef bint adds


cdef _Fold _fold(more, first, protect):
    cdef _Fold fold = _Fold.__new__(_Fold)
    fold.more, fold.first, fold.protect, fold.place, fold.zero = more, first, protect, None, None
    fold.adds = type(more) is AddField
    if fold.adds:
        fold.place, fold.zero = more.place, more.zero
    return fold


cdef inline object _folded(_Fold fold, kept, value):
    """Return the accumulator behind an element; `kept` is the former one, or None."""
    if kept is None:
        if not fold.adds or fold.first is not fold.more:
            return fold.first(value)
        kept = fold.zero
    elif fold.protect is not None and not is_frequent(kept) and type(kept) not in _ATOMS:
        kept = fold.protect(kept)
    return _added(fold.place, value, kept) if fold.adds else fold.more(value, kept)


cdef object _added(place, value, kept):
    """Do as `AddField`, and leave accumulators of another shape to it."""
    cdef Py_ssize_t at
    cdef tuple places
    if place is None:
        return kept + 1
    if type(place) is int:
        at = place
        return kept + ((<tuple>value)[at] if type(value) is tuple and 0 <= at < len(<tuple>value) else value[place])
    places = place
    if type(kept) is not tuple or len(<tuple>kept) != len(places):
        return added_plainly(place, value, kept)
    if len(places) == 1:
        return (_added(places[0], value, (<tuple>kept)[0]),)
    return tuple([_added(places[at], value, (<tuple>kept)[at]) for at in range(len(places))])


cdef inline int _store(dict cells, key, accumulator) except -1:
    if accumulator is None:
        cells.pop(key, None)
    else:
        cells[key] = accumulator
    return 0


def accumulate(keys, values, stamps, Py_ssize_t at, dict slots, offset, step, more, first, protect):
    cdef Py_buffer view
    cdef int64_t start = 0, rest, stamp, length, shift
    cdef Py_ssize_t count
    cdef dict cells
    cdef list taken = None, added = None
    cdef tuple windows = None
    cdef PyObject *found
    cdef _Fold fold = _fold(more, first, protect)
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
            try:
                if len(windows) == 1:
                    cells = windows[0]
                    found = PyDict_GetItemWithError(cells, key)
                    if found == NULL and first is None:
                        return at, None
                    accumulator = _folded(fold, None if found == NULL else <object>found, value)
                else:
                    added = []
                    if first is None:
                        for cells in windows:
                            if key not in cells:
                                return at, None
                    for cells in windows:
                        added.append(_folded(fold, cells.get(key), value))
            except Exception as error:
                return at, error
            if len(windows) == 1:
                _store(cells, key, accumulator)
            else:
                for cells, accumulator in zip(windows, added):
                    _store(cells, key, accumulator)
            taken.append(at)
            at += 1
    finally:
        PyBuffer_Release(&view)
    return at, None


cdef inline int _append(array column, uint64_t word) except -1:
    """Append as `array.append` does, with the same room; an exported array is refused by it."""
    cdef Py_ssize_t count = len(column), room
    cdef arrayobject *fields = <arrayobject *><PyObject *>column
    cdef void *words
    if fields.ob_exports or column.ob_descr.itemsize != 8:
        column.append(word)
        return 0
    if count == fields.allocated:
        room = count + 1 + ((count + 1) >> 4) + (3 if count < 8 else 7)
        words = PyMem_Realloc(column.data.as_chars, 8 * room)
        if words == NULL:
            raise MemoryError()
        SET_ITEMS(fields, words)
        fields.allocated = room
    column.data.as_ulonglongs[count] = word
    Py_SET_SIZE(<PyObject *>column, count + 1)
    return 0


def hold_run(list positions, keys, roots, edges, panes, make, bytearray held):
    cdef Py_ssize_t position
    cdef list found = []
    cdef PyObject *one
    if not (type(keys) is list and type(panes) is dict and _is_words(roots) and _is_words(edges)):
        return hold_run_plainly(positions, keys, roots, edges, panes, make, held)
    try:
        for position in positions:
            if not 0 <= position < len(<list>keys):
                raise IndexError("a position outside of its batch")
            key = (<list>keys)[position]
            one = PyDict_GetItemWithError(panes, key)
            if one == NULL:
                pane = make()
                (<dict>panes)[key] = pane
                found.append(pane)
            else:
                found.append(<object>one)
    finally:
        # Those before one whose key raises are held.
        _hold_each(positions, found, roots, edges, held)


cdef int _hold_each(list positions, list panes, array roots, array edges, bytearray held) except -1:
    """Append ids to panes. They lie apart in memory: what a pane needs is loaded while those before it take their ids."""
    cdef Py_ssize_t step, at, position, count = len(panes)
    cdef _Slots slots
    cdef PyObject *its_roots
    cdef PyObject *its_edges
    if not count:
        return 0
    kind = type(panes[0])
    slots.roots, slots.edges, slots.counts = offset_of(kind, "roots"), offset_of(kind, "edges"), offset_of(kind, "counts")
    slots.kind = <PyObject *>kind if min(slots.roots, slots.edges, slots.counts) >= 0 else NULL
    for step in range(count + 3 * AHEAD):
        if step < count:
            __builtin_prefetch(<char *><PyObject *>panes[step])
            __builtin_prefetch(<char *><PyObject *>panes[step] + 64)
        at = step - AHEAD
        if 0 <= at < count and _find_arrays(panes[at], &slots, &its_roots, &its_edges):
            __builtin_prefetch(its_roots)
            __builtin_prefetch(its_edges)
        at -= AHEAD
        if 0 <= at < count and _find_arrays(panes[at], &slots, &its_roots, &its_edges):
            __builtin_prefetch((<array>its_roots).data.as_ulonglongs + len(<array>its_roots))
            __builtin_prefetch((<array>its_edges).data.as_ulonglongs + len(<array>its_edges))
        at -= AHEAD
        if at < 0:
            continue
        pane, position = panes[at], positions[at]
        if not 0 <= position < min(len(roots), len(edges), len(held)):
            raise IndexError("a position outside of its batch")
        held[position] = 1
        if _find_arrays(pane, &slots, &its_roots, &its_edges) and slot_of(pane, slots.counts) == <PyObject *>None:
            _append(<array>its_roots, roots.data.as_ulonglongs[position])
            _append(<array>its_edges, edges.data.as_ulonglongs[position])
        else:
            pane.roots.append(roots[position])
            pane.edges.append(edges[position])
            if pane.counts is not None:
                pane.counts.append(1)
    return 0


cdef inline bint _find_arrays(pane, const _Slots *slots, PyObject **its_roots, PyObject **its_edges) noexcept:
    """Find the arrays of a pane; False where it has something else."""
    if slots.kind == NULL or type(pane) is not <object>slots.kind:
        return False
    its_roots[0], its_edges[0] = slot_of(pane, slots.roots), slot_of(pane, slots.edges)
    return its_roots[0] != NULL and its_edges[0] != NULL and _are_arrays(<object>its_roots[0], <object>its_edges[0])


cdef inline bint _are_arrays(one, other):
    return type(one) is array and type(other) is array


cdef inline bint _is_words(column):
    return type(column) is array and (<array>column).typecode == "Q"
