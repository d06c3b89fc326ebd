"""Faults planted into the engine, one at a time, to see whether the oracles catch them. Undone by `monkeypatch`."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Collection, Container, Iterable
from itertools import pairwise
from typing import Any

import pytest

from tests.simulator import processes
from topo.hot import Column, Rotation, Verdicts, pack_words, unpack_words
from topo.hot.plain import Ids, Pending, Trees
from topo.ids import Epoch, TaskId
from topo.operators.async_wait import AsyncWaitOperator
from topo.task.events import RoutesChanged
from topo.task.flow_control import Arrival, InEdge
from topo.task.guarantees import verdict_delivery
from topo.task.guarantees.tracked import TrackedInputs
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.inbound import Inbound
from topo.task.runners.acker import AckerRunner
from topo.task.runners.async_calls import AsyncKind
from topo.task.task import Task
from topo.tracking import source_messages
from topo.tracking.positions import PositionTracker
from topo.tracking.retries import RetryBook
from topo.wire.batcher import EdgeBuffer
from topo.wire.frames import Anchoring, Columns, Frame, parse
from topo.worker.core import Worker

Plant = Callable[[pytest.MonkeyPatch], None]


def check_caught(
    plant: Plant, oracles: Container[object], named: Collection[int], seeds: Iterable[int], run: Callable[[int], Any]
) -> None:
    """Run the named seeds, then all, and fail unless one of the oracles reports a violation."""
    for seed in (*named, *seeds):
        if any(violation.oracle in oracles for violation in run(seed).violations):
            if seed not in named:
                warnings.warn(
                    f"{plant.__name__}: seed {seed} catches it, {named} do not; name that, the search is long", stacklevel=2
                )
            return
    pytest.fail(f"no seed has caught: {plant.__doc__}")


def replace(patch: pytest.MonkeyPatch, plain: type, **methods: Any) -> None:
    """Replace methods of a class of the plain per-tuple path, and run it: those of a compiled one cannot be replaced."""
    for module in (verdict_delivery, source_messages, processes):
        if hasattr(module, plain.__name__):
            patch.setattr(module, plain.__name__, plain)
    for name, method in methods.items():
        patch.setattr(plain, name, method)


def ack_before_its_emits(patch: pytest.MonkeyPatch) -> None:
    """An input's edge leaves alone; its rows are acknowledged in a second message."""
    single, calls = TrackedInputs._route_single, TrackedInputs.settle_calls

    def route_single(
        self: TrackedInputs, streams: Any, batch: Any, first: int, last: int, failures: dict[int, Exception]
    ) -> None:
        roots, edges = unpack_words(batch.packed_roots(first, last)), unpack_words(batch.packed_edges(first, last))
        batch._packed_edges = bytearray(batch._packed_edges)
        batch._packed_edges[8 * first : 8 * last] = bytes(8 * (last - first))
        for index, (root, edge) in enumerate(zip(roots, edges, strict=True)):
            if index not in failures:
                self.owed.acks.add((root,), (edge,))
        self.owed.flush()
        single(self, streams, batch, first, last, failures)

    def settle_calls(self: TrackedInputs, collector: Any, now: float, undecided: Any = None) -> None:
        acked = [tup for tup in collector.acked if tup.epoch == self._state.epoch]
        for tup in acked:
            self.owed.acks.add(tup.roots, tup.edges)
        self.owed.flush()
        for tup in acked:
            self.owed.acks.add(tup.roots, tup.edges)
        calls(self, collector, now, undecided)

    patch.setattr(TrackedInputs, "_route_single", route_single)
    patch.setattr(TrackedInputs, "settle_calls", settle_calls)


def ack_wins_over_fail(patch: pytest.MonkeyPatch) -> None:
    """A tree whose XOR is zero is acked, although it has failed."""
    init, ack = Trees.init, Trees.ack

    def init_of_failed(self: Trees, spout: TaskId, roots: Column, values: Column) -> None:
        init(self, spout, b"", b"")
        for root, value in zip(unpack_words(roots), unpack_words(values), strict=True):
            word = self._words.get(root) or 0
            if word < 0 and ~word == value:
                self._words.entries.pop(root)
                self._acked[spout << 64].append(root)
            else:
                init(self, spout, pack_words([root]), pack_words([value]))

    def ack_of_failed(self: Trees, roots: Column, values: Column) -> None:
        ack(self, roots, values)
        for root in unpack_words(roots):
            word = self._words.get(root) or 0
            if word < 0 and ~word in self._acked:
                self._words.entries.pop(root)
                self._acked[~word].append(root)

    replace(patch, Trees, init=init_of_failed, ack=ack_of_failed)


