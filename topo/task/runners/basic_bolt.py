"""Bolts whose inputs the engine anchors and acks. The fast path of most topologies.

A slice of input is run without ids. What it emitted is routed afterwards, column by column, with a note of how many rows there
were after each input; so one XOR of the ends of a run of edges folds all that an input has emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount

from topo.api.bolt import BasicBolt
from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Tuple
from topo.emission.collectors import TrackedTuple, anchoring_collector
from topo.emission.emitter import Emitter
from topo.emission.output_watermarks import UnreadableRows
from topo.emission.router import owners_of
from topo.errors import EmitError, FrameworkBug
from topo.task.batch import Batch
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.runners.inputs import BoltTask
from topo.user_errors import call_for_effect, returned
from topo.wire.frames import Anchoring

_UNKEPT = 2
"""What `getrefcount` says of an object that one variable refers to, and nothing else."""


def fold(acks: dict[int, int], roots: Sequence[int], values: Sequence[int]) -> None:
    """XOR values into `acks` by root. Tuples of one message mostly come in a row: runs are folded before they are looked up."""
    get = acks.get
    last = value = 0
    for root, edge in zip(roots, values, strict=True):
        if root == last:
            value ^= edge
        else:
            if last:
                acks[last] = get(last, 0) ^ value
            last, value = root, edge
    if last:
        acks[last] = get(last, 0) ^ value


class BasicBoltTask(BoltTask):
    """A bolt whose inputs the engine anchors and acks. The fast path of most topologies."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        if not isinstance(setup.component, BasicBolt):
            raise FrameworkBug(f"{setup.component!r} is not a BasicBolt")
        self._bolt = setup.component
        self._collector = anchoring_collector(
            setup.context.component,
            setup.plan.streams(setup.context.component),
            lambda error: self.reports.record_misuse(error),
            ports.codec,
        )
        super().__init__(setup, ports)

    @property
    def _user(self) -> BasicBolt:
        return self._bolt

    def _emitter(self) -> Emitter:
        return self._collector

    def _user_prepare(self) -> None:
        self._bolt.prepare(self.context)

    def _user_tick(self, tup: Tuple) -> None:
        call_for_effect(self._bolt.execute, tup, self._collector)

    def _user_end(self) -> None:
        call_for_effect(self._bolt.end_of_input, self._collector)

    def _execute(self, batch: Batch, first: int, last: int) -> dict[int, Exception]:
        """Call `execute` for each tuple. Returns what was raised, by the tuple's index from `first`."""
        collector, origin, most = self._collector, batch.origin, self.config.max_task_emit
        execute, new = self._bolt.execute, Tuple.__new__
        streams = collector.streams
        failures: dict[int, Exception] = {}
        only = streams[0] if len(streams) == 1 else None
        rows, ends = ([], []) if only is None else (only.rows, only.ends)
        suspicious = most
        index = first - 1
        # Making a tuple takes several times as long as filling one: what user code has not kept is filled again.
        tup, references, unkept = new(Tuple), getrefcount, _UNKEPT
        for index, values, stamp in batch.inputs(first, last):
            if references(tup) != unkept:
                tup = new(Tuple)
            tup.values = values
            tup.origin = origin
            tup.timestamp = stamp
            try:
                if (value := execute(tup, collector)) is not None:
                    raise returned(execute, value)
            except Exception as error:
                collector.truncate()
                failure: Exception | None = error
                if self.is_checkpointed:
                    again = partial(self._execute_again, tup, batch, index)
                    failure = self._try_again(again, collector.truncate, error)
                if failure is not None:
                    failures[index - first] = failure
            if only is not None:
                end = len(rows)
                if end <= suspicious:
                    ends.append(end)
                    continue
                # No call can have emitted too much before the batch has; from here on look again after as much.
                suspicious = end + most
            if streams:
                self._note_ends(index - first, failures)
        batch.done = index + 1
        return failures

    def _execute_again(self, tup: Tuple, batch: Batch, index: int) -> None:
        tup.values = batch.unchanged(index, self.ports.codec)
        call_for_effect(self._bolt.execute, tup, self._collector)

    def _note_ends(self, index: int, failures: dict[int, Exception]) -> None:
        """Note how far each stream has come with an input, and discard what it emitted if that is too much."""
        collector = self._collector
        before = sum([stream.ends[-1] for stream in collector.streams if stream.ends])
        try:
            collector.check_emitted(collector.count() - before, self.config.max_task_emit)
        except EmitError as error:
            failures[index] = error
            collector.truncate()
        for stream in collector.streams:
            stream.ends.append(len(stream.rows))

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        failures = self._execute(batch, first, last)
        last = batch.done
        if self._observer is not None:
            self._observer.rows_emitted(self.id, self._collector.streams)
            self._observer.inputs_acked(self.id, [batch.ids_at(i) for i in range(first, last) if i - first not in failures])
        if refused := self._emission.begin(self._collector.streams):
            self._fail_unstamped(refused, failures)
        if batch.anchoring is Anchoring.MULTI:
            self._route_multi(batch, first, last, failures)
        elif batch.anchoring is Anchoring.SINGLE:
            self._route_single(batch, first, last, failures)
        else:
            for stream in self._collector.streams:
                if stream.rows:
                    self._emission.untracked(stream, self._reject_untracked(stream), batch.stamps_of(first, last))
        self._emission.finish()
        self._clear()
        for index, error in failures.items():
            self._fail(batch.ids_at(first + index)[0], error)
            if self.is_checkpointed:
                self._give_up(batch.unchanged(first + index, self.ports.codec), error)
            self._user_error(error, now)
        self.counters.failed += len(failures)
        self.counters.acked += last - first - len(failures)

    def _fail_unstamped(self, refused: UnreadableRows, failures: dict[int, Exception]) -> None:
        """Have the inputs fail whose rows on the main stream have no timestamp: nothing that they emitted goes out."""
        main = next(stream for stream in self._collector.streams if stream.declaration.name == DEFAULT_STREAM)
        owners = owners_of(main.ends)
        failed = {owners[row]: error for row, error in reversed(refused.items())}
        failures.update(failed)
        for stream in self._collector.streams:
            owners = owners_of(stream.ends)
            self._emission.keep(stream, [row for row, owner in enumerate(owners) if owner not in failed])
            start = kept = 0
            for at, end in enumerate(stream.ends):
                kept += 0 if at in failed else end - start
                start, stream.ends[at] = end, kept

    def _route_single(self, batch: Batch, first: int, last: int, failures: dict[int, Exception]) -> None:
        roots, owed = batch.roots[first:last], batch.edges[first:last]
        for stream in self._collector.streams:
            if stream.rows:
                ends = stream.ends

                def reject(row: int, error: Exception, ends: list[int] = ends) -> None:
                    self._fail_row(roots[owners_of(ends)[row]], error)

                packed, inherited = batch.packed_roots(first, last), batch.stamps_of(first, last)
                self._emission.single(stream, packed, owed, reject, inherited)
        if failures:
            keep = [index for index in range(last - first) if index not in failures]
            roots, owed = [roots[i] for i in keep], [owed[i] for i in keep]
        fold(self._acks, roots, owed)

    def _route_multi(self, batch: Batch, first: int, last: int, failures: dict[int, Exception]) -> None:
        """Route a batch whose tuples have several roots, as a bolt that anchors by itself would."""
        inputs = [TrackedTuple.made(batch.rows[i], batch.origin, None, self.epoch, *batch.ids_at(i)) for i in range(first, last)]
        for stream in self._collector.streams:
            if stream.rows:
                owners = owners_of(stream.ends)

                def reject(row: int, error: Exception, owners: list[int] = owners) -> None:
                    for root in inputs[owners[row]].roots:
                        self._fail_row(root, error)

                anchors = [(inputs[owner],) for owner in owners]
                self._emission.anchored(stream, anchors, self.epoch, reject, batch.stamps_of(first, last))
        for index, tup in enumerate(inputs):
            if index not in failures:
                for root, edge in zip(tup.roots, tup.edges, strict=True):
                    self._acks[root] = self._acks.get(root, 0) ^ edge ^ tup.out

    def _fail_row(self, root: int, error: Exception) -> None:
        self._fail((root,), error)
        self.reports.record(error, self.ports.clock())

    def _clear(self) -> None:
        for stream in self._collector.streams:
            stream.clear()

    def _run_untracked(self, call: Callable[[], object], now: float, what: str, most: float) -> None:
        def checked() -> None:
            call()
            self._collector.check_emitted(self._collector.count(), most)

        try:
            checked()
        except Exception as error:
            self._clear()
            if not self.is_checkpointed:
                self._lose_call(error, now)
                return
            if not self._try_call_again(checked, self._clear, error, what):
                return
        if self._observer is not None:
            self._observer.rows_emitted(self.id, self._collector.streams)
        refused = self._emission.begin(self._collector.streams)
        for stream in self._collector.streams:
            if refused and stream.declaration.name == DEFAULT_STREAM:
                self._drop_unstamped(stream, refused, now)
            if stream.rows:
                self._emission.untracked(stream, self._reject_untracked(stream))
        self._emission.finish()
        self._clear()
