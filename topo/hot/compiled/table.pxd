# cython: language_level=3
"""A table of 64-bit keys in the order in which they came: the slots of a C array, and a hash index over them.

As in a dict, a key that is removed and added once more is the last. The functions are inlined into each module that
uses them, and hold no Python objects.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from topo.hot.compiled.prefetch cimport __builtin_prefetch

cdef struct Slot:
    uint64_t key
    uint64_t value
    int64_t mark  # of the table's owner; DEAD in a slot whose key has been removed
    int64_t age  # of the table's owner; ascending from slot to slot

cdef struct Table:
    Slot *slots
    uint32_t *index  # by hash: the number of a slot, from 1; 0 where there is none
    size_t mask
    size_t room
    size_t first  # all slots before it are dead
    size_t end
    size_t alive

cdef enum:
    LEAST_ROOM = 64

cdef inline int64_t DEAD() noexcept nogil:
    return <int64_t>1 << 62

cdef inline size_t _place(const Table *table, uint64_t key) noexcept nogil:
    return <size_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 24) & table.mask

cdef inline int table_open(Table *table) except -1 nogil:
    memset(table, 0, sizeof(Table))
    return _resize(table, LEAST_ROOM)

cdef inline void table_close(Table *table) noexcept nogil:
    free(table.slots)
    free(table.index)
    table.slots = NULL
    table.index = NULL

cdef inline int table_clear(Table *table) except -1 nogil:
    """Remove all slots. Room that is much more than was used is given back: clearing takes as long as the room is large."""
    cdef bint is_large = table.room > LEAST_ROOM and 8 * table.end < table.room
    if table.end:
        memset(table.index, 0, (table.mask + 1) * sizeof(uint32_t))
    table.first = table.end = table.alive = 0
    return _resize(table, LEAST_ROOM) if is_large else 0

cdef inline size_t table_bytes(const Table *table) noexcept nogil:
    return table.room * sizeof(Slot) + (table.mask + 1) * sizeof(uint32_t)

cdef inline void _enter(Table *table, size_t at) noexcept nogil:
    cdef size_t place = _place(table, table.slots[at].key)
    while table.index[place]:
        place = (place + 1) & table.mask
    table.index[place] = <uint32_t>(at + 1)

cdef inline int _resize(Table *table, size_t room) except -1 nogil:
    """Move the live slots to the front of a table with that much room."""
    cdef uint32_t *index = <uint32_t *>calloc(4 * room, sizeof(uint32_t))
    cdef Slot *slots = <Slot *>malloc(room * sizeof(Slot))
    cdef size_t at, end = 0
    if index == NULL or slots == NULL:
        free(index)
        free(slots)
        with gil:
            raise MemoryError()
    for at in range(table.first, table.end):
        if table.slots[at].mark != DEAD():
            slots[end] = table.slots[at]
            end += 1
    free(table.slots)
    free(table.index)
    table.slots, table.index = slots, index
    table.room, table.mask = room, 4 * room - 1
    table.first, table.end = 0, end
    for at in range(end):
        _enter(table, at)
    return 0

cdef inline Slot *table_find(const Table *table, uint64_t key) noexcept nogil:
    """Return the slot of a key, or NULL."""
    cdef size_t place = _place(table, key)
    cdef uint32_t number = table.index[place]
    while number:
        if table.slots[number - 1].key == key:
            return &table.slots[number - 1]
        place = (place + 1) & table.mask
        number = table.index[place]
    return NULL

cdef inline void table_hint(const Table *table, uint64_t key) noexcept nogil:
    """Have the memory loaded that a search for a key reads first."""
    __builtin_prefetch(&table.index[_place(table, key)])

cdef inline const Slot *table_guess(const Table *table, uint64_t key) noexcept nogil:
    """Return what is likely to be the slot of a key, unread, or NULL."""
    cdef uint32_t number = table.index[_place(table, key)]
    return &table.slots[number - 1] if number else NULL

cdef inline Slot *table_add(Table *table, uint64_t key, int64_t age) except NULL nogil:
    """Return a new slot behind all others, with nothing in it, for a key that the table does not have."""
    cdef size_t room = LEAST_ROOM
    cdef Slot *slot
    if table.end == table.room:
        while room < 2 * table.alive:
            room *= 2
        _resize(table, room)
    slot = &table.slots[table.end]
    slot.key, slot.value, slot.mark, slot.age = key, 0, 0, age
    _enter(table, table.end)
    table.end += 1
    table.alive += 1
    return slot

cdef inline void table_remove(Table *table, Slot *slot) noexcept nogil:
    """Remove a slot; those that were found before stay where they are."""
    cdef size_t gap = _place(table, slot.key), place, wanted
    cdef uint32_t number = <uint32_t>(slot - table.slots) + 1
    while table.index[gap] != number:
        gap = (gap + 1) & table.mask
    # Close the gap: what lies behind it and was to lie at it or before it moves there.
    place = gap
    while True:
        place = (place + 1) & table.mask
        number = table.index[place]
        if not number:
            break
        wanted = _place(table, table.slots[number - 1].key)
        if ((place - wanted) & table.mask) >= ((place - gap) & table.mask):
            table.index[gap] = number
            gap = place
    table.index[gap] = 0
    slot.mark = DEAD()
    table.alive -= 1
    while table.first < table.end and table.slots[table.first].mark == DEAD():
        table.first += 1
    if table.first == table.end:
        table.first = table.end = 0
