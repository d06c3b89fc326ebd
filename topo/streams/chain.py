"""Fusion: the operators behind a source or an operator with state, up to the next exchanges, as one generated function.

    for r2 in v1:               # flat_map
        r3 = f2(r2)             # map
        if f3(r3):              # filter
            emit((f4(r3), r3))  # key_by, and the row that leaves

Each line of the function belongs to one operator, so the line in a traceback names the operator that has raised; that costs
nothing while none does. `Chain` is plain data; `compiled` makes the function in the process that runs it. Behind a source, and in
running results, the lines are in a loop over the rows of a slice.
"""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType
from typing import Any, get_origin

import msgspec

from topo.api.streams import DEFAULT_STREAM
from topo.errors import UserError
from topo.streams.functions import FirstCall, check_runs, row_of
from topo.streams.graph import MAIN, REST, Node, Site, maker_of
from topo.streams.process import KeyedProcess
from topo.streams.records import SCALARS, Layout, check_unknown
from topo.streams.results import Windowed
from topo.streams.type_facts import reads_as_given
from topo.streams.value_checks import KEYS, TimeCheck, check_items, check_key, check_result
from topo.user_errors import blame_place

_LISTS = frozenset({tuple, set, frozenset, range, map, filter, GeneratorType})
"""Types of what `flat_map` takes as it is, beside lists."""
_LOOKED_AT = {kind: kind for kind in ("map", "map_keyed", "filter", "branch", "tap")} | {"call": "to"}
"""Operators, by the names of their methods, that could take a coroutine for a result."""
_INDENT = "    "


@dataclass(eq=False)
class ChainStep:
    """One operator of a chain.

    Attributes:
        label: kind and name, for errors.
        site: where the user has written it.
        function: the user's.
        record: the type that `parse_json` reads.
        then: what reads each of its outputs.
    """

    kind: str
    label: str
    site: Site
    function: Any
    record: Any
    then: dict[str, list[ChainStep | Leaf]]


@dataclass(frozen=True, slots=True)
class Maker:
    """The operator that has made the records which leave a chain."""

    label: str
    site: Site

    @classmethod
    def of(cls, node: Node) -> Maker:
        """Return the maker of the results of an operator, which may pass them on."""
        made = maker_of(node)
        return cls(str(made), made.site)


@dataclass(eq=False)
class Leaf:
    """The end of a chain: the record leaves on a stream of the component.

    Attributes:
        label: of the operator that reads it.
        maker: of the records.
        layout: of its rows.
        keyed: the key is the first value.
        with_record: False where the reader takes the key alone.
        counted: the row is a key and 1, so that the rows of a slice can be added up.
        spread: the record has the row's values, by place or by key.
        merged: its type is not known because streams of several types were merged.
    """

    label: str
    site: Site
    maker: Maker
    stream: str
    layout: Layout
    keyed: bool
    with_record: bool = True
    spread: bool = False
    counted: bool = False
    merged: bool = False


