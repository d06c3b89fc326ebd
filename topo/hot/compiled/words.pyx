# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`topo.hot.plain.words`: ints become words without a call for each; what is no list of ints of 64 bits goes the plain way."""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t

from topo.hot.compiled.columns cimport read_column, word_at
from topo.hot.plain.words import pack_timestamps as pack_timestamps_plainly
from topo.hot.plain.words import pack_words as pack_words_plainly

cdef extern from "<stdint.h>":
    int64_t INT64_MIN


def pack_words(words):
    cdef bytes column
    cdef uint64_t *into
    cdef Py_ssize_t at, count
    if type(words) is not list:
        return pack_words_plainly(words)
    count = len(<list>words)
    column = PyBytes_FromStringAndSize(NULL, 8 * count)
    into = <uint64_t *>PyBytes_AS_STRING(column)
    for at in range(count):
        word = (<list>words)[at]
        if type(word) is not int:
            return pack_words_plainly(words)
        try:
            into[at] = word
        except OverflowError:
            return pack_words_plainly(words)
    return column


def distinct_words(column):
    """Of equal neighbours, as the roots of rows that one message became, one alone is made an int."""
    cdef Py_buffer view
    cdef Py_ssize_t count = read_column(column, &view), at
    cdef dict found = {}
    cdef uint64_t word, before = 0
    try:
        for at in range(count):
            word = word_at(view.buf, at)
            if not at or word != before:
                found[word] = None
            before = word
    finally:
        PyBuffer_Release(&view)
    return list(found)


def pack_timestamps(timestamps):
    cdef bytes column
    cdef int64_t *into
    cdef Py_ssize_t at, count
    if type(timestamps) is not list:
        return pack_timestamps_plainly(timestamps)
    count = len(<list>timestamps)
    column = PyBytes_FromStringAndSize(NULL, 8 * count)
    into = <int64_t *>PyBytes_AS_STRING(column)
    for at in range(count):
        moment = (<list>timestamps)[at]
        if moment is None:
            into[at] = INT64_MIN
        elif type(moment) is not int:
            return pack_timestamps_plainly(timestamps)
        else:
            try:
                into[at] = moment
            except OverflowError:
                return pack_timestamps_plainly(timestamps)
    return column