def inits_are_repeated(patch: pytest.MonkeyPatch) -> None:
    """Spouts send their inits twice, as a retry of an unknown outcome would. The engine has to bear it."""
    flush = TrackedSource._flush_ids

    def flush_twice(self: TrackedSource) -> None:
        roots, values = bytes(self._init_roots), bytes(self._init_values)
        flush(self)
        self._init_roots += roots
        self._init_values += values
        flush(self)

    patch.setattr(TrackedSource, "_flush_ids", flush_twice)


def repeated_init_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """An init that comes twice is folded in twice: the values so far cancel out."""

    def init(self: Trees, spout: TaskId, roots: Column, values: Column) -> None:
        if spout << 64 not in self._acked:
            self._begin(spout)
        for root, value in zip(unpack_words(roots), unpack_words(values), strict=True):
            word = ((self._words.get(root) or 0) & (1 << 64) - 1) ^ value ^ spout << 64
            if word in self._acked:
                self._words.entries.pop(root)
                self._acked[word].append(root)
            else:
                self._words.put(root, word)

    inits_are_repeated(patch)
    replace(patch, Trees, init=init)


def epoch_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Frames of an older epoch are taken as if they were of this one."""
    take = Inbound.take

    def take_any(self: Inbound, frame: Frame, now: float) -> None:
        state = self._state
        if 0 < frame.epoch < state.epoch:
            epoch, state.epoch = state.epoch, Epoch(frame.epoch)
            take(self, frame, now)
            state.epoch = epoch
        else:
            take(self, frame, now)

    patch.setattr(Inbound, "take", take_any)


def gap_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Missing frames are not missed."""

    def accept(self: InEdge, number: int) -> Arrival:
        if number < self.expected:
            return Arrival.DUPLICATE
        self.expected = number + 1
        return Arrival.NEXT

    patch.setattr(InEdge, "accept", accept)


def processing_after_a_gap(patch: pytest.MonkeyPatch) -> None:
    """An edge reports a gap and processes the frames behind it."""

    def accept(self: InEdge, number: int) -> Arrival:
        if number < self.expected:
            return Arrival.DUPLICATE
        arrival = Arrival.NEXT if number == self.expected else Arrival.GAP
        self.expected = number + 1
        return arrival

    patch.setattr(InEdge, "accept", accept)


def pending_is_not_failed_at_a_reset(patch: pytest.MonkeyPatch) -> None:
    """Messages in flight at a recovery wait for their timeout."""
    replace(patch, Pending, drain=lambda self: {})


def acker_expires_before_the_spout(patch: pytest.MonkeyPatch) -> None:
    """Ackers forget trees that spouts still wait for."""
    init = AckerRunner.__init__

    def short_lived(self: AckerRunner, parts: Any, delivery: Any) -> None:
        init(self, parts, delivery)
        if self._rotation.next_deadline is not None:
            self._rotation = Rotation(parts.state.plan.longest_message_timeout_s / 10, 3, parts.state.clock())

    patch.setattr(AckerRunner, "__init__", short_lived)


def trees_never_expire(patch: pytest.MonkeyPatch) -> None:
    """Ackers keep the trees that spouts have timed out."""
    replace(patch, Trees, rotate=lambda self: b"")


def newer_frame_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """A frame of an epoch that the task has not adopted yet is thrown away."""
    take = Inbound.take

    def take_known(self: Inbound, frame: Frame, now: float) -> None:
        if frame.epoch <= self._state.epoch:
            take(self, frame, now)

    patch.setattr(Inbound, "take", take_known)


def zombie_adopts_an_epoch(patch: pytest.MonkeyPatch) -> None:
    """A worker does not look whether the routes mean it."""
    patch.setattr(Worker, "_is_in", lambda self, routes: True)


def outbox_is_dropped_on_restart(patch: pytest.MonkeyPatch) -> None:
    """What waits in a spout's outbox when a recovery empties it is not replayed."""
    on_routes, drain = Task._on_routes, Pending.drain
    unsent: set[int] = set()

    def note_unsent(self: Task, event: RoutesChanged, now: float) -> None:
        outbox = self.outbound.outbox
        for edge in outbox.edges.values():
            for waiting in edge.waiting:
                frame = waiting if isinstance(waiting, Frame) else parse(waiting)
                unsent.update(frame.root_list())
        for buffer in outbox._buffers.values():
            unsent.update(unpack_words(buffer._roots))
        on_routes(self, event, now)
        unsent.clear()

    def drain_sent(self: Pending[Any]) -> dict[int, Any]:
        left = dict(self.items())
        drain(self)
        return {root: record for root, record in left.items() if root not in unsent}

    patch.setattr(Task, "_on_routes", note_unsent)
    replace(patch, Pending, drain=drain_sent)


def position_is_committed_past_an_open_message(patch: pytest.MonkeyPatch) -> None:
    """The committed position is the highest that is done."""
    advance = PositionTracker.advance

    def highest(self: PositionTracker[Any]) -> None:
        done = [position for position in self._order if position not in self._open]
        advance(self)
        self.committed = max([*done, *([] if self.committed is None else [self.committed])], default=None)

    patch.setattr(PositionTracker, "advance", highest)