@dataclass(eq=False)
class Chain:
    """The operators behind one output of a component's body.

    Attributes:
        name: of the component, for tracebacks.
        label: of the body, for errors.
        site: of the body.
        tree: what reads the body's records.
        bodies: the user's functions in the body, which are opened with those of the operators.
        time_place: which value of a row of the main stream the watermarks read as its event time; None: rows leave with theirs.
    """

    name: str
    label: str
    site: Site
    tree: list[ChainStep | Leaf]
    bodies: Sequence[Any] = ()
    time_place: int | None = None

    def steps(self) -> Iterable[ChainStep]:
        """Return all operators, each as often as the tree has it."""
        return (one for one in walk(self.tree) if isinstance(one, ChainStep))

    def open(self, context: Any) -> None:
        """Call `open` of the functions that are objects with one."""
        functions = {id(one): one for one in (*self.bodies, *(step.function for step in self.steps()))}
        for function in functions.values():
            open_function(function, context)

    def compiled(
        self, head: str, before: Sequence[str] = (), after: Sequence[str] = (), space: dict[str, Any] | None = None,
        *, adds: bool = False, counts: bool = False, ahead: Sequence[str] | None = None,
    ) -> Callable[..., None]:  # fmt: skip
        """Return the function of the chain.

        Args:
            head: its name and parameters. It, or `before`, sets `r` (the record), `k` (its key), and `emit`.
            before: lines ahead of the chain.
            after: lines behind it, which run when no operator has raised.
            space: names that these lines use.
            adds: `before` sets `add`, which takes rows of the main stream that need no check.
            counts: it sets `add_key`, too, which takes the key of a counted row.
            ahead: lines ahead of a loop in which all others are, over `values` in `rows`; None: there is no loop.
        """
        writer, depth = _Writer(self, space or {}, adds=adds, counts=counts), 2
        if ahead is not None:
            writer.put(depth, self, *ahead, "for values in rows:")
            depth += 1
        writer.put(depth, self, *before)
        writer.tree(self.tree, depth, "r", "k", "")
        writer.put(depth, self, *after)
        return writer.function(head)

    def compiled_loop(
        self, ahead: Sequence[str], before: Sequence[str], after: Sequence[str], space: dict[str, Any], streams: int, *,
        adds: bool = False, counts: bool = False,
    ) -> Callable[..., None]:  # fmt: skip
        """Return the function of the chain for a slice of rows, as `run_loop` of `topo.hot` calls it.

        Args:
            ahead, before, after, space, adds, counts: as of `compiled`.
            streams: how many the component has; the notes of the ends of one are shorter.
        """
        if streams <= 1:
            ahead = ["((out, ends),) = streams", *ahead]
            after = [*after, "end = len(out)", "if end > limit: break", "ends.append(end)"]
        else:
            end = "for out, ends in streams: ends.append(len(out))"
            after = [*after, "if sum([len(out) for out, _ in streams]) > limit: break", end]
        head = "run_rows(rows, collector, streams, limit)"
        return self.compiled(head, before, after, space, adds=adds, counts=counts, ahead=ahead)


def run_one(run_rows: Callable[..., None], values: Any, collector: Any, streams: int) -> None:
    """Call the function of `compiled_loop` with one row."""
    run_rows([values], collector, [([], []) for _ in range(streams or 1)], math.inf)


def opener(function: Any) -> Callable[..., Any] | None:
    """Return the `open` of a function that is an object with one; None for every other, a `KeyedProcess` too.

    A `KeyedProcess` is opened by its bolt, behind its state.
    """
    if isinstance(function, (type, FunctionType, BuiltinFunctionType, MethodType, KeyedProcess)):
        return None
    begin = getattr(function, "open", None)
    return begin if callable(begin) else None


def open_function(function: Any, context: Any = None) -> None:
    """Call the `open` of a function that is an object with one."""
    if (begin := opener(function)) is not None:
        begin(context)


def walk(tree: Iterable[ChainStep | Leaf]) -> Iterable[ChainStep | Leaf]:
    """Return all parts of a tree, parents first."""
    for one in tree:
        yield one
        if isinstance(one, ChainStep):
            for parts in one.then.values():
                yield from walk(parts)


