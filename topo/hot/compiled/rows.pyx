# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Rows to msgpack and back, as `topo.wire.codec` has msgpack do it, for values of the plain types.

Everything else is declined, and so is what msgpack or the codec would refuse: values of other classes, a lone surrogate, a payload
that is cut short or followed by more, ext types, more than DEEPEST levels, more than LONGEST bytes. No length is believed before the
bytes are there that so much takes at least. Short ASCII strings that come often are made once.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

cdef enum:
    DEEPEST = 32
    LONGEST = 1 << 20
    REMEMBERED = 4096
    SHORT = 31

cdef extern from *:
    """
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the compiled path is for little-endian machines"
    #endif
    #define IS_ASCII(one) PyUnicode_IS_COMPACT_ASCII(one)
    #define ASCII_OF(one) ((const char *)PyUnicode_1BYTE_DATA(one))
    enum value_kind {OTHER, TEXT, INTEGER, REAL, TUPLE, LIST, BYTES, DICT, NONE, TRUE_VALUE, FALSE_VALUE};
    #define KIND_OF(one) (PyUnicode_CheckExact(one) ? TEXT : PyLong_CheckExact(one) ? INTEGER : PyFloat_CheckExact(one) ? REAL \\
        : PyTuple_CheckExact(one) ? TUPLE : PyList_CheckExact(one) ? LIST : PyBytes_CheckExact(one) ? BYTES \\
        : PyDict_CheckExact(one) ? DICT : (one) == Py_None ? NONE : (one) == Py_True ? TRUE_VALUE \\
        : (one) == Py_False ? FALSE_VALUE : OTHER)
    """
    bint IS_ASCII(object one) noexcept
    const char *ASCII_OF(object one) noexcept
    enum value_kind:
        OTHER, TEXT, INTEGER, REAL, TUPLE, LIST, BYTES, DICT, NONE, TRUE_VALUE, FALSE_VALUE
    value_kind KIND_OF(object one) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object one) noexcept
    const char *PyUnicode_AsUTF8AndSize(object one, Py_ssize_t *size) noexcept
    object PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    long long PyLong_AsLongLongAndOverflow(object one, int *overflow) noexcept
    unsigned long long PyLong_AsUnsignedLongLong(object one) noexcept
    double PyFloat_AS_DOUBLE(object one) noexcept
    PyObject *PyErr_Occurred() noexcept
    Py_ssize_t PyBytes_GET_SIZE(object one) noexcept
    char *PyBytes_AS_STRING(object one) noexcept
    tuple PyTuple_New(Py_ssize_t size)
    void PyTuple_SET_ITEM(tuple one, Py_ssize_t at, object value)
    bint PyObject_IS_GC(object one) noexcept
    void PyObject_GC_UnTrack(object one) noexcept
    uint64_t __builtin_bswap64(uint64_t number) noexcept


# -- packing ---------------------------------------------------------------------------------------------------------------

cdef struct Packed:
    uint8_t *bytes
    size_t used
    size_t room

cdef Packed _packed  # used again from call to call, by the holder of the interpreter


cdef inline int _reserve(Packed *out, size_t more) noexcept:
    cdef size_t room = out.room
    cdef uint8_t *moved
    if out.used + more <= room:
        return 0
    room = max(2 * room, out.used + more, 4096)
    moved = <uint8_t *>realloc(out.bytes, room)
    if moved == NULL:
        return -1
    out.bytes, out.room = moved, room
    return 0


cdef inline void _put(Packed *out, uint8_t byte) noexcept:
    out.bytes[out.used] = byte
    out.used += 1


cdef inline void _put_number(Packed *out, uint8_t head, uint64_t number, int size) noexcept:
    """Write the lowest `size` bytes of a number, the highest of them first; there is room."""
    number = __builtin_bswap64(number << (8 * (8 - size)))
    out.bytes[out.used] = head
    memcpy(out.bytes + out.used + 1, &number, size)
    out.used += 1 + size


cdef inline int _put_length(Packed *out, size_t length, uint8_t fixed, size_t fixed_below, uint8_t of_8, uint8_t of_16) noexcept:
    """Write the head of a string or container, with room for its bytes; `of_8` is 0 for those that have no such head."""
    if length > 0x7FFFFFFF or _reserve(out, length + 5):
        return -1
    if length < fixed_below:
        _put(out, fixed | <uint8_t>length)
    elif length < 256 and of_8:
        _put_number(out, of_8, length, 1)
    elif length < 65536:
        _put_number(out, of_16, length, 2)
    else:
        _put_number(out, of_16 + 1, length, 4)
    return 0


cdef int _pack_bytes(Packed *out, const char *content, size_t length) noexcept:
    memcpy(out.bytes + out.used, content, length)
    out.used += length
    return 0


