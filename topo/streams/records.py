"""Records as rows: how a record travels between tasks, and how it is kept in state.

A record whose type is known and has fields (a `msgspec.Struct`, a dataclass, a `NamedTuple`) travels as the values of its
fields, under their names. Every other record is the one field `value`. Values that a row would change (lists arrive as tuples,
a nested record would lose its class) are converted on both sides, where the type is known.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from operator import getitem
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import msgspec

from topo.errors import UserError
from topo.streams.type_facts import CHANGED, loss_of, lost_in, named, substituted

_AS_THEY_ARE = (bytes, datetime, date, time, timedelta, Decimal, UUID)
SCALARS: frozenset[type] = frozenset({str, int, float, bool, type(None), *_AS_THEY_ARE})
"""Types of values that arrive as they were sent."""
_OF_PARTS = (Union, types.UnionType, tuple, dict, set, frozenset, Collection, Sequence, Mapping, MutableMapping, Set, MutableSet)
"""Origins of types whose values arrive as they were where their parts do."""
VALUE = "value"
KEY = "key"
"""Name of the field that holds the key."""
_BEFORE = "declare it where the records are made, as by of=dict[str, list[int]] there, or by map(..., of=...) before it"
_MERGED = "streams of several types are merged: make one type of them before, as by map(..., of=...)"


def _made(source: str, space: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a generated function. Its module makes it engine code: no error is reported with a line of it."""
    return eval(source, space | {"__name__": "topo.streams.generated"})  # type: ignore[no-any-return]


_to_plain = partial(msgspec.to_builtins, builtin_types=_AS_THEY_ARE)
_from_plain = partial(msgspec.convert, builtin_types=_AS_THEY_ARE)