def ids_have_16_bits(patch: pytest.MonkeyPatch) -> None:
    """Ids are so short that an XOR is zero by chance."""

    def short(words: Any) -> list[int]:
        return [word & 0xFFFF or 1 for word in words]

    def column(self: Ids, count: int) -> bytes:
        return array("Q", short(array("Q", self._randbytes(8 * count)))).tobytes()

    def telescoped(self: Ids, count: int) -> tuple[list[int], bytes]:
        while True:
            states = [word & 0xFFFF for word in array("Q", self._randbytes(8 * (count + 1)))]
            edges = array("Q", [first ^ second for first, second in pairwise(states)])
            if 0 not in edges:
                return states, edges.tobytes()

    replace(patch, Ids, column=column, telescoped=telescoped)


def calls_are_acked_when_they_begin(patch: pytest.MonkeyPatch) -> None:
    """An input of an async bolt is acked before there is a result, which is anchored on nothing."""
    process_element = AsyncWaitOperator.process_element

    def process_and_ack(self: AsyncWaitOperator, key: Any, value: Any, timestamp: int | None) -> None:
        process_element(self, key, value, timestamp)
        if isinstance(self._observer, AsyncKind):
            self._observer._collector.ack(value)

    def emitting(self: AsyncKind, value: Any) -> None:
        self._collector.current = ()

    def after(self: AsyncKind, *_: Any) -> None:
        self._mark = None

    patch.setattr(AsyncWaitOperator, "process_element", process_and_ack)
    patch.setattr(AsyncKind, "emitting", emitting)
    patch.setattr(AsyncKind, "emitted", after)
    patch.setattr(AsyncKind, "failed", after)


def suspects_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A message that takes its process down each time is never given up."""
    suspect = RetryBook.suspect
    patch.setattr(RetryBook, "suspect", lambda self, message_ids, alone: suspect(self, message_ids, False))


def bolts_are_not_careful(patch: pytest.MonkeyPatch) -> None:
    """Suspects of several spouts may be in flight together."""
    patch.setattr(RetryBook, "once_suspected", lambda self, message_ids: [])


def rows_change_places(patch: pytest.MonkeyPatch) -> None:
    """A frame has its last two rows the other way round."""
    extend = EdgeBuffer.extend

    def swapped(self: EdgeBuffer, now: float, columns: Columns) -> None:
        if columns.anchoring is Anchoring.SINGLE and len(columns.rows) > 1 and not columns.timestamps:
            roots, edges = unpack_words(columns.roots), unpack_words(columns.edges)
            rows = list(columns.rows)
            for column in (roots, edges, rows):
                column[-2:] = column[:-3:-1]
            columns = columns._replace(rows=rows, roots=pack_words(roots), edges=pack_words(edges))
        extend(self, now, columns)

    patch.setattr(EdgeBuffer, "extend", swapped)


def replays_change_places(patch: pytest.MonkeyPatch) -> None:
    """A recovery replays lost messages from the newest to the oldest."""
    lost = RetryBook.lost
    patch.setattr(RetryBook, "lost", lambda self, message_ids: lost(self, list(message_ids)[::-1]))


def failed_trees_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    """An acker notes that a tree has failed, and leaves it to the timeout."""
    take = Trees.verdicts

    def silent(self: Trees) -> dict[TaskId, Verdicts]:
        return {spout: Verdicts(found.acked, b"", found.reset) for spout, found in take(self).items()}

    replace(patch, Trees, verdicts=silent)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    ack_before_its_emits: ({3}, (0,)),
    ack_wins_over_fail: ({1, 2}, (43,)),
    repeated_init_is_accepted: ({3}, (0,)),
    epoch_is_not_checked: ({6, 11}, (5,)),
    gap_is_ignored: ({6}, (7,)),
    processing_after_a_gap: ({6}, (29,)),
    pending_is_not_failed_at_a_reset: ({2}, (0,)),
    acker_expires_before_the_spout: ({2}, (6,)),
    trees_never_expire: ({5}, (6,)),
    newer_frame_is_dropped: ({10}, (1,)),
    zombie_adopts_an_epoch: ({9}, (38,)),
    outbox_is_dropped_on_restart: ({1, 10}, (0,)),
    position_is_committed_past_an_open_message: ({4}, (2,)),
    ids_have_16_bits: ({3}, (30,)),
    calls_are_acked_when_they_begin: ({1}, (2,)),
    suspects_are_not_counted: ({1, 10}, (62,)),
    rows_change_places: ({14}, (0,)),
    failed_trees_are_not_answered: ({2}, (0,)),
    replays_change_places: ({14}, (2,)),
    bolts_are_not_careful: ({8}, (0,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
