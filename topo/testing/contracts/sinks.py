"""The promises of sinks: `AtLeastOnceSinkContract` for any bolt, `ExactlyOnceSinkContract` for a `TwoPhaseSink`."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from topo.api.context import TaskContext
from topo.api.groupings import Shuffle
from topo.api.operator_bolts import AsyncBolt
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import ComponentKind, ComponentSpec, Input, Topology
from topo.api.two_phase import TwoPhaseSink
from topo.config import TopologyConfig, current_names
from topo.connectors.iterable_spout import IterableSpout
from topo.testing.bolt_run import run_bolt
from topo.testing.contracts.checkpoints import CheckpointContract
from topo.testing.contracts.killing import ChildReport, ProcessLife, Steps, carry, count_calls, run_child
from topo.testing.contracts.sink_contract import SinkContract
from topo.testing.contracts.sink_lives import COMPLETED, Master, check_recovery, check_what_is_seen, life_of
from topo.testing.contracts.sink_tasks import tracked
from topo.testing.script import ADVANCE, CRASH, END
from topo.testing.topology_test import TopologyTest

CLOSING_S = 5.0
"""How long connections and threads may take to be gone after their sink was closed."""
NUMBERS = range(12)
CRASHES: dict[str, Sequence[Any]] = {
    "nothing happens": [*NUMBERS, END],
    "a crash": [0, 1, 2, 3, CRASH("sink"), *range(4, 12), END],
    "a crash after checkpoints": [0, 1, 2, ADVANCE("30s"), 3, 4, 5, CRASH("sink"), 6, 7, ADVANCE("30s"), *range(8, 12), END],
    "two crashes": [0, 1, 2, 3, CRASH("sink"), 4, 5, 6, CRASH("sink"), *range(7, 12), END],
}
"""Scripts of the source that a whole topology reads."""


class AtLeastOnceSinkContract(SinkContract):
    """The promises of a sink that loses no row.

    Subclass it in a test module, under a name that begins with `Test`.

    Attributes:
        most_kills: at how many moments, about, a process is killed.
    """

    most_kills: int = 40
    repeats_in: ClassVar[Collection[str]] = ("at_least_once", "exactly_once")
    """Modes of delivery in which rows may repeat after a crash."""

    def count_steps(self, package: str, steps: Steps) -> None:
        """Have `steps.step` called wherever the process may be killed: before each call by the sink's package, or to it."""
        count_calls(package, steps)

    @pytest.mark.parametrize("tasks", [1, 2])
    @pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
    @pytest.mark.parametrize("script", CRASHES.values(), ids=CRASHES)
    def test_a_topology_has_all_rows_whatever_crashes(
        self, tmp_path: Path, script: Sequence[Any], delivery: str, tasks: int
    ) -> None:
        test = self._topology(tmp_path, script, delivery, tasks)
        test.run()
        rows = self.rows(tmp_path)
        assert set(rows) == set(NUMBERS) and test.dead_letters() == []
        if script is CRASHES["nothing happens"] or delivery not in self.repeats_in:
            assert len(rows) == len(NUMBERS), "rows are repeated"
            assert tasks > 1 or rows == list(NUMBERS)

    def test_a_row_that_was_acked_is_not_written_again_after_a_crash(self, tmp_path: Path) -> None:
        script = [0, 1, 2, ADVANCE("10s"), CRASH("sink"), 3, ADVANCE("10s"), CRASH("sink"), 4, END]
        self._topology(tmp_path, script, "at_least_once").run()
        assert sorted(self.rows(tmp_path)) == [0, 1, 2, 3, 4]

    def test_a_row_that_is_not_written_is_not_acked(self, tmp_path: Path) -> None:
        folder = tmp_path / "target"
        folder.mkdir()
        test = self._topology(folder, [0, 1, ADVANCE("10s"), 2, 3], "at_least_once")
        test.advance("5s")
        assert set(self.rows(folder)) == {0, 1}
        with self.broken(folder):
            test.advance("10s")
        until, given_up = test.clock() + 600, set[object]()
        while {*test.acked(), *given_up} != {0, 1, 2, 3} and test.clock() < until:
            test.advance("10s")
            given_up = {given_up.message_id for given_up in test.dead_letters()}
        assert set(test.acked()) <= set(self.rows(folder)), "acked and missing"
        assert {*test.acked(), *given_up} == {0, 1, 2, 3}

    def test_a_killed_process_has_lost_no_acked_row(self, tmp_path: Path) -> None:
        def work(folder: Path, report: ChildReport) -> None:
            test = self._topology(folder, NUMBERS, "at_least_once")
            while len(test.acked()) < len(NUMBERS) and test.clock() < 60:
                test.advance("100ms")
                report(test.acked())

        for folder, life in self._killed(tmp_path, lambda folder: partial(work, folder)):
            acked = set(life.reports[-1] if life.reports else ())
            assert acked == set(NUMBERS) or not life.is_done, "not acked in time"
            assert acked <= set(self.rows(folder)), "acked and missing"
            self._topology(folder, [*NUMBERS, END], "at_least_once").run()
            assert set(self.rows(folder)) == set(NUMBERS)

    def test_a_closed_sink_leaves_nothing_open_and_can_be_closed_again(self, tmp_path: Path) -> None:
        left = []
        kept = []
        # Descriptors that libraries keep are opened in the first round.
        for _ in range(3):
            sink = self.sink(tmp_path)
            if isinstance(sink, AsyncBolt):
                asyncio.run(_called_and_closed_twice(sink))
            else:
                run_bolt(sink, [(0,)], fields=("n",), ticks=1)
                (sink.close if isinstance(sink, TwoPhaseSink) else sink.cleanup)()
            kept.append(sink)
            left.append(_open())
        # What others have left open may be closed meanwhile. A server in this process needs a moment to see a connection end.
        until = time.monotonic() + CLOSING_S
        while left[2].is_more_than(left[1]) and time.monotonic() < until:
            time.sleep(0.01)
            left[2] = _open()
        assert not left[2].is_more_than(left[1]), left

    def _topology(self, folder: Path, script: Sequence[Any], delivery: str, tasks: int = 1) -> TopologyTest:
        settings = {"delivery": delivery, "checkpoint_interval": "1s", "max_spout_pending": 4, "batch_size": 2}

        def build() -> Topology:
            sink, inputs = self.sink(folder), (Input("numbers", DEFAULT_STREAM, Shuffle()),)
            wanted = current_names(sink.component_settings)
            numbers = ComponentSpec("numbers", ComponentKind.SPOUT, IterableSpout((), fields=("n",)))
            bolt = ComponentSpec("sink", ComponentKind.BOLT, sink, tasks, settings=wanted, inputs=inputs)
            return Topology("contract", (numbers, bolt), TopologyConfig().with_settings(settings))

        return TopologyTest(build, sources={"numbers": script})

    def _killed(
        self, tmp_path: Path, work_in: Callable[[Path], Callable[[ChildReport], None]]
    ) -> Iterator[tuple[Path, ProcessLife]]:
        """Yield folder and life of a process that was not killed, and of others that were, each at another step."""
        package = type(self.sink(tmp_path)).__module__.partition(".")[0]
        carry(type(self).__module__)

        def lived(name: str, last: int | None) -> tuple[Path, ProcessLife]:
            folder = tmp_path / name
            folder.mkdir()
            return folder, run_child(work_in(folder), last, partial(self.count_steps, package))

        folder, whole = lived("whole", None)
        assert whole.steps > 10, "too few calls to be killed at"
        yield folder, whole
        for step in range(0, whole.steps, max(1, whole.steps // self.most_kills)):
            yield lived(str(step), step)


class ExactlyOnceSinkContract(CheckpointContract, AtLeastOnceSinkContract):
    """The promises of a `TwoPhaseSink`: each row once with `exactly_once`, and none lost with `at_least_once`.

    Subclass it in a test module, under a name that begins with `Test`.
    """

    repeats_in = ("at_least_once",)

    def test_killed_before_any_step_a_sink_recovers_the_rows_of_the_checkpoint(self, tmp_path: Path) -> None:
        masters: dict[Path, Master] = {}

        def work_in(folder: Path) -> Callable[[ChildReport], None]:
            masters[folder] = Master()
            return life_of(self, folder, masters[folder])

        for folder, life in self._killed(tmp_path, work_in):
            masters[folder].note(life.reports)
            check_recovery(self, folder, masters[folder])
        completed = {master.complete for master in masters.values()}
        assert completed == COMPLETED, "no process was killed between some of the checkpoints: raise `most_kills`"

    def test_killed_again_and_again_a_sink_recovers_the_rows_of_the_checkpoint(self, tmp_path: Path) -> None:
        """The first lives end within their recovery."""
        target, master = tmp_path / "target", Master()
        target.mkdir()
        for _, life in self._killed(tmp_path, lambda _: life_of(self, target, master)):
            master.note(life.reports)
            check_what_is_seen(self, target, master)
        check_recovery(self, target, master)


async def _called_and_closed_twice(sink: AsyncBolt) -> None:
    await sink.open(TaskContext("contract", "sink", 1))
    await sink.call(tracked(n=0))
    await sink.close()
    await sink.close()


class _LeftOpen(NamedTuple):
    descriptors: int
    threads: int

    def is_more_than(self, before: _LeftOpen) -> bool:
        return self.descriptors > before.descriptors or self.threads > before.threads


def _open() -> _LeftOpen:
    """Return how many descriptors and threads this process has."""
    gc.collect()
    descriptors = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0
    return _LeftOpen(descriptors, threading.active_count())
