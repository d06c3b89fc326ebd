"""The bolts of functions with state and timers for each key, and of `dedupe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from topo.api.operator_bolts import ProcessBolt, ProcessCollector, ProcessContext
from topo.api.tuples import Tuple
from topo.errors import UserError
from topo.ids import is_replayed
from topo.streams.chain import Chain
from topo.streams.components import OutputFields, reading
from topo.streams.functions import keeps_as_given, own_copy
from topo.streams.process import OUT_EMIT, First, KeyedProcess, declared_state, install
from topo.streams.records import KEY, Layout, layout_of
from topo.streams.results import SideOutput
from topo.user_errors import returned


class KeyedProcessBolt(ProcessBolt):
    """A user's `KeyedProcess`, here `process`; `sides` has the chain of each side output with a reader."""

    def __init__(
        self,
        process: KeyedProcess[Any, Any, Any],
        chain: Chain,
        sides: Mapping[str, Chain],
        layout: Layout,
        outputs: OutputFields,
    ) -> None:
        super().__init__(KEY)
        self._user, self.chain, self._sides, self._layout = process, chain, dict(sides), layout
        self.outputs = dict(outputs)

    def open(self, context: ProcessContext) -> None:
        """Compile the chains, and give the user's object its state."""
        chains = {"": self.chain, **self._sides}
        for chain in chains.values():
            chain.open(None)
        runs = {name: chain.compiled("run(k, r, emit)") for name, chain in chains.items()}
        kept = declared_state(self._user) if self._user._emits_state else ()
        if any(keeps_as_given(layout_of(one.of)) for one in kept):
            # An operator behind it may change the record: the state is another object.
            runs = {name: partial(_run_own, run) if any(chains[name].steps()) else run for name, run in runs.items()}
        self._out = _ProcessOutput(runs)
        self._record = self._layout.unpacker(1)
        install(self._user, context.state)
        self._user._prepare()
        self._user.open()

    def process(self, tup: Tuple, context: ProcessContext, collector: ProcessCollector) -> None:
        """Call the user's function."""
        out, values = self._out, tup.values
        out.collect, out.key, out.tup = collector.emit, values[0], tup
        if (value := self._user.process(self._record(values), context, out)) is not None:
            raise returned(self._user.process, value, OUT_EMIT)

    def on_timer(self, timestamp: int, context: ProcessContext, collector: ProcessCollector) -> None:
        """Call the user's function."""
        out = self._out
        out.collect, out.key = collector.emit, context.key
        on_timer: Callable[..., object] = self._user.on_timer
        if (value := on_timer(timestamp, context, out)) is not None:
            raise returned(on_timer, value, OUT_EMIT)

    def close(self) -> None:
        """Close the user's object."""
        self._user.close()


def _run_own(run: Callable[..., None], key: Any, record: Any, collect: Callable[..., None]) -> None:
    run(key, own_copy(record), collect)


class _ProcessOutput:
    """Runs the chain behind a process for each record that it emits."""

    collect: Callable[..., None]
    key: Any
    tup: Any

    def __init__(self, chains: Mapping[str, Callable[..., None]]) -> None:
        self._main = chains[""]
        self._sides = chains

    def emit(self, record: Any) -> None:
        self._main(self.key, record, self.collect)

    def side(self, tag: SideOutput[Any], record: Any) -> None:
        try:
            run = self._sides.get(tag.name)
        except AttributeError:
            what = f"out.side takes a tag, a SideOutput('name', type), and the record; got {tag!r:.60}"
            raise UserError(what) from None
        if run is not None:
            run(self.key, record, self.collect)

    @property
    def is_replayed(self) -> bool:
        """Whether the record at hand descends from a message that has failed before."""
        return is_replayed(self.tup.roots)


class FirstBolt(ProcessBolt):
    """`dedupe`: runs the chain for the first record of each key. Of a key that was seen no record is made.

    With `at_least_once` the results of a first record may be lost behind this bolt. Then its message is replayed, which is no
    second record. After a failure it has a mark. Messages that were in flight at a loss may have none, so no key is known then.
    """

    forgets_at_a_loss = True

    def __init__(self, first: First, chain: Chain, layout: Layout, outputs: OutputFields) -> None:
        super().__init__(KEY)
        self._first, self.chain, self._layout = first, chain, layout
        self.outputs = dict(outputs)

    def open(self, context: ProcessContext) -> None:
        """Compile the chain, and take the state."""
        self.chain.open(None)
        space: dict[str, Any] = {}
        before = reading(self._layout, True, space)
        self._run = self.chain.compiled("run(values, emit)", before, (), space)
        self._seen = self._first.seen.installed(context.state, self.chain.label)

    def process(self, tup: Any, context: ProcessContext, collector: ProcessCollector) -> None:
        """Run the chain, unless the key was seen. Its record is seen when no operator of the chain has raised."""
        is_new = self._seen.get() is None
        if is_new or is_replayed(tup.roots):
            self._run(tup.values, collector.emit)
        if is_new:
            self._seen.set(True)
