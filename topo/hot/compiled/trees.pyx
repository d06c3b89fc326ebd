# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.trees`, which has the theory, with a C table in place of a rotating map of ints.

A slot's value is the XOR of all values so far, its mark the spout task of the init, complemented once the tree has failed: the lower
and the upper part of a word of the plain one. Its age is the number of rotations before it was put there.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc

from topo.hot.compiled.columns cimport close_pair, read_column, read_pair, word_at
from topo.hot.compiled.prefetch cimport AHEAD, __builtin_prefetch
from topo.hot.compiled.table cimport (
    DEAD,
    Slot,
    Table,
    table_add,
    table_clear,
    table_close,
    table_find,
    table_guess,
    table_hint,
    table_open,
    table_remove,
)

from topo.hot.plain.trees import Verdicts


cdef class _Roots:
    """Roots in the order in which they were decided."""

    cdef uint64_t *_words
    cdef Py_ssize_t count, _room

    def __dealloc__(self):
        free(self._words)

    cdef int append(self, uint64_t root) except -1:
        cdef uint64_t *moved
        cdef Py_ssize_t room
        if self.count == self._room:
            room = max(64, 2 * self._room)
            moved = <uint64_t *>realloc(self._words, 8 * room)
            if moved == NULL:
                raise MemoryError()
            self._words, self._room = moved, room
        self._words[self.count] = root
        self.count += 1
        return 0

    cdef bytes take(self):
        column = PyBytes_FromStringAndSize(<char *>self._words, 8 * self.count)
        self.count = 0
        return column


cdef class _Decided:
    """The verdicts for one spout task that have not been taken."""

    cdef _Roots acked, failed, reset

    def __cinit__(self):
        self.acked, self.failed, self.reset = _Roots(), _Roots(), _Roots()


