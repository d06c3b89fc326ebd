# cython: language_level=3
"""The check of `topo.hot.plain.values` for values that cannot change."""

cdef extern from *:
    """
    /* Whether the type is one of the most frequent ATOMS; the others are looked up in the set. */
    static inline int is_frequent(PyObject *value) {
        PyTypeObject *kind = Py_TYPE(value);
        return kind == &PyUnicode_Type || kind == &PyLong_Type || kind == &PyFloat_Type || kind == &PyBytes_Type
            || kind == &PyBool_Type || value == Py_None;
    }
    """
    bint is_frequent(object value) noexcept
    void PyObject_GC_UnTrack(object value) noexcept

cdef inline bint are_atoms(tuple values, frozenset atoms) except -1:
    cdef bint are_frequent = len(values) > 0
    for value in values:
        if not is_frequent(value):
            are_frequent = False
            if type(value) not in atoms:
                return False
    if are_frequent:
        # As the garbage collector does with a tuple of such values when it first looks at it, which takes several times as long.
        PyObject_GC_UnTrack(values)
    return True
