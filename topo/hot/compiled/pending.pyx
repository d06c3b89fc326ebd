# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.pending`, which has the theory, with a C table in place of a rotating map of ints.

Batches and rotations have one series of numbers. A slot's value is its record, its age the number of its batch, and its mark the
number that was to be next at its last touch: so a touched message stays where it is. Verdicts come in any order, and would take
most of their time to wait for memory: what a root needs is asked for while those before it are removed.
"""

from collections import deque

from cpython.buffer cimport PyBuffer_Release
from cpython.long cimport PyLong_AsUnsignedLongLong
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from topo.hot.compiled.columns cimport read_column, word_at
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

from topo.hot.plain.rotating_map import Rotation

cdef struct Batch:
    double moment
    Py_ssize_t found  # by the `complete` that is under way


cdef class Pending:
    cdef Table _table
    cdef Batch *_batches
    cdef Py_ssize_t _room
    cdef int64_t _first, _next
    cdef object _rotation, _begins
    cdef public Py_ssize_t late_acks

    def __cinit__(self):
        table_open(&self._table)

    def __init__(self, message_timeout_s, now, Py_ssize_t buckets=11):
        if buckets < 2:
            raise ValueError(f"a rotating map needs at least 2 buckets, not {buckets}")
        self._rotation = Rotation(None if message_timeout_s is None else message_timeout_s / (buckets - 1), buckets, now)
        # The numbers of the last rotations.
        self._begins = deque(maxlen=buckets)

    def __dealloc__(self):
        cdef size_t at
        for at in range(self._table.first, self._table.end):
            if self._table.slots[at].mark != DEAD():
                Py_DECREF(<object>_record_of(&self._table.slots[at]))
        table_close(&self._table)
        free(self._batches)

    def __class_getitem__(cls, _record):
        return cls

    def __len__(self):
        return self._table.alive

    def __contains__(self, root):
        return self._find(root) != NULL

    cdef Slot *_find(self, root) except? NULL:
        return table_find(&self._table, PyLong_AsUnsignedLongLong(root))

    cdef object _remove(self, Slot *slot):
        """Remove a slot. Returns its record."""
        record = <object>_record_of(slot)
        table_remove(&self._table, slot)
        Py_DECREF(record)
        return record

    cdef int _begin_batch(self, double moment) except -1:
        """Make room for one more batch; those before the oldest message are forgotten."""
        cdef int64_t oldest
        cdef Py_ssize_t room
        cdef Batch *moved
        if self._next - self._first >= self._room:
            oldest = self._table.slots[self._table.first].age if self._table.alive else self._next
            if oldest - self._first > self._room // 2:
                memmove(self._batches, self._batches + (oldest - self._first), (self._next - oldest) * sizeof(Batch))
                self._first = oldest
            else:
                room = max(64, 2 * self._room)
                moved = <Batch *>realloc(self._batches, room * sizeof(Batch))
                if moved == NULL:
                    raise MemoryError()
                self._batches, self._room = moved, room
        self._batches[self._next - self._first] = Batch(moment, 0)
        return 0

    def add(self, roots, records, double now):
        cdef Py_buffer view
        cdef Py_ssize_t at, added = 0, count = read_column(roots, &view)
        cdef list held = records if type(records) is list else list(records)
        cdef Slot *slot
        cdef uint64_t root
        cdef bint is_whole = False
        try:
            if len(held) != count:
                raise ValueError(f"{count} roots and {len(held)} records")
            self._begin_batch(now)
            for at in range(count):
                if at + AHEAD < count:
                    table_hint(&self._table, word_at(view.buf, at + AHEAD))
                root = word_at(view.buf, at)
                if table_find(&self._table, root) != NULL:
                    return False
                slot = table_add(&self._table, root, self._next)
                slot.mark = self._next
                slot.value = <uint64_t><PyObject *>held[at]
                Py_INCREF(held[at])
                added += 1
            is_whole = True
            self._next += 1
            return True
        finally:
            if not is_whole:
                for at in range(added):
                    self._remove(table_find(&self._table, word_at(view.buf, at)))
            PyBuffer_Release(&view)

    def complete(self, roots):
        cdef Py_buffer view
        cdef Py_ssize_t step, at, count = read_column(roots, &view)
        cdef const Slot *likely
        cdef Slot *slot
        cdef Batch *batch
        cdef list found = [], ages = [], moments = []
        cdef int64_t age
        try:
            for step in range(count + 3 * AHEAD):
                if step < count:
                    table_hint(&self._table, word_at(view.buf, step))
                at = step - AHEAD
                if 0 <= at < count:
                    __builtin_prefetch(table_guess(&self._table, word_at(view.buf, at)))
                at -= AHEAD
                if 0 <= at < count:
                    likely = table_guess(&self._table, word_at(view.buf, at))
                    if likely != NULL:
                        __builtin_prefetch(_record_of(likely))
                at -= AHEAD
                if at < 0:
                    continue
                slot = table_find(&self._table, word_at(view.buf, at))
                if slot == NULL:
                    self.late_acks += 1
                    continue
                batch = &self._batches[slot.age - self._first]
                if batch.found == 0:
                    ages.append(slot.age)
                batch.found += 1
                found.append(self._remove(slot))
        finally:
            PyBuffer_Release(&view)
            ages.sort()
            for age in ages:
                batch = &self._batches[age - self._first]
                moments.append((batch.moment, batch.found))
                batch.found = 0
        return found, _merged(moments)

    def find(self, roots):
        cdef list found = []
        cdef Slot *slot
        for root in roots:
            slot = self._find(root)
            if slot != NULL:
                found.append(<object>_record_of(slot))
        return found

    def touch(self, root):
        cdef Slot *slot = self._find(root)
        if slot == NULL:
            self.late_acks += 1
            return False
        slot.mark = self._next
        return True

    def keep(self, roots):
        cdef Slot *slot
        for root in roots:
            slot = self._find(root)
            if slot != NULL:
                slot.mark = self._next

    def expire(self, now):
        cdef dict dropped = {}
        cdef size_t at, end = self._table.end
        cdef int64_t alive_since
        cdef Slot *slot
        cdef uint64_t root
        if not self._rotation.due(now):
            return dropped
        # The rotation takes a number, too: a touch before it leaves a lower mark than one behind it.
        self._begin_batch(now)
        self._next += 1
        self._begins.append(self._next)
        if len(self._begins) == self._begins.maxlen:
            alive_since = self._begins[0]
            for at in range(self._table.first, end):
                slot = &self._table.slots[at]
                if slot.age >= alive_since:
                    break
                if slot.mark < alive_since:
                    root = slot.key
                    dropped[root] = self._remove(slot)
        return dropped

    @property
    def next_deadline(self):
        return self._rotation.next_deadline

    def items(self):
        cdef list pairs = []
        cdef size_t at
        for at in range(self._table.first, self._table.end):
            if self._table.slots[at].mark != DEAD():
                pairs.append((self._table.slots[at].key, <object>_record_of(&self._table.slots[at])))
        return iter(pairs)

    def drain(self):
        held = dict(self.items())
        for record in held.values():
            Py_DECREF(record)
        table_clear(&self._table)
        return held

    def validate(self):
        cdef size_t at, alive = 0
        cdef int64_t age = self._first
        cdef Slot *slot
        for at in range(self._table.first, self._table.end):
            slot = &self._table.slots[at]
            if slot.mark == DEAD():
                continue
            alive += 1
            assert age <= slot.age <= slot.mark <= self._next, "messages out of order, or a batch that is forgotten"
            assert table_find(&self._table, slot.key) == slot, f"root {slot.key:#x} is not found"
            age = slot.age
        assert alive == self._table.alive, f"{alive} messages, counted as {self._table.alive}"


cdef inline PyObject *_record_of(const Slot *slot) noexcept:
    return <PyObject *>slot.value


cdef list _merged(list moments):
    """Add up the numbers of neighbours with one moment."""
    cdef list merged = []
    cdef double last = 0.0
    cdef Py_ssize_t count = 0
    for moment, number in moments:
        if count and moment == last:
            count += number
            continue
        if count:
            merged.append((last, count))
        last, count = moment, number
    if count:
        merged.append((last, count))
    return merged
