"""Values: the rows of a frame to msgpack and back, all rows in one call: of `topo.hot` for plain values where that is compiled.

What arrives is judged before it is built. `check_depth` first reads the payload without making an object, so that every length
in it is known to be true: msgpack alone makes room for arrays that are claimed and never come. Then the number of elements is
bounded: each takes at least a byte, so only a payload of more than MAX_ELEMENTS bytes can hold too many, and only such a one is
counted while it is unpacked. The worst that fits (a megabyte of empty maps) takes some 70 MB for as long as it is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgpack
import msgspec

from topo.api.column_batch import ColumnBatch
from topo.errors import FrameError, UnsupportedValueError
from topo.hot import Column, Row, pack_rows, unpack_rows
from topo.nesting import MAX_DEPTH, TooDeep, check_depth
from topo.wire.frames import MAX_FRAME, ROW_OVERHEAD
from topo.wire.serializers import SerializerRegistry, UnknownType

MAX_ELEMENTS = 1024 * 1024
"""Most values, nested ones and map entries included, that one payload may unpack to."""
MAX_ROW = MAX_FRAME - ROW_OVERHEAD
"""Bytes; most that one row may take."""

_FLAT = frozenset((int, str, bytes, float, bool))
"""Types without anything inside: positions mostly are such, and a worker notes them by the thousand."""

_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
"""Return the elements of a msgpack array, still packed."""


class Rejection(NamedTuple):
    """A row that cannot be carried: its place in the batch, the position of the field (None: the row as a whole), and why."""

    row: int
    field: int | None
    type_name: str
    reason: str


class Unreadable(NamedTuple):
    """A row that arrived and cannot be decoded: the position of its first undecodable field, and why."""

    field: int
    error: FrameError


class PackResult(NamedTuple):
    """Rows packed: the payload of those that `kept` names, in order, and what became of the others."""

    payload: bytes
    kept: Sequence[int]
    rejected: list[Rejection]


def join_packed(elements: Iterable[bytes]) -> bytes:
    """Return the array of some packed values."""
    return msgspec.msgpack.encode([msgspec.Raw(element) for element in elements])


def split_packed(array: bytes) -> list[bytes]:
    """Return the elements of a packed array, each packed."""
    return list(map(bytes, _split(array)))


class Codec:
    """Packs and unpacks for one thread.

    Args:
        registry: the ext types; without it topo's own.
        max_row: most bytes that one row may take: the frame limit of the receivers less ROW_OVERHEAD.
    """

    def __init__(self, registry: SerializerRegistry | None = None, max_row: int = MAX_ROW) -> None:
        self.registry = registry if registry is not None else SerializerRegistry()
        self.max_row = max_row
        self._renew()

    def _renew(self) -> None:
        # A packer that has raised is not used again, and a packer that has packed megabytes keeps them.
        self._packer = msgpack.Packer(default=self.registry.encode)

    def _pack(self, value: Any, rows: int = 0, is_flat: bool = False) -> bytes:
        try:
            packed: bytes = self._packer.pack(value)
            if not is_flat and type(value) not in _FLAT:
                check_depth(packed, rows=rows)
        except Exception:
            self._renew()
            raise
        if len(packed) > MAX_ELEMENTS:
            self._renew()
        return packed

    def pack_rows(self, rows: Sequence[Row]) -> bytes:
        """Return the payload of a batch.

        Raises:
            UnsupportedValueError: of the first row that cannot be carried.
        """
        payload, _, rejected = self.pack_or_split(rows)
        if rejected:
            row, field, type_name, reason = rejected[0]
            where = f"row {row}" if field is None else f"row {row}, field {field}"
            raise UnsupportedValueError(f"{where}: {type_name}: {reason}")
        return payload

    def pack_or_split(self, rows: Sequence[Row], is_flat: bool = False) -> PackResult:
        """Return the payload of the rows that can be carried, and the others with their reasons.

        One call when all is well. Otherwise, or when the payload could hold a row that is too long, row by row.

        Args:
            rows: the batch.
            is_flat: whether no value holds others; else the packed bytes are read once: a value may be too deep, or not be
                readable, since a subclass of dict may be packed.

        Raises:
            MemoryError: the process is short of memory; no row is at fault.
        """
        try:
            payload = pack_rows(rows)
            if payload is None:
                payload = self._pack(rows, len(rows), is_flat)
            if len(payload) <= min(self.max_row, MAX_ELEMENTS):
                return PackResult(payload, range(len(rows)), [])
        except MemoryError:
            raise
        except Exception:
            pass
        parts: list[bytes] = []
        kept: list[int] = []
        rejected: list[Rejection] = []
        for index, row in enumerate(rows):
            part = self._pack_row(index, row)
            if isinstance(part, Rejection):
                rejected.append(part)
            else:
                kept.append(index)
                parts.append(part)
        return PackResult(msgpack.Packer().pack_array_header(len(parts)) + b"".join(parts), kept, rejected)

    def _pack_row(self, index: int, row: Row) -> bytes | Rejection:
        # Rows and values are packed inside the arrays that will hold them, so that they are nested as deep as in the frame.
        try:
            part = self._pack((row,))
        except MemoryError:
            raise
        except Exception as error:
            return self._locate(index, row, error)
        if len(part) > self.max_row:
            is_batch = isinstance(row[0], ColumnBatch)
            fix = "emit batches of fewer rows" if is_batch else "emit it in parts, or the path of a file that holds it"
            largest = max(range(len(row)), key=lambda at: len(self._pack(((row[at],),))))
            reason = f"the tuple takes {len(part)} bytes with it; at most {self.max_row} are carried: {fix}"
            return Rejection(index, largest, type(row[largest]).__name__, reason)
        if len(part) > MAX_ELEMENTS:
            try:
                self.unpack_rows(part, 1)
            except FrameError as error:
                return Rejection(index, None, type(row).__name__, f"could not be read where it arrives: {error}")
        return part[1:]

    def _locate(self, index: int, row: Row, error: Exception) -> Rejection:
        for position, value in enumerate(row):
            try:
                self._pack(((value,),))
            except Exception as narrower:
                return Rejection(index, position, *_explain(value, narrower))
        return Rejection(index, None, *_explain(row, error))

    def unpack_rows(self, payload: Column, count: int) -> list[Row]:
        """Return the rows of a payload; every sequence in them is a tuple.

        Raises:
            FrameError: it is not msgpack, not `count` rows, too many elements, nested too deeply, or holds ext types that are
                not registered.
            MemoryError: the process is short of memory; no row is at fault.
        """
        if (plain := unpack_rows(payload, count)) is not None:
            return plain
        # A payload that passes as `count` rows and is none is refused here.
        rows = self._unpack_whole(payload, count)
        if type(rows) is not tuple or len(rows) != count:
            found = f"{len(rows)} rows" if type(rows) is tuple else type(rows).__name__
            raise FrameError(f"the payload holds {found} where {count} rows were announced")
        if rows and set(map(type, rows)) != {tuple}:
            raise FrameError("a row of the payload is not an array of values")
        return list(rows)

    def unpack_one(self, payload: Column, index: int) -> Row:
        """Return one row of a payload that has been read before."""
        return self.unpack_rows(b"\x91" + bytes(_split(payload)[index]), 1)[0]

    def unpack_or_split(self, payload: Column, count: int) -> tuple[list[Row], dict[int, Unreadable]]:
        """Return the rows, and by index those that cannot be decoded; in these, text stands for each undecodable field.

        One call when all is well. Otherwise field by field.

        Raises:
            FrameError: the payload as a whole is not `count` rows, or holds too many elements.
            MemoryError: the process is short of memory; no row is at fault.
        """
        try:
            return self.unpack_rows(payload, count), {}
        except FrameError:
            try:
                split = [_split(part) for part in _split(payload)]
            except msgspec.DecodeError:
                split = []
            if len(split) != count:
                raise
        rows: list[Row] = []
        unreadable: dict[int, Unreadable] = {}
        budget = _Budget(MAX_ELEMENTS)
        for index, fields in enumerate(split):
            budget.spend(fields)
            values = []
            for position, packed in enumerate(fields):
                try:
                    values.append(self._unpack(packed, budget))
                except FrameError as error:
                    if budget.left < 0:
                        raise
                    unreadable.setdefault(index, Unreadable(position, error))
                    values.append(f"(not decoded: {error})")
            rows.append(tuple(values))
        return rows, unreadable

    def pack_value(self, value: Any) -> bytes:
        """Return one value packed, such as a source's position.

        Raises:
            UnsupportedValueError: it cannot be carried.
        """
        try:
            return self._pack(value)
        except MemoryError:
            raise
        except Exception as error:
            type_name, reason = _explain(value, error)
            raise UnsupportedValueError(f"{type_name}: {reason}") from error

    def pack_values(self, values: Sequence[Any]) -> bytes:
        """Return values packed as one array.

        Raises:
            Exception: one of them cannot be carried.
        """
        return self._pack(values, is_flat=_FLAT.issuperset(map(type, values)))

    def unpack_value(self, payload: Column) -> Any:
        """Return what `pack_value` packed. Raises FrameError and MemoryError as `unpack_rows` does."""
        return self._unpack_whole(payload)

    def _unpack_whole(self, payload: Column, rows: int = 0) -> Any:
        return self._unpack(payload, _Budget(MAX_ELEMENTS) if len(payload) > MAX_ELEMENTS else None, rows)

    def _unpack(self, payload: Column | msgspec.Raw, budget: _Budget | None, rows: int = 0) -> Any:
        hooks: dict[str, Any] = {"ext_hook": self.registry.decode}
        if budget is not None:
            hooks = {"ext_hook": partial(self.registry.decode, spend=budget.spend)}
            hooks |= {"list_hook": budget.spend, "object_hook": budget.spend}
            hooks |= {"max_array_len": MAX_ELEMENTS, "max_map_len": MAX_ELEMENTS}
        try:
            check_depth(memoryview(payload) if isinstance(payload, msgspec.Raw) else payload, rows=rows)
            return msgpack.unpackb(payload, use_list=False, strict_map_key=False, **hooks)
        except (FrameError, MemoryError):
            raise
        except Exception as error:
            raise FrameError(f"values that cannot be read: {type(error).__name__}: {error}") from error


class _Budget:
    """Counts the elements of arrays and maps as they are completed."""

    __slots__ = ("left",)

    def __init__(self, elements: int) -> None:
        self.left = elements

    def spend(self, elements: Any) -> Any:
        self.left -= len(elements)
        if self.left < 0:
            raise FrameError(f"a payload of more than {MAX_ELEMENTS} elements")
        return elements


def _explain(value: Any, error: Exception) -> tuple[str, str]:
    """Return the name of the type that is at fault, and its fault."""
    if isinstance(error, UnknownType):
        return error.type_name, error.reason
    name = type(value).__name__
    if isinstance(error, UnicodeEncodeError):
        return name, "holds a lone surrogate, which UTF-8 cannot carry"
    if isinstance(error, TooDeep) or "recursion" in str(error):
        return name, f"is nested too deeply (at most {MAX_DEPTH} levels are carried), or contains itself"
    return name, f"{type(error).__name__}: {error}"
