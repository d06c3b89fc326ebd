# cython: language_level=3
"""`topo.hot.plain.values.stays`. Tuples within tuples beyond a depth are left to the plain one, which raises where they have no end."""

from topo.hot.compiled.values cimport is_frequent

from topo.hot.plain import values as plain

cdef frozenset _ATOMS = plain.ATOMS
cdef int _DEEPEST = 100


def stays(value):
    """Whether a value can never change."""
    if type(value) is tuple:
        return _all_stay(<tuple>value, _DEEPEST)
    return is_frequent(value) or type(value) in _ATOMS


cdef bint _all_stay(tuple values, int deeper) except -1:
    if deeper == 0:
        return plain.stays(values)
    for value in values:
        if is_frequent(value):
            continue
        if type(value) is tuple:
            if not _all_stay(<tuple>value, deeper - 1):
                return False
        elif type(value) not in _ATOMS:
            return False
    return True
