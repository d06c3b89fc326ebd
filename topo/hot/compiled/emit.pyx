# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.emit`: one check for all widths. The classes differ in name, so that collectors may inherit as from the plain ones."""

from cpython.long cimport PyLong_AsLongLongAndOverflow

from topo.hot.compiled.values cimport are_atoms

from topo.hot.plain.values import ATOMS
from topo.ids import DEFAULT_STREAM

cdef frozenset _ATOMS = ATOMS
cdef object _MAIN = DEFAULT_STREAM
cdef long long _FAR = <long long>1 << 61


cdef class _Collector:
    """The attributes of `topo.hot.plain.emit.Emit`; `_is_owned` of the lock is looked up once."""

    cdef public list _rows
    cdef public Py_ssize_t _width
    cdef object _lock, _is_owned

    @property
    def _mine(self):
        return self._lock

    @_mine.setter
    def _mine(self, lock):
        self._lock, self._is_owned = lock, lock._is_owned


cdef class Emit(_Collector):
    cdef public object _main

    def emit(self, values, stream=_MAIN, timestamp=None):
        """Emit one tuple, anchored on the current input."""
        if stream is _MAIN and type(values) is tuple and len(<tuple>values) == self._width and self._is_owned():
            if timestamp is not None and not _is_moment(timestamp):
                timestamp = self._checked(timestamp)
            if are_atoms(<tuple>values, _ATOMS):
                self._rows.append(values)
            else:
                self._emit_nested(values)
            if timestamp is not None:
                self._main.stamps[len(self._rows) - 1] = timestamp
        else:
            self._emit_slow(values, stream, timestamp)


cdef inline bint _is_moment(timestamp) except -1:
    """Whether no check would refuse a timestamp. Negative and very large ones go to the check."""
    cdef int overflow = 0
    cdef long long moment
    if type(timestamp) is not int:
        return False
    moment = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
    return not overflow and 0 <= moment < _FAR


cdef class EmitOne(Emit):
    pass


cdef class EmitTwo(Emit):
    pass


cdef class EmitThree(Emit):
    pass


cdef class EmitFour(Emit):
    pass


cdef class EmitMessage(_Collector):
    cdef public list _messages
    cdef public object _main

    def emit(self, values, message_id=None, stream=_MAIN, timestamp=None):
        """Emit one tuple; tracked when it has a message id."""
        if (
            stream is _MAIN and type(values) is tuple and len(<tuple>values) == self._width
            and are_atoms(<tuple>values, _ATOMS) and self._is_owned()
        ):
            if timestamp is not None:
                self._main.stamps[len(self._rows)] = self._checked(timestamp)
            self._rows.append(values)
            self._messages.append(message_id)
        else:
            self._emit_slow(values, message_id, stream, timestamp)


cdef class EmitMessageOne(EmitMessage):
    pass
