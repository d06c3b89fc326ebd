# cython: language_level=3
"""Slots of objects of Python classes, read and filled through their offsets."""

from cpython.object cimport PyObject

cdef extern from *:
    """
    #include <structmember.h>

    /* Offset of a slot that holds an object, or -1 where the class has it in another way. */
    static Py_ssize_t offset_of(PyObject *kind, PyObject *name) {
        PyObject *found = _PyType_Lookup((PyTypeObject *)kind, name);
        if (found == NULL || Py_TYPE(found) != &PyMemberDescr_Type) return -1;
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type != T_OBJECT_EX || (member->flags & READONLY)) return -1;
        return member->offset;
    }

    static inline void fill(PyObject *into, Py_ssize_t offset, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)into + offset), *before = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(before);
    }

    /* What a slot holds, or NULL when it is empty. */
    static inline PyObject *slot_of(PyObject *of, Py_ssize_t offset) {
        return *(PyObject **)((char *)of + offset);
    }
    """
    Py_ssize_t offset_of(object kind, object name)
    void fill(object into, Py_ssize_t offset, object value)
    PyObject *slot_of(object of, Py_ssize_t offset)