cdef class Trees:
    cdef Table _table
    cdef Py_ssize_t _buckets
    cdef int64_t _rotations
    cdef dict _decided
    cdef int64_t _spout
    cdef _Decided _of_spout

    def __cinit__(self):
        table_open(&self._table)

    def __init__(self, Py_ssize_t buckets=3):
        if buckets < 2:
            raise ValueError(f"a rotating map needs at least 2 buckets, not {buckets}")
        self._buckets = buckets
        self._decided = {}

    def __dealloc__(self):
        table_close(&self._table)

    def __len__(self):
        return self._table.alive

    cdef _Decided _for(self, int64_t spout):
        """Return the verdicts for a spout that has sent an init; the last one is remembered, since frames come from one spout."""
        if self._of_spout is None or spout != self._spout:
            self._of_spout = self._decided[spout]
            self._spout = spout
        return self._of_spout

    def init(self, int64_t spout, roots, values):
        cdef Py_buffer of_roots, of_values
        cdef Py_ssize_t at, count = read_pair(roots, values, &of_roots, &of_values)
        cdef Slot *slot
        cdef uint64_t root, value
        cdef _Decided own
        try:
            if spout not in self._decided:
                self._decided[spout] = _Decided()
            own = self._for(spout)
            for at in range(count):
                root, value = word_at(of_roots.buf, at), word_at(of_values.buf, at)
                slot = table_find(&self._table, root)
                if slot == NULL:
                    if value:
                        slot = table_add(&self._table, root, self._rotations)
                        slot.value, slot.mark = value, spout
                    else:
                        own.acked.append(root)
                elif slot.mark == 0:
                    slot.value ^= value
                    slot.mark = spout
                    if slot.value == 0:
                        table_remove(&self._table, slot)
                        own.acked.append(root)
                elif slot.mark == -1:
                    slot.mark = ~spout
                    own.failed.append(root)
        finally:
            close_pair(&of_roots, &of_values)

    def ack(self, roots, values):
        cdef Py_buffer of_roots, of_values
        cdef Py_ssize_t at, count = read_pair(roots, values, &of_roots, &of_values)
        cdef Slot *slot
        cdef uint64_t root
        try:
            for at in range(count):
                if at + 2 * AHEAD < count:
                    table_hint(&self._table, word_at(of_roots.buf, at + 2 * AHEAD))
                if at + AHEAD < count:
                    __builtin_prefetch(table_guess(&self._table, word_at(of_roots.buf, at + AHEAD)))
                root = word_at(of_roots.buf, at)
                slot = table_find(&self._table, root)
                if slot == NULL:
                    slot = table_add(&self._table, root, self._rotations)
                slot.value ^= word_at(of_values.buf, at)
                if slot.value == 0 and slot.mark > 0:
                    self._for(slot.mark).acked.append(root)
                    table_remove(&self._table, slot)
        finally:
            close_pair(&of_roots, &of_values)

    def fail(self, roots):
        cdef Py_buffer of_roots
        cdef Py_ssize_t at, count = read_column(roots, &of_roots)
        cdef uint64_t root
        cdef int64_t mark
        try:
            for at in range(count):
                root = word_at(of_roots.buf, at)
                mark = self._renew(root, True)
                if mark > 0:
                    self._for(mark).failed.append(root)
        finally:
            PyBuffer_Release(&of_roots)

    cdef int64_t _renew(self, uint64_t root, bint fails) except? -2:
        """Put a root's record behind all others. Returns the mark that it had, or 0."""
        cdef Slot *slot = table_find(&self._table, root)
        cdef uint64_t value = 0
        cdef int64_t mark = 0
        if slot != NULL:
            value, mark = slot.value, slot.mark
            table_remove(&self._table, slot)
        slot = table_add(&self._table, root, self._rotations)
        slot.value, slot.mark = value, ~mark if fails and mark >= 0 else mark
        return mark

    def reset(self, roots):
        cdef Py_buffer of_roots
        cdef Py_ssize_t at, count = read_column(roots, &of_roots)
        cdef uint64_t root
        cdef Slot *slot
        cdef int64_t mark
        try:
            for at in range(count):
                root = word_at(of_roots.buf, at)
                slot = table_find(&self._table, root)
                if slot != NULL and slot.mark >= -1:
                    mark = self._renew(root, False)
                    if mark > 0:
                        self._for(mark).reset.append(root)
        finally:
            PyBuffer_Release(&of_roots)

    def verdicts(self):
        cdef _Decided own
        taken = {}
        for spout, own in self._decided.items():
            if own.acked.count or own.failed.count or own.reset.count:
                taken[spout] = Verdicts(own.acked.take(), own.failed.take(), own.reset.take())
        return taken

    def rotate(self):
        cdef _Roots expired = _Roots()
        cdef Slot *slot
        self._rotations += 1
        while self._table.alive:
            slot = &self._table.slots[self._table.first]
            if slot.age > self._rotations - self._buckets:
                break
            if slot.mark > 0:
                expired.append(slot.key)
            table_remove(&self._table, slot)
        return expired.take()

    def clear(self):
        table_clear(&self._table)
        self._decided = {}
        self._of_spout = None

    def open_roots(self):
        cdef _Roots found = _Roots()
        cdef size_t at
        for at in range(self._table.first, self._table.end):
            if DEAD() != self._table.slots[at].mark > 0:
                found.append(self._table.slots[at].key)
        return found.take()

    def validate(self):
        cdef size_t at, alive = 0
        cdef Slot *slot
        cdef int64_t age = 0, owner
        for at in range(self._table.first, self._table.end):
            slot = &self._table.slots[at]
            if slot.mark == DEAD():
                continue
            alive += 1
            owner = ~slot.mark if slot.mark < 0 else slot.mark
            assert slot.key, "0 is not a root id"
            assert slot.value or slot.mark <= 0, f"root {slot.key:#x} is done and still recorded"
            assert not owner or owner in self._decided, f"root {slot.key:#x} belongs to a spout that has sent no init"
            assert age <= slot.age <= self._rotations, "records out of order"
            assert table_find(&self._table, slot.key) == slot, f"root {slot.key:#x} is not found"
            age = slot.age
        assert alive == self._table.alive, f"{alive} records, counted as {self._table.alive}"