cdef int _pack_int(Packed *out, value) noexcept:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef unsigned long long large
    if _reserve(out, 9):
        return -1
    if overflow:
        large = PyLong_AsUnsignedLongLong(value) if overflow > 0 else 0
        if overflow < 0 or PyErr_Occurred() != NULL:
            PyErr_Clear()
            return -1
        _put_number(out, 0xCF, large, 8)
    elif number >= 0:
        if number < 128:
            _put(out, <uint8_t>number)
        elif number < 256:
            _put_number(out, 0xCC, number, 1)
        elif number < 65536:
            _put_number(out, 0xCD, number, 2)
        elif number < 4294967296:
            _put_number(out, 0xCE, number, 4)
        else:
            _put_number(out, 0xCF, number, 8)
    elif number >= -32:
        _put(out, <uint8_t>number)
    elif number >= -128:
        _put_number(out, 0xD0, <uint64_t>number, 1)
    elif number >= -32768:
        _put_number(out, 0xD1, <uint64_t>number, 2)
    elif number >= -2147483648:
        _put_number(out, 0xD2, <uint64_t>number, 4)
    else:
        _put_number(out, 0xD3, <uint64_t>number, 8)
    return 0


cdef int _pack(Packed *out, value, int depth) except -2:
    """Append a value. Returns -1 when it is declined."""
    cdef value_kind kind = KIND_OF(value)
    cdef Py_ssize_t length
    cdef const char *content
    cdef double real
    cdef uint64_t bits
    if kind == TEXT:
        if IS_ASCII(value):
            content, length = ASCII_OF(value), PyUnicode_GET_LENGTH(value)
        else:
            content = PyUnicode_AsUTF8AndSize(value, &length)
            if content == NULL:
                PyErr_Clear()
                return -1
        return _put_length(out, length, 0xA0, 32, 0xD9, 0xDA) or _pack_bytes(out, content, length)
    if kind == INTEGER:
        return _pack_int(out, value)
    if kind == REAL:
        real = PyFloat_AS_DOUBLE(value)
        memcpy(&bits, &real, 8)
        if _reserve(out, 9):
            return -1
        _put_number(out, 0xCB, bits, 8)
        return 0
    if kind == BYTES:
        length = PyBytes_GET_SIZE(value)
        return _put_length(out, length, 0, 0, 0xC4, 0xC5) or _pack_bytes(out, PyBytes_AS_STRING(value), length)
    if kind == NONE or kind == TRUE_VALUE or kind == FALSE_VALUE:
        if _reserve(out, 1):
            return -1
        _put(out, 0xC0 if kind == NONE else 0xC3 if kind == TRUE_VALUE else 0xC2)
        return 0
    if kind == OTHER or depth >= DEEPEST:
        return -1
    if kind == DICT:
        if _put_length(out, len(<dict>value), 0x80, 16, 0, 0xDE):
            return -1
        for key, one in (<dict>value).items():
            if _pack(out, key, depth + 1) or _pack(out, one, depth + 1):
                return -1
        return 0
    if _put_length(out, len(<tuple>value) if kind == TUPLE else len(<list>value), 0x90, 16, 0, 0xDC):
        return -1
    if kind == TUPLE:
        for one in <tuple>value:
            if _pack(out, one, depth + 1):
                return -1
    else:
        for one in <list>value:
            if _pack(out, one, depth + 1):
                return -1
    return 0


def pack_rows(rows):
    packed = None
    _packed.used = 0
    if not _pack(&_packed, rows, 0):
        packed = PyBytes_FromStringAndSize(<char *>_packed.bytes, _packed.used)
    if _packed.room > LONGEST:
        free(_packed.bytes)
        _packed.bytes, _packed.room = NULL, 0
    return packed


# -- unpacking -------------------------------------------------------------------------------------------------------------

class _Declined(Exception):
    """The payload is left to msgpack. Raised as a new instance each time: one that is raised again keeps all its tracebacks."""


cdef PyObject *_remembered[REMEMBERED]

cdef struct Reading:
    const uint8_t *at
    const uint8_t *end
    size_t owed  # values that open arrays and maps have announced; each takes a byte at least


cdef inline int _need(Reading *source, size_t size) except -1:
    if <size_t>(source.end - source.at) < size:
        raise _Declined()
    return 0


cdef inline int _announce(Reading *source, size_t values) except -1:
    source.owed += values
    return _need(source, source.owed)


cdef inline uint64_t _number(Reading *source, int size) except? 0x5EED:
    """Read a number of that many bytes, the highest first."""
    cdef uint64_t number = 0
    cdef int at
    _need(source, size)
    for at in range(size):
        number = number << 8 | source.at[at]
    source.at += size
    return number