class _Writer:
    def __init__(self, chain: Chain, space: dict[str, Any], *, adds: bool, counts: bool) -> None:
        self._chain, self._adds, self._counts = chain, adds, counts
        self._lines: list[str] = []
        self._owners: list[Chain | ChainStep | Leaf | Maker] = []
        self._space = {**space, "SCALARS": SCALARS, "KEYS": KEYS, "LISTS": _LISTS, "DecodeError": msgspec.DecodeError}
        self._made: dict[str, Any] = {}
        """The types that were decoded, by variable."""
        self._last = 0

    def put(self, depth: int, owner: Chain | ChainStep | Leaf | Maker, *lines: str) -> None:
        self._lines += [_INDENT * depth + line for line in lines]
        self._owners += [owner] * len(lines)

    def function(self, head: str) -> Callable[..., None]:
        """Compile the lines so far."""
        body = self._lines or [_INDENT * 2 + "pass"]
        text = [f"def {head}:", _INDENT + "try:", *body]
        text += [_INDENT + "except Exception as error:", _INDENT * 2 + "blame(error)", _INDENT * 2 + "raise"]
        source = "\n".join(text) + "\n"
        owners, first = self._owners, 3
        file = f"<streams: {self._chain.name}>"

        def blame(error: Exception) -> None:
            # The traceback begins with the frame of the generated function, which has caught the error.
            line = error.__traceback__.tb_lineno if error.__traceback__ is not None else 0
            if 0 <= line - first < len(owners):
                owner = owners[line - first]
                blame_place(error, (owner.site.file, owner.site.line))
                error.add_note(f"in {owner.label}")

        self._space |= {"__name__": "topo.streams.generated", "blame": blame}
        try:
            exec(compile(source, file, "exec"), self._space)
        except (SyntaxError, RecursionError) as error:
            raise UserError(
                f"the operators behind {self._chain.name!r} are nested too deeply to be fused ({error.args[0]}); put a "
                "rebalance() between them"
            ) from error
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        return self._space[head.partition("(")[0]]  # type: ignore[no-any-return]

    def _fresh(self, stem: str) -> str:
        self._last += 1
        return f"{stem}{self._last}"

    def _named(self, stem: str, value: Any) -> str:
        name = self._fresh(stem)
        self._space[name] = value
        return name

    def tree(self, parts: Sequence[ChainStep | Leaf], depth: int, r: str, k: str, t: str) -> None:
        """Write what reads one output: `r`, `k` and `t` are the variables of record, key and timestamp."""
        if not parts:
            self.put(depth, self._chain, "pass")
        for part in parts:
            if isinstance(part, Leaf):
                self._leaf(part, depth, r, k, t)
            else:
                self._step(part, depth, r, k, t)

    def _leaf(self, leaf: Leaf, depth: int, r: str, k: str, t: str) -> None:
        values = [k] if leaf.keyed else []
        if leaf.with_record and not leaf.spread:
            if leaf.layout.record is None:
                check = self._named("check", check_unknown(leaf.maker.label, merged=leaf.merged))
                self.put(depth, leaf.maker, f"if type({r}) is not str and type({r}) not in SCALARS: {check}({r})")
            elif leaf.layout.attributes:
                cls = self._named("class", get_origin(leaf.layout.record) or leaf.layout.record)
                check = self._named("check", leaf.layout.class_check(leaf.label))
                if self._made.get(r) is not leaf.layout.record:
                    self.put(depth, leaf, f"if type({r}) is not {cls}: {check}({r})")
                if leaf.layout.record == Windowed[Any]:
                    check = self._named("check", check_result)
                    self.put(depth, leaf, f"if type({r}.value) not in SCALARS: {check}({r}.value)")
            try:
                values += leaf.layout.packed(r, self._space)
            except UserError as error:
                raise UserError(f"{leaf.label}: {error}") from error
        if leaf.counted:
            values.append("1")
        if leaf.stream == DEFAULT_STREAM and self._chain.time_place is not None:
            t = ""
        if leaf.spread:
            row_of_record, spread = self._named("row", partial(row_of, leaf.layout.fields, leaf.label)), self._fresh("v")
            self.put(depth, leaf, f"{spread} = {r} if type({r}) is tuple else {row_of_record}({r})")
            values.append(f"*{spread}")
        row = f"({', '.join(values)},)"
        if self._adds and not t and leaf.stream == DEFAULT_STREAM and not leaf.spread and set(values) <= {k, r, "1"}:
            # The check that `emit` would make, in line.
            if leaf.counted and self._counts:
                self.put(depth, leaf, f"if type({k}) is str: add_key({k})", f"else: emit({row})")
                return
            plain = " and ".join(f"type({value}) is str" for value in dict.fromkeys(values) if value != "1")
            self.put(depth, leaf, f"if {plain}: add({row})", f"else: emit({row})")
            return
        where = f", {leaf.stream!r}" if t or leaf.stream != DEFAULT_STREAM else ""
        if where and leaf.stream == DEFAULT_STREAM:
            where = ", DEFAULT_STREAM"
            self._space["DEFAULT_STREAM"] = DEFAULT_STREAM
        self.put(depth, leaf, f"emit({row}{where}{f', {t}' if t else ''})")

    def _step(self, step: ChainStep, depth: int, r: str, k: str, t: str) -> None:
        main, kind = step.then.get(MAIN, []), step.kind
        if kind == "parse_json":
            self._parse(step, depth, r, k, t)
            return
        f = self._named("f", step.function) if step.function is not None else ""
        if kind in _LOOKED_AT:
            self._space[f] = FirstCall(step.function, partial(check_runs, _LOOKED_AT[kind]), partial(self._space.__setitem__, f))
        result = inlined(step.function, r) or f"{f}({r})"
        if kind in ("map", "map_keyed", "entries"):
            self.put(depth, step, f"{(new := self._fresh('r'))} = {result if kind == 'map' else f'{f}({k}, {r})'}")
            r = new
        elif kind in ("tap", "call"):
            self.put(depth, step, f"{f}({r})")
        elif kind == "flat_map":
            items, new = self._fresh("v"), self._fresh("r")
            self.put(depth, step, f"{items} = {result}")
            check = self._named("check", check_items)
            self.put(depth, step, f"if type({items}) is not list and type({items}) not in LISTS: {check}({items})")
            self.put(depth, step, f"for {new} in {items}:")
            r, depth = new, depth + 1
        elif kind in ("filter", "only", "branch"):
            is_class = kind == "only" and isinstance(step.function, type)
            self.put(depth, step, f"if isinstance({r}, {f}):" if is_class else f"if {result}:")
            if kind == "branch":
                self.tree(main, depth + 1, r, k, t)
                self.put(depth, step, "else:")
                main = step.then.get(REST, [])
            depth += 1
        elif kind == "with_event_time":
            t = self._fresh("t")
            self.put(depth, step, f"{t} = {result}")
            check = self._named("check", TimeCheck(step.label))
            self.put(depth, step, f"if type({t}) is not int or {t} < 10_000_000_000: {check}({t})")
        elif kind in ("key_by", "gather"):
            k = self._fresh("k")
            self.put(depth, step, f"{k} = {result}" if f else f"{k} = None")
            if f:
                # The comparison with the usual type costs a third of the look-up.
                check = self._named("check", check_key)
                self.put(depth, step, f"if type({k}) is not str and type({k}) not in KEYS: {check}({k})")
        # merge and values change nothing.
        if main or kind in ("flat_map", "filter", "only", "branch"):
            self.tree(main, depth, r, k, t)

    def _parse(self, step: ChainStep, depth: int, r: str, k: str, t: str) -> None:
        try:
            decoder: Any = msgspec.json.Decoder(step.record)
        except Exception as error:
            raise UserError(f"{step.label}: {step.record} cannot be read from JSON: {error}") from error
        new, decode = self._fresh("r"), self._named("decode", decoder.decode)
        bad = next((then for output, then in step.then.items() if output != MAIN), None)
        inner = depth if bad is None else depth + 1
        if bad is not None:
            self.put(depth, step, "try:")
        self._made[new] = step.record
        self.put(inner, step, f"{new} = {decode}({r})")
        if bad is not None:
            self.put(depth, step, "except DecodeError:")
            self.tree(bad, inner, r, k, t)
            self.put(depth, step, "else:")
        self.tree(step.then.get(MAIN, []), inner, new, k, t)


_SAME = (lambda record: record).__code__
_ATTRIBUTE = (lambda record: record.name).__code__
_PLAIN = 0xFFFF & ~inspect.CO_NESTED
"""Flags of what a function is; higher ones are of `from __future__ import` in its file."""


def inlined(function: Any, r: str) -> str | None:
    """Return the expression of a function that returns its argument, or an attribute of it; None for every other function."""
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__:
        return None
    code = function.__code__
    for simple in (_SAME, _ATTRIBUTE):
        same = code.co_code == simple.co_code and code.co_flags & _PLAIN == simple.co_flags & _PLAIN
        if same and code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_freevars:
            return f"{r}.{code.co_names[0]}" if code.co_names else r
    return None


def row_place(function: Any, layout: Layout) -> int | None:
    """Return which value of a record's row a function returns; None where it does more, or the value needs its record."""
    read = inlined(function, "record")
    if read == "record":
        return None if layout.attributes or layout.kinds[0] is not None else 0
    name = (read or "").removeprefix("record.")
    if name not in layout.attributes or not reads_as_given(layout.record, name):
        return None
    place = layout.attributes.index(name)
    return place if layout.kinds[place] is None else None