@dataclass(frozen=True)
class Layout:
    """How records of one type become rows.

    Attributes:
        record: the type; None where it is not known: each record is then checked.
        fields: names of the row's fields.
        attributes: the attribute behind each field; empty where the record itself is the one value.
        kinds: for each field the type that its value is converted to on arrival; None where it arrives as it is.
        by_name: the class takes its fields by name alone.
    """

    record: Any
    fields: tuple[str, ...]
    attributes: tuple[str, ...]
    kinds: tuple[Any, ...]
    by_name: bool = False

    def packed(self, record: str, space: dict[str, Any]) -> list[str]:
        """Return the expression of each value of a row.

        Args:
            record: the expression of the record.
            space: takes the names that the expressions use.

        Raises:
            UserError: a value is of a class that could not be made again.
        """
        for kind in filter(None, self.kinds):
            for cls in lost_in(kind):
                raise UserError(f"values of {kind} cannot be made again on arrival: {loss_of(cls)}")
        values = [f"{record}.{attribute}" for attribute in self.attributes] or [record]
        for place, kind in enumerate(self.kinds):
            if kind is not None:
                check, call = _check_of_parts(kind), f"plain{len(space)}"
                space[call] = _to_plain if check is None else partial(_checked_plain, check)
                values[place] = f"{call}({values[place]})"
        return values

    def unpacked(self, values: list[str], space: dict[str, Any], prefix: str) -> str:
        """Return the expression of the record.

        Args:
            values: the expressions of the row's values.
            space: takes the names that the expression uses.
            prefix: of these names.
        """
        parts = []
        for place, (value, kind) in enumerate(zip(values, self.kinds, strict=True)):
            if kind is not None:
                space[f"{prefix}_kind{place}"] = kind
                space["convert"] = _from_plain
                value = f"convert({value}, {prefix}_kind{place})"
            parts.append(value)
        if not self.attributes:
            return parts[0]
        space[f"{prefix}_class"] = get_origin(self.record) or self.record
        named = [f"{name}={part}" for name, part in zip(self.attributes, parts, strict=True)]
        return f"{prefix}_class({', '.join(named if self.by_name else parts)})"

    def packer(self, place: str, *, merged: bool = False) -> Callable[[Any], Any]:
        """Return the function that makes a plain value of a record, as state keeps it: the tuple of its values, or the one value.

        Args:
            place: of the operator, for the error of a record that cannot be kept.
            merged: the records are of merged streams of several types, for that error.
        """
        check = self.class_check(place) if self.attributes else check_unknown(place, merged=merged)
        space: dict[str, Any] = {"check": check}
        values = self.packed("record", space)
        body = f"({', '.join(values)},)" if self.attributes else values[0]
        if self.attributes:
            space["cls"] = get_origin(self.record) or self.record
            body = f"{body} if type(record) is cls else check(record)"
        if self.record is None:
            body = f"check({body})"
        return _made(f"lambda record: {body}", space)

    def unpacker(self, start: int | None = None) -> Callable[[Any], Any]:
        """Return the function that makes a record of what `packer` gives; with `start`, of a row whose record begins there."""
        space: dict[str, Any] = {}
        values = [f"row[{(start or 0) + place}]" for place in range(len(self.fields))]
        if start is None and not self.attributes:
            values = ["row"]
        return _made(f"lambda row: {self.unpacked(values, space, 'record')}", space)

    def keeper(
        self, place: str, *, merged: bool = False, given: bool = False
    ) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Return the functions that make a value for state of a record, and a record of the value, which has the fields' names.

        Args:
            place: of the operator, or of the state, for errors.
            merged, given: as for `check_unknown`.
        """
        pack = self.packer(place)
        if not self.attributes:
            if self.kinds == (None,) and self.record not in SCALARS:
                return check_unknown(place, of_state=True, merged=merged, given=given), lambda value: value
            return pack, self.unpacker()
        names = ",".join(self.attributes)
        readers = {names: self.unpacker(1)}

        def unpack(stored: Any) -> Any:
            if (read := readers.get(stored[0])) is None:
                try:
                    renamed = self.unpacker_of(tuple(stored[0].split(",")))
                except UserError as error:
                    raise UserError(f"{place}: {error}") from error
                read = readers[stored[0]] = lambda row: renamed(row[1:])
            return read(stored)

        return lambda record: (names, *pack(record)), unpack

    def unpacker_of(self, stored: tuple[str, ...]) -> Callable[[Any], Any]:
        """Return the function that makes a record of values that were packed under other fields: by name, new ones by default.

        Args:
            stored: names of the attributes in the order of the values; empty where the record itself was stored.

        Raises:
            UserError: a field that is new has no default, or may be one of the stored ones under a new name.
        """
        if stored == self.attributes:
            return self.unpacker()
        if not stored or not self.attributes:
            raise UserError(f"its stored results are {_fields_shown(stored)}, and are {_fields_shown(self.attributes)} now")
        new = [name for name in self.attributes if name not in stored]
        gone = [name for name in stored if name not in self.attributes]
        cls = get_origin(self.record) or self.record
        needed = [name for name in new if inspect.signature(cls).parameters[name].default is inspect.Parameter.empty]
        if needed or (new and gone):
            why = f"{needed[0]!r} has no default" if needed else f"{gone[0]!r} may have become {new[0]!r}"
            shown = f"stored are {', '.join(stored)}; {cls.__name__} has {', '.join(self.attributes)}"
            raise UserError(f"the fields of its stored results are not those of the record, and {why} ({shown})")
        kept = [(name, kind) for name, kind in zip(self.attributes, self.kinds, strict=True) if name in stored]
        names, kinds = zip(*kept, strict=True) if kept else ((), ())
        part = Layout(self.record, names, names, kinds, by_name=True)
        space: dict[str, Any] = {}
        values = [f"row[{stored.index(name)}]" for name in names]
        return _made(f"lambda row: {part.unpacked(values, space, 'record')}", space)

    def state_check(self, place: str, *, given: bool = False) -> Callable[[Any], Any] | None:
        """Return the check of records that are kept in state: it raises for what a checkpoint would not give back as it was.

        None where values are converted on the way. A scalar needs no check. `given` as for `keeper`.
        """
        if self.attributes:
            return self.class_check(place)
        return check_unknown(place, of_state=True, given=given) if self.kinds == (None,) else None

    def class_check(self, place: str) -> Callable[[Any], Any]:
        """Return the check of records whose type has fields: it returns the record, or raises."""
        cls = get_origin(self.record) or self.record

        def check(record: Any) -> Any:
            if type(record) is not cls:
                what = (
                    f"{place} was given a {type(record).__name__}, where records are of {cls.__name__}, and would make one of it"
                )
                raise UserError(f"{what}; give a {cls.__name__}, or declare the type that the records are of (of=...)")
            return record

        return check


def _fields_shown(fields: tuple[str, ...]) -> str:
    return f"records with the fields {', '.join(fields)}" if fields else "single values"


UNKNOWN = Layout(None, (VALUE,), (), (None,))


def layout_of(record: Any) -> Layout:
    """Return the layout of a type of records.

    Raises:
        UserError: records of this type could not be made again on the other side.
    """
    if record in (None, Any, object, tuple):
        return UNKNOWN
    if (meant := named(record)) is not record:
        return layout_of(meant)
    if (found := _fields_of(record)) is not None:
        names, kinds, by_name = found
        shown = tuple(f"{KEY}_" if name == KEY else name for name in names)
        return Layout(record, shown, names, tuple(kind if changes(kind) else None for kind in kinds), by_name)
    kind = record if changes(record) else None
    if kind is not None:
        _check_convertible(record)
    return Layout(record, (VALUE,), (), (kind,))


def has_fields(record: Any) -> bool:
    """Return whether records of this type travel as their fields."""
    cls = get_origin(record) or record
    return isinstance(cls, type) and (
        issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def known_type(value: Any) -> Any:
    """Return the type of a value that stands for all its like; None for a container, whose parts may be of any type."""
    cls = type(value)
    return cls if cls in SCALARS or has_fields(cls) else None


def _fields_of(record: Any) -> tuple[tuple[str, ...], list[Any], bool] | None:
    """Return names and types of the fields, and whether the class takes them by name; None for a type without fields."""
    cls: Any = get_origin(record) or record
    if not has_fields(record):
        return None
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(record), strict=False))
    by_name = False
    if issubclass(cls, msgspec.Struct):
        names = tuple(cls.__struct_fields__)
        # Fields that are for keywords only come last.
        by_name = str(inspect.signature(cls)).find("*") >= 0
    elif dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        names = tuple(one.name for one in fields)
        by_name = any(one.kw_only for one in fields)
        if hidden := [one.name for one in fields if not one.init]:
            name = getattr(cls, "__name__", cls)
            what = f"the dataclass {name} computes {', '.join(hidden)} (init=False)"
            raise UserError(f"{what}, so it cannot be made again from its fields; compute it in a property")
    else:
        names = tuple(cls._fields)
    if not names:
        raise UserError(f"records of {cls.__name__} have no fields, so there is nothing to send; give it one")
    try:
        hints = get_type_hints(cls)
    except (NameError, TypeError) as error:
        raise UserError(f"the annotations of {cls.__name__} cannot be resolved: {error}; define the class in a module") from error
    if passed := [name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]:
        why = f"the dataclass {cls.__name__} takes {', '.join(passed)} (InitVar), which it does not keep"
        raise UserError(f"{why}, so it cannot be made again from its fields; keep the value in a field")
    kinds = [substituted(hints.get(name, Any), given) for name in names]
    for kind in kinds:
        if changes(kind):
            _check_convertible(kind)
    return names, kinds, by_name


def changes(kind: Any, above: tuple[Any, ...] = ()) -> bool:
    """Return whether a value of this type arrives as something else, unless it is converted. `above`: names around it."""
    if (meant := named(kind)) is not kind:
        return kind not in above and changes(meant, (*above, kind))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return changes(arguments[0], above)
    if origin in _OF_PARTS:
        return any(changes(one, above) for one in arguments if one is not ...)
    if origin is Literal or kind in SCALARS or kind is Any or kind is None:
        return False
    cls = origin or kind
    if not isinstance(cls, type):
        return False
    if cls in (tuple, dict, set, frozenset):
        return False
    return issubclass(cls, (Enum, *CHANGED)) or has_fields(cls) or cls is MutableSequence


def _check_of_parts(kind: Any, above: tuple[Any, ...] = ()) -> Callable[[Any], None] | None:
    """Return the check of those parts of a value that may be of any type; None where its type has no such parts."""
    if (meant := named(kind)) is not kind:
        return None if kind in above else _check_of_parts(meant, (*above, kind))
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _check_of_parts(inner[0], above)
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return _refuse_records
    if origin in (Union, types.UnionType):
        (first, *others) = [one for one in inner if one is not type(None)]
        of_one = None if others else _check_of_parts(first, above)
        return of_one and partial(_check_given, of_one)
    cls = origin or kind
    parts: dict[Any, Any]
    read: Callable[[Any, Any], Any]
    has_derived = False
    if cls is tuple and inner and inner[-1] is not ...:
        parts, read = dict(enumerate(inner)), getitem
    elif cls in (list, *_OF_PARTS):
        is_map = cls in (dict, Mapping, MutableMapping)
        of_items = _check_of_parts((*inner, Any, Any)[int(is_map)], above)
        return of_items and partial(_check_items, of_items, is_map)
    elif has_fields(kind) or is_typeddict(cls):
        # Without a subclass so far, which is usual, every value is of the class itself.
        has_derived = has_fields(kind) and bool(cls.__subclasses__())
        if cls in above:
            return partial(_check_again, kind, []) if has_derived else None
        given = dict(zip(getattr(cls, "__parameters__", ()), inner, strict=False))
        parts = {name: substituted(one, given) for name, one in get_type_hints(cls).items() if get_origin(one) is not ClassVar}
        read = dict.get if is_typeddict(cls) else getattr
    else:
        return None
    checks = [(place, check) for place, one in parts.items() if (check := _check_of_parts(one, (*above, cls)))]
    of_parts = partial(_check_parts, checks, read) if checks else None
    return partial(_check_class, cls, of_parts) if has_derived else of_parts


def _check_again(kind: Any, known: list[Any], value: Any) -> None:
    """Check a part of a type that is a part of itself; `known` takes its check."""
    if not known:
        known.append(_check_of_parts(kind))
    known[0](value)


def _check_class(cls: type, of_parts: Callable[[Any], None] | None, value: Any) -> None:
    if type(value) is not cls and isinstance(value, cls):
        mine, base = type(value).__name__, cls.__name__
        raise UserError(f"a {mine} is in a part that is declared as {base}, and would arrive as a {base}; declare {mine} for it")
    if of_parts is not None:
        of_parts(value)


def _check_given(check: Callable[[Any], None], value: Any) -> None:
    if value is not None:
        check(value)


def _check_parts(checks: list[tuple[Any, Callable[[Any], None]]], read: Callable[[Any, Any], Any], value: Any) -> None:
    for place, check in checks:
        check(read(value, place))


def _check_items(check: Callable[[Any], None], is_map: bool, value: Any) -> None:
    items = value.values() if is_map else value
    if check is not _refuse_records or not SCALARS.issuperset(map(type, items)):
        for item in items:
            check(item)


def _refuse_records(value: Any) -> None:
    """Refuse a value of any type that would arrive as something else."""
    cls = type(value)
    if cls in (list, tuple, set, frozenset, dict):
        _check_items(_refuse_records, cls is dict, value)
    elif cls not in SCALARS and (has_fields(cls) or isinstance(value, Enum)):
        what = f"a {(name := cls.__name__)} is in a part of any type, so it would not arrive as one"
        raise UserError(f"{what}; declare list[{name}] for list, and the like, or annotate the return type of its function")


def _checked_plain(check: Callable[[Any], None], value: Any) -> Any:
    check(value)
    return _to_plain(value)


def _check_convertible(kind: Any) -> None:
    try:
        msgspec.json.Decoder(kind)
    except Exception as error:
        why = "it is a part of itself; declare Any for it" if isinstance(error, RecursionError) else str(error)
        if "union" in why and ("dataclass" in why or "Struct" in why):
            why += "; make each a msgspec.Struct with a tag, as in class Paid(msgspec.Struct, tag=True)"
        raise UserError(f"values of {kind} cannot be made again on arrival: {why}") from error


def check_unknown(place: str, *, of_state: bool = False, merged: bool = False, given: bool = False) -> Callable[[Any], Any]:
    """Return the check of records whose type is not known where they leave their task: it returns the record, or raises.

    Args:
        place: of the operator, for the error.
        of_state: the records are kept in state. Then the parts of dicts and sets are checked, too.
        merged: they are of merged streams of several types.
        given: the operator is given them, and does not declare their type.

    Raises:
        UserError: the record would arrive as something else.
    """
    admitted: set[type] = {*SCALARS, dict, set, frozenset}

    def check(part: Any, within: Any = None) -> Any:
        record, cls = part if within is None else within, type(part)
        if cls is tuple or (of_state and cls in (set, frozenset)):
            for one in part:
                check(one, record)
        elif of_state and cls is dict:
            for key, value in part.items():
                check(key, record)
                check(value, record)
        elif cls not in admitted:
            gives = f"{place} {'keeps' if of_state else 'gives'} a {'tuple with a ' * (type(record) is tuple)}{cls.__name__}"
            if issubclass(cls, CHANGED) and cls not in CHANGED and not has_fields(cls) and not issubclass(cls, Enum):
                raise UserError(f"{gives}, and {loss_of(cls)}")
            if has_fields(cls) or issubclass(cls, (Enum, *CHANGED)):
                what = f"{gives}, and its type is not known here, so it would not arrive as one"
                fix = f"of={_declared(record)}" + (", or of=dict[str, list[int]] for one within a dict" if of_state else "")
                fix = f"declare it: {fix}, or annotate the return type of the function"
                raise UserError(f"{what}; {_MERGED if merged else _BEFORE if given else fix}")
            admitted.add(cls)
        return part

    return check


def _declared(value: Any) -> str:
    """Return how the type of a value is declared."""
    cls = type(value)
    if cls is tuple:
        return f"tuple[{', '.join(map(_declared, value))}]"
    return "None" if value is None else f"{cls.__name__}{'[...]' * (cls in (list, set, frozenset, dict))}"
