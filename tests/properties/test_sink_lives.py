"""Two-phase sinks through random lives, against a model that only remembers which rows each checkpoint covers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.two_phase_sinks import KINDS, SinkKind, SinkTask
from topo.checkpoint.staged_output import merged

pytestmark = pytest.mark.long

MOST_TASKS = 3

Operation = tuple[Any, ...]

operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, MOST_TASKS - 1), st.integers(1, 4)),
        st.tuples(st.just("snapshot")),
        # Complete, as the tasks have reported.
        st.tuples(st.just("complete"), st.sets(st.integers(0, MOST_TASKS - 1))),
        st.tuples(st.just("repeat report"), st.integers(0, MOST_TASKS - 1)),
        st.tuples(st.just("lose one"), st.integers(0, MOST_TASKS - 1), st.booleans()),
        st.tuples(st.just("start again"), st.integers(1, MOST_TASKS), st.booleans()),
    ),
    max_size=40,
)


@dataclass
class Checkpoint:
    """Each task's state, and the rows that are behind its barrier."""

    states: list[Any] = field(default_factory=list)
    covered: frozenset[int] = frozenset()


class World:
    """A component of a few tasks, and the naive model of its published output."""

    def __init__(self, kind: SinkKind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.number = 0
        self.row = 0
        self.complete = Checkpoint()
        self.complete_number = 0
        self.taken: Checkpoint | None = None
        self.start(1)

    def start(self, parallelism: int) -> None:
        states = self.complete.states
        self.tasks = [
            SinkTask(self.kind, self.folder, index, parallelism, merged(states[index::parallelism]))
            for index in range(parallelism)
        ]
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """All tasks stand at the checkpoint, and its output is published, by whichever task it was staged."""
        self.taken = None
        self.written = [set(self.complete.covered), *(set[int]() for _ in self.tasks[1:])]
        self.reported = [frozenset(written) for written in self.written]
        self.complete_behind = [frozenset[int]() for _ in self.tasks]
        self.check()

    def published(self) -> set[int]:
        return set().union(*self.reported)

    def check(self) -> None:
        seen = self.kind.rows(self.folder)
        assert len(set(seen)) == len(seen)
        assert set(seen) == self.published()

    def write(self, index: int, count: int) -> None:
        index %= len(self.tasks)
        rows = range(self.row, self.row + count)
        self.row += count
        self.tasks[index].write(*rows)
        self.written[index].update(rows)

    def snapshot(self) -> None:
        self.number += 1
        self.behind = [frozenset(written) for written in self.written]
        self.taken = Checkpoint([task.snapshot(self.number) for task in self.tasks], frozenset().union(*self.behind))

    def finish(self, reported: set[int]) -> None:
        if self.taken is not None:
            self.complete, self.complete_number, self.taken = self.taken, self.number, None
            self.complete_behind = self.behind
            for index in reported:
                self.report(index)

    def report(self, index: int) -> None:
        if index < len(self.tasks):
            self.tasks[index].output.complete(self.complete_number)
            self.reported[index] |= self.complete_behind[index]

    def lose(self, index: int, is_orderly: bool) -> None:
        """One process is replaced; all tasks continue from the checkpoint."""
        index %= len(self.tasks)
        if is_orderly:
            self.tasks[index].sink.cleanup()
        else:
            self.tasks[index].die()
        states = self.complete.states
        parallelism = len(self.tasks)
        for other, task in enumerate(self.tasks):
            state = merged(states[other::parallelism])
            if other == index:
                self.tasks[index] = SinkTask(self.kind, self.folder, index, parallelism, state)
            else:
                task.output.restore(state)
        self.begin_epoch()

    def start_again(self, parallelism: int, is_orderly: bool) -> None:
        for task in self.tasks:
            if is_orderly:
                task.sink.cleanup()
            else:
                task.die()
        self.start(parallelism)

    def end(self) -> None:
        self.snapshot()
        self.finish(set(range(len(self.tasks))))
        self.check()
        assert self.kind.staged(self.folder) == []
        for task in self.tasks:
            task.sink.cleanup()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_published_is_what_complete_checkpoints_cover(kind: SinkKind) -> None:
    @settings(max_examples=60)
    @given(operations)
    def check(operations: list[Operation]) -> None:
        with TemporaryDirectory(prefix="topo-") as folder:
            world = World(kind, Path(folder))
            for name, *values in operations:
                if name == "write":
                    world.write(*values)
                elif name == "snapshot":
                    world.snapshot()
                elif name == "complete":
                    world.finish(*values)
                elif name == "repeat report":
                    world.report(*values)
                elif name == "lose one":
                    world.lose(*values)
                else:
                    world.start_again(*values)
                world.check()
            world.end()

    check()