cdef object _text(Reading *source, size_t length):
    cdef const char *content = <const char *>source.at
    cdef uint64_t hashed = length * <uint64_t>0x9E3779B97F4A7C15, word = 0
    cdef size_t at = 0, place
    cdef PyObject *known
    _need(source, length)
    source.at += length
    if not 0 < length <= SHORT:
        return PyUnicode_DecodeUTF8(content, length, NULL)
    while at + 8 <= length:
        memcpy(&word, content + at, 8)
        hashed = (hashed ^ word) * <uint64_t>0x9E3779B97F4A7C15
        hashed ^= hashed >> 29
        at += 8
    word = 0
    memcpy(&word, content + at, length - at)
    hashed = (hashed ^ word) * <uint64_t>0x9E3779B97F4A7C15
    place = (hashed ^ hashed >> 32) & (REMEMBERED - 1)
    known = _remembered[place]
    if known != NULL:
        one = <object>known
        if <size_t>PyUnicode_GET_LENGTH(one) == length and not memcmp(ASCII_OF(one), content, length):
            return one
    one = PyUnicode_DecodeUTF8(content, length, NULL)
    if IS_ASCII(one):
        Py_INCREF(one)
        _remembered[place] = <PyObject *>one
        Py_XDECREF(known)
    return one


cdef tuple _array(Reading *source, size_t length, int depth):
    cdef tuple values
    cdef size_t at
    cdef bint is_flat = length > 0
    _announce(source, length)
    values = PyTuple_New(length)
    for at in range(length):
        value = _value(source, depth + 1)
        is_flat = is_flat and not PyObject_IS_GC(value)
        Py_INCREF(value)
        PyTuple_SET_ITEM(values, at, value)
    if is_flat:
        # The garbage collector would do the same later, with more work.
        PyObject_GC_UnTrack(values)
    return values


cdef dict _map(Reading *source, size_t length, int depth):
    cdef dict values = {}
    cdef size_t at
    _announce(source, 2 * length)
    for at in range(length):
        key = _value(source, depth + 1)
        values[key] = _value(source, depth + 1)
    return values


cdef object _value(Reading *source, int depth):
    cdef uint8_t head
    cdef uint64_t length
    cdef float single
    cdef double real
    cdef uint32_t bits
    cdef const char *content
    _need(source, 1)
    source.owed -= 1
    head = source.at[0]
    source.at += 1
    if head < 0x80:
        return head
    if head >= 0xE0:
        return <int8_t>head
    if 0xA0 <= head < 0xC0:
        return _text(source, head & 31)
    if depth >= DEEPEST and (head < 0xA0 or 0xDC <= head <= 0xDF):
        raise _Declined()
    if head < 0x90:
        return _map(source, head & 15, depth)
    if head < 0xA0:
        return _array(source, head & 15, depth)
    if head == 0xC0:
        return None
    if head == 0xC2:
        return False
    if head == 0xC3:
        return True
    if 0xD9 <= head <= 0xDB:
        return _text(source, _number(source, 1 << (head - 0xD9)))
    if 0xC4 <= head <= 0xC6:
        length = _number(source, 1 << (head - 0xC4))
        _need(source, length)
        content = <const char *>source.at
        source.at += length
        return PyBytes_FromStringAndSize(content, length)
    if 0xCC <= head <= 0xCF:
        return _number(source, 1 << (head - 0xCC))
    if head == 0xD0:
        return <int8_t>_number(source, 1)
    if head == 0xD1:
        return <int16_t>_number(source, 2)
    if head == 0xD2:
        return <int32_t>_number(source, 4)
    if head == 0xD3:
        return <int64_t>_number(source, 8)
    if head == 0xCB:
        length = _number(source, 8)
        memcpy(&real, &length, 8)
        return real
    if head == 0xCA:
        bits = <uint32_t>_number(source, 4)
        memcpy(&single, &bits, 4)
        return <double>single
    if head == 0xDC or head == 0xDD:
        return _array(source, _number(source, 2 << (head - 0xDC)), depth)
    if head == 0xDE or head == 0xDF:
        return _map(source, _number(source, 2 << (head - 0xDE)), depth)
    raise _Declined()


cdef list _rows(Reading *source, size_t count):
    cdef size_t at, length
    cdef uint8_t head
    cdef list rows = []
    _need(source, 1)
    head = source.at[0]
    source.at += 1
    if 0x90 <= head < 0xA0:
        length = head & 15
    elif head == 0xDC or head == 0xDD:
        length = _number(source, 2 << (head - 0xDC))
    else:
        raise _Declined()
    if length != count:
        raise _Declined()
    _announce(source, length)
    for at in range(count):
        row = _value(source, 1)
        if type(row) is not tuple:
            raise _Declined()
        rows.append(row)
    if source.at != source.end:
        raise _Declined()
    return rows


def unpack_rows(payload, size_t count):
    cdef Py_buffer view
    cdef Reading source
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if view.len > LONGEST:
            return None
        source.at = <const uint8_t *>view.buf
        source.end = source.at + view.len
        source.owed = 0
        return _rows(&source, count)
    except MemoryError:
        raise
    except Exception:
        return None
    finally:
        PyBuffer_Release(&view)
