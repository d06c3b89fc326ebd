"""The taps of a task: each row that is taken and emitted passes them once, and without one nothing is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.tasks.bolts import KINDS, done, emit, relay
from tests.tasks.components import Scripted, Sink, chain, several
from tests.tasks.solo import Solo
from topo.task.taps import Tap

Shown = list[tuple[str, tuple[str, ...], list[Any]]]


def recorder(shown: Shown) -> Tap:
    def look(stream: str, fields: Sequence[str], rows: Sequence[Any]) -> None:
        # Rows are reused behind the call.
        shown.append((stream, tuple(fields), list(rows)))

    return look


@KINDS
def test_a_bolt_shows_its_input_and_its_output(kind: Any) -> None:
    def double(tup: Any, collector: Any) -> None:
        for _ in range(2):
            emit(tup, collector, tup[0])
        done(tup, collector)

    _, task = relay(kind, double)
    taken, out = Shown(), Shown()
    task.task.taps.taken, task.task.taps.out = recorder(taken), recorder(out)
    task.feed(1, 2, 3)
    task.run()
    assert [row for _, _, rows in taken for row in rows] == [(1,), (2,), (3,)]
    assert [row for _, _, rows in out for row in rows] == [(1,), (1,), (2,), (2,), (3,), (3,)]
    assert {(stream, fields) for stream, fields, _ in taken} == {("a:default", ("value",))}
    assert {(stream, fields) for stream, fields, _ in out} == {("default", ("value",))}
    task.task.taps.taken = task.task.taps.out = None
    task.feed(4)
    task.run()
    assert len(taken) == 1
    assert (4,) not in [row for _, _, rows in out for row in rows]


def test_a_spout_shows_its_messages() -> None:
    spout = Scripted(ends=False)
    task = Solo(chain(spout, Sink()), "a")
    out = Shown()
    task.task.taps.out = recorder(out)
    spout.steps += [several("one", "two"), "three"]
    task.run()
    task.run()
    assert [row for _, _, rows in out for row in rows] == [("one",), ("two",), ("three",)]
