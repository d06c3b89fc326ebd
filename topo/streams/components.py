"""The spouts and bolts that streams become. Each runs its chain in the calls that the engine makes anyway.

Their arguments have one meaning: `chain` is the operators behind the body, `layout` that of the records that it reads, and
`outputs` the fields of each output stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from topo.api.bolt import BasicBolt, BasicCollector, StatefulBolt
from topo.api.context import TaskContext
from topo.api.groupings import CustomGrouping, GroupingKind
from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Tuple
from topo.api.windows import ProcessWindowFunction, TimeWindow, WindowCollector, WindowContext
from topo.connectors.iterable_spout import IterableSpout
from topo.errors import ResultsLostError, UserError
from topo.streams.chain import Chain, Leaf, inlined, run_one, walk
from topo.streams.functions import FirstCall, list_problem, own_copy
from topo.streams.joins import WindowJoin
from topo.streams.records import KEY, Layout
from topo.streams.results import EmitWhen, Windowed

MISSING: Final = object()
_ATTEMPTS: Final = 3
"""How often the result of a key is tried at the end of the input."""
OUTPUT = ("emit = collector.emit", "add = getattr(collector, 'add_plain', emit)")
_ADD_KEY = "add_key = getattr(collector, 'add_plain', lambda key: emit((key, 1)))"

OutputFields = Mapping[str, tuple[str, ...]]
"""Fields of each output stream."""


def spout_of_items(items: Iterable[Any] | Callable[[], Iterable[Any]], layout: Layout, place: str) -> IterableSpout:
    """Return the spout of the records that `from_iterable` was given.

    Raises:
        UserError: an item of a list would arrive as another type.
    """
    pack = layout.packer(place)
    if layout.record is None and isinstance(items, list | tuple):
        for item in {type(item): item for item in items}.values():
            pack(item)
    spout = IterableSpout(items, layout.fields)
    if layout.attributes:
        spout.convert(pack)
    elif inlined(pack, "item") != "item":
        spout.convert(lambda item: (pack(item),))
    return spout


class SameTask(CustomGrouping):
    """Sends each row to the reader's task with the index of the sending task, modulo the number of the reader's tasks.

    Both have the same parallelism in the program; a run, or a rebalance, may give them others.
    """

    def prepare(self, context: TaskContext, stream: str, target_tasks: Sequence[int]) -> None:
        """Take the index of the sending task."""
        self._choice = (context.task_index % len(target_tasks),)

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        """Return the one task."""
        return self._choice


class StepsBolt(BasicBolt):
    """Operators of one record at a time, as one function.

    Args:
        layout: None where the record is the row itself.
        keyed: the rows begin with a key.
        positions: where the values of the record are in a row, where that is not in order.
        stamps: the chain gives event time to the rows of all its streams.

    Attributes:
        stays: its rows come by `SameTask` alone.
    """

    def __init__(
        self,
        chain: Chain,
        layout: Layout | None,
        keyed: bool,
        outputs: OutputFields,
        positions: Sequence[int] | None = None,
        *,
        stamps: bool = False,
    ) -> None:
        self.stamps_all_streams, self.stays = stamps, False
        self.counted_streams = frozenset(leaf.stream for leaf in walk(chain.tree) if isinstance(leaf, Leaf) and leaf.counted)
        self.chain, self._layout, self._keyed, self._positions = chain, layout, keyed, positions
        self.outputs = dict(outputs)
        self._streams = len(outputs)

    # A tick_interval of the whole topology would call it with ticks.
    component_settings = {"tick_interval": None}

    def gets_nothing(self, context: TaskContext) -> bool:
        """Whether no task sends rows to this one: after a rebalance there may be fewer that send than that read."""
        return self.stays and _fed(context, context.component) <= context.task_index

    def prepare(self, context: TaskContext) -> None:
        """Compile the chain."""
        space: dict[str, Any] = {}
        before = reading(self._layout, self._keyed, space, self._positions)
        self.chain.open(context)
        counts = bool(self.counted_streams)
        ahead = (*OUTPUT, _ADD_KEY) if counts else OUTPUT
        self.__run_rows__ = self.chain.compiled_loop(ahead, before, (), space, self._streams, adds=True, counts=counts)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Run the chain for one row. The engine calls `__run_rows__` for many."""
        run_one(self.__run_rows__, tup.values, collector, self._streams)


