# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.inputs`: the tuple's slots are filled through their offsets, and the call is a vectorcall.

No line of this file is in the traceback of what a call raises.
"""

from cpython.exc cimport PyErr_ExceptionMatches, PyErr_Fetch, PyErr_NormalizeException
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from topo.hot.compiled.slots cimport fill, offset_of

from topo.hot.plain.inputs import Ran
from topo.hot.plain.inputs import run_inputs as run_plainly

cdef extern from *:
    PyObject *PyObject_Vectorcall(PyObject *called, PyObject **arguments, size_t count, PyObject *names)
    Py_ssize_t PY_SSIZE_T_MAX
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    Py_ssize_t Py_REFCNT(PyObject *one)
    int PyException_SetTraceback(PyObject *error, PyObject *trace)


cdef object _raised():
    """Return the Exception that is being raised, with its traceback, and clear it; None for one of another class."""
    cdef PyObject *kind
    cdef PyObject *value
    cdef PyObject *trace
    if not PyErr_ExceptionMatches(Exception):
        return None
    PyErr_Fetch(&kind, &value, &trace)
    PyErr_NormalizeException(&kind, &value, &trace)
    if trace != NULL:
        PyException_SetTraceback(value, trace)
    error = <object>value
    Py_XDECREF(kind)
    Py_XDECREF(value)
    Py_XDECREF(trace)
    return error


cdef int _propagate() except -1:
    """Leave with the exception that is being raised."""
    return -1


def run_inputs(execute, collector, kind, origin, list rows, stamps, emitted, limit):
    cdef Py_ssize_t of_values = offset_of(kind, "values"), of_origin = offset_of(kind, "origin")
    cdef Py_ssize_t of_stamp = offset_of(kind, "timestamp")
    cdef list times = stamps, only = None, only_ends = None, more, its_ends
    cdef Py_ssize_t most = min(limit, PY_SSIZE_T_MAX)
    cdef Py_ssize_t done = 0, last = len(rows), end, before = -1
    cdef PyObject *arguments[3]
    cdef PyObject *result
    cdef object new = kind.__new__, tup, row, value, boxed = None
    if of_values < 0 or of_origin < 0 or of_stamp < 0:
        return run_plainly(execute, collector, kind, origin, rows, stamps, emitted, limit)
    if times is not None and len(times) < last:
        last = len(times)
    if len(emitted) == 1:
        only, only_ends = emitted[0]
    tup = new(kind)
    fill(tup, of_origin, origin)
    while done < last and done < len(rows):
        # Taken first: making a tuple may run finalizers, and other threads, which empty the list.
        row = rows[done]
        if Py_REFCNT(<PyObject *>tup) != 1:
            tup = new(kind)
            fill(tup, of_origin, origin)
        fill(tup, of_values, row)
        fill(tup, of_stamp, None if times is None else times[done])
        done += 1
        arguments[1], arguments[2] = <PyObject *>tup, <PyObject *>collector
        result = PyObject_Vectorcall(<PyObject *>execute, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
        if result == NULL:
            error = _raised()
            if error is None:
                _propagate()
            return Ran(done, tup, error)
        if result != <PyObject *>None:
            value = <object>result
            Py_XDECREF(result)
            return Ran(done, tup, None, value)
        Py_XDECREF(result)
        if only is not None:
            end = len(only)
            if end > most:
                return Ran(done, tup)
            if end != before:
                before, boxed = end, end
            only_ends.append(boxed)
        elif emitted:
            end = 0
            for more, _ in emitted:
                end += len(more)
            if end > most:
                return Ran(done, tup)
            for more, its_ends in emitted:
                its_ends.append(len(more))
    return Ran(done)