def _fed(context: TaskContext, component: str) -> int:
    """Return how many tasks of a component may get rows: no more than those of its senders, where rows stay in their task."""
    own = len(context.tasks[component])
    reads = [one for one in context.connections if one.target == component]
    stays = [_fed(context, one.source) if one.grouping == GroupingKind.CUSTOM else own for one in reads]
    return min(own, max(stays, default=own))


def reading(layout: Layout | None, keyed: bool, space: dict[str, Any], positions: Sequence[int] | None = None) -> list[str]:
    """Return the lines that set `k` and `r` from `values`, the values of a row."""
    if layout is None:
        return ["r = values"]
    first = int(keyed)
    places = range(first, first + len(layout.fields)) if positions is None else positions
    lines = ["k = values[0]"] if keyed else []
    return [*lines, f"r = {layout.unpacked([f'values[{place}]' for place in places], space, 'input')}"]


class RunningBolt(StatefulBolt):
    """A running result for each key: `count`, `reduce` and `fold`. The state changes when the chain behind it has not raised.

    Args:
        kind: "count", "reduce" or "fold".
        function: the user's, of `reduce` and `fold`.
        initial: of `fold`.
        state: layout of the result.
        when: when results are emitted.
        counted: its rows are keys with the number of their records.
    """

    key = KEY

    def __init__(
        self,
        chain: Chain,
        kind: str,
        function: Callable[..., Any] | None,
        initial: Any,
        layout: Layout,
        state: Layout,
        when: EmitWhen,
        outputs: OutputFields,
        *,
        counted: bool = False,
    ) -> None:
        self.chain, self._counted = chain, counted
        self._kind, self._function, self._initial, self._layout, self._when = kind, function, initial, layout, when
        self._state_layout = state
        self.outputs = dict(outputs)
        self._streams = len(outputs)
        self._state: dict[Any, Any] = Counter() if kind == "count" else {}
        self._changed: dict[Any, None] = {}
        """With `every` the keys whose results have yet to be emitted, in the order of their changes."""
        self._emitted: set[Any] = set()
        """With AT_END the keys whose results have been emitted, and have not changed since."""
        self._ended: list[None] = []
        """Not empty when the input has ended in this epoch; what comes then are replays."""
        self._is_restored = False
        self.component_settings = {"tick_interval": f"{when.period_ms}ms" if when.kind == "every" else None}

    def prepare(self, context: TaskContext) -> None:
        """Compile the chain."""
        space: dict[str, Any] = {"state": self._state, "changed": self._changed, "MISSING": MISSING, "own": own_copy}
        space |= {"function": self._function, "initial": self._initial, "is_none": self._is_none}
        check = space["check"] = self._state_layout.state_check(self.chain.label, given=self._kind == "reduce")
        self._pack = self._state_layout.packer(self.chain.label)
        if self._function is not None and context.check_state is not None:
            first = partial(self._check_first, check, context.check_state)
            space["function"] = FirstCall(self._function, first, self._set_function)
        read = ["k, n = values"] if self._counted else ["k = values[0]"]
        before = read if self._kind == "count" else reading(self._layout, True, space)
        before += {
            "count": [f"r = state.get(k, 0) + {'n' if self._counted else 1}"],
            "reduce": ["old = state.get(k, MISSING)", "r = r if old is MISSING else function(own(old), r)"],
            "fold": ["r = function(own(state.get(k, initial)), r)"],
        }[self._kind]
        if self._kind != "count":
            before.append("if r is None: is_none()")
        if self._kind != "count" and space["check"] is not None:
            before.append("if type(r) not in SCALARS: check(r)")
        self.chain.open(context)
        self._emit_one = self.chain.compiled("emit_one(k, r, emit)")
        if self._when.kind == "each":
            # An operator behind it may change the record: the state is another object.
            is_shared = self._kind != "count" and any(True for _ in self.chain.steps())
            before += ["new = r", "r = own(r)"] if is_shared else ["new = r"]
            chain, ahead, after = self.chain, ["emit = collector.emit"], ["state[k] = new"]
        else:
            chain, ahead = Chain(self.chain.name, self.chain.label, self.chain.site, []), []
            space |= {"emitted": self._emitted, "ended": self._ended, "again": self._changed_again}
            noted = ["changed[k] = None"] if self._when.kind == "every" else []
            after = ["state[k] = r", *noted, "if emitted or ended: again(k, collector)"]
            if self._kind == "count" and not self._counted:
                ahead = ["if not emitted and not ended: count_all(rows, streams); return"]
                space["count_all"] = self._count_all
        self.__run_rows__ = chain.compiled_loop(ahead, before, after, space, self._streams)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Update the result of a key; at a tick emit those that have changed. The engine calls `__run_rows__` for many rows."""
        if tup.is_tick:
            self._emit_changed(collector)
        else:
            run_one(self.__run_rows__, tup.values, collector, self._streams)

    def _count_all(self, rows: Sequence[tuple[Any, ...]], streams: Sequence[tuple[list[Any], list[int]]]) -> None:
        """Count the keys of rows without results, in a loop in C."""
        keys = [row[0] for row in rows]
        self._state.update(keys)
        if self._when.kind == "every":
            self._changed.update(dict.fromkeys(keys))
        for out, ends in streams:
            ends.extend(repeat(len(out), len(keys)))

    def _emit_changed(self, collector: BasicCollector) -> Exception | None:
        """Emit the results of the keys in `_changed`; those whose chain raises stay there. Returns the last exception."""
        failed: dict[Any, None] = {}
        last: Exception | None = None
        for key in self._changed:
            rows: list[tuple[Any, ...]] = []
            try:
                self._emit_one(key, own_copy(self._state[key]), lambda *row, rows=rows: rows.append(row))
            except Exception as error:
                # Raised, it would discard the results of all keys.
                collector.report_error(error)
                failed[key], last = None, error
            else:
                for row in rows:
                    collector.emit(*row)
        if self._when.kind == "at_end":
            self._emitted.update(key for key in self._changed if key not in failed)
        self._changed.clear()
        self._changed.update(failed)
        return last

    def end_of_input(self, collector: BasicCollector) -> None:
        """Emit the results that have not been emitted. A result whose chain keeps raising is lost, and the run fails."""
        self._ended[:] = [None]
        if self._when.kind == "at_end":
            self._changed.update((key, None) for key in self._state if key not in self._emitted)
        self._emit_finally(collector)

    def on_reset(self) -> None:
        """Have the end of the input emit all results again, since without a checkpoint it is not known which have arrived."""
        self._ended.clear()
        if not self._is_restored:
            self._emitted.clear()
        self._is_restored = False

    def _changed_again(self, key: Any, collector: BasicCollector) -> None:
        """The result of a key has changed since it was emitted. Behind the end nothing else would emit it."""
        self._emitted.discard(key)
        if self._ended:
            self._changed[key] = None
            self._emit_finally(collector)

    def _emit_finally(self, collector: BasicCollector) -> None:
        for _ in range(_ATTEMPTS):
            error = self._emit_changed(collector)
            if error is None:
                return
        keys = ", ".join(f"{key!r:.40}" for key in list(self._changed)[:5])
        what = f"{len(self._changed)} results of {self.chain.label} are lost, because an operator behind it raises {error!r:.200}"
        # Not raised: that would discard the results of the other keys.
        collector.report_error(ResultsLostError(f"{what}; their keys: {keys}"))

    def snapshot(self) -> dict[Any, Any]:
        """Return for each key the line `_described`, its result, and whether that was changed (`every`) or emitted (AT_END)."""
        marked = self._emitted if self._when.kind == "at_end" else self._changed
        return {key: (self._described, self._pack(value), key in marked) for key, value in self._state.items()}

    def restore(self, state: Any) -> None:
        """Take the results of a checkpoint.

        Raises:
            UserError: it is of another operator, has another emit mode, or fields that are not those of the record.
        """
        for held in (self._state, self._changed, self._emitted):
            held.clear()
        self._ended.clear()
        self._is_restored = True
        unpackers: dict[str, Callable[[Any], Any]] = {}
        for key, (described, packed, marked) in (state or {}).items():
            if (unpack := unpackers.get(described)) is None:
                unpack = unpackers[described] = self._unpacker_of(described)
            self._state[key] = unpack(packed)
            if marked and self._when.kind == "at_end":
                self._emitted.add(key)
            elif marked:
                self._changed[key] = None

    @property
    def _described(self) -> str:
        """Kind of operator, when it emits, and the fields of its result."""
        return f"{self._kind} {self._when.kind} {','.join(self._state_layout.attributes)}"

    def _unpacker_of(self, described: str) -> Callable[[Any], Any]:
        """Return the function that makes a result of a stored one."""
        kind, when, fields = described.split(" ")
        advice = f"leave it as it was, or let it begin with nothing (--drop-state {self.chain.name})"
        if (kind, when) != (self._kind, self._when.kind):
            stored, own = f"{kind} with emit {when}", f"{self._kind} with emit {self._when.kind}"
            raise UserError(f"{self.chain.label}: its state in the checkpoint is that of {stored}, and it is {own} now; {advice}")
        try:
            return self._state_layout.unpacker_of(tuple(fields.split(",")) if fields else ())
        except UserError as error:
            raise UserError(f"{self.chain.label}: {error}; {advice}") from error

    def _check_first(self, check: Callable[[Any], Any] | None, check_state: Callable[[Any], object], result: Any) -> None:
        """Refuse a result that no checkpoint could store. Without this each checkpoint would fail, and the run never end."""
        if result is None:
            return
        if check is not None:
            check(result)
        try:
            check_state(self._pack(result))
        except Exception as error:
            what = f"{self.chain.label} keeps a {type(result).__name__} that no checkpoint can store ({error.__cause__ or error})"
            raise UserError(f"{what}; a list can be stored: declare it, as in of=list[int]") from error

    def _set_function(self, function: Callable[..., Any]) -> None:
        self.__run_rows__.__globals__["function"] = function

    def _is_none(self) -> None:
        raise UserError(f"the function of {self.chain.label} returned None; return the new result")


class WindowResults(ProcessWindowFunction):
    """Runs the chain behind a window for each of its results.

    Args:
        function: the user's function over all records of a window; None: its elements are the results of an aggregate.
        rows: of windows by number, size and slide.
        keyed: the rows of the window begin with a key.
    """

    def __init__(
        self,
        chain: Chain,
        function: Callable[[Any, Windowed[Any]], Iterable[Any]] | None,
        layout: Layout,
        rows: tuple[int, int] | None = None,
        *,
        keyed: bool = True,
    ) -> None:
        self._chain, self._function, self._layout, self._rows, self._keyed = chain, function, layout, rows, keyed

    def open(self) -> None:
        """Compile the chain."""
        self._chain.open(None)
        self._run = self._chain.compiled("run(k, r, emit)")
        leaves = [one for one in walk(self._chain.tree) if isinstance(one, Leaf)]
        if self._function is None and self._rows is None and all(leaf.stream == DEFAULT_STREAM for leaf in leaves):
            before = ["r = Windowed(window[0], window[1], value)"]
            self.put_result = self._chain.compiled("put(k, window, value, emit)", before, (), {"Windowed": Windowed})
        self._record = self._layout.unpacker(int(self._keyed))

    def process(self, key: Any, elements: Sequence[Any], context: WindowContext, collector: WindowCollector) -> None:
        """Emit the result, or the results, of a window."""
        if self._rows is None:
            bounds = context.window if isinstance(context.window, TimeWindow) else (0, 0)
            self._emit(key, elements, bounds, context, collector)
            return
        size, slide = self._rows
        fired = context.global_state.value("fired")
        number = (fired.get() or 0) + 1
        self._emit(key, elements, (max(0, number * slide - size), number * slide), context, collector)
        # With `at_least_once` a call that raises is made again, and its changes of state stay.
        fired.set(number)

    def _emit(
        self, key: Any, elements: Sequence[Any], bounds: tuple[int, int], context: WindowContext, collector: WindowCollector
    ) -> None:
        start, end = bounds
        if self._function is None:
            for value in elements:
                self._run(key, Windowed(start, end, value), collector.emit)
            return
        window = Windowed[Any](start, end, [self._record(row) for row in elements])
        if isinstance(self._function, WindowJoin):
            self._function.count_unmatched(window, context.metrics)
        results = self._function(key, window)
        if (problem := list_problem(results)) is not None:
            raise UserError(f"the function of {self._chain.label} returned {results!r:.80}, {problem}")
        for result in results:
            self._run(key, result, collector.emit)
