"""Bolts of streams run a slice of rows in one call: the same rows, ends, state and errors as with a slice for each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topo.api.context import TaskContext
from topo.api.streams import streams_of
from topo.api.tuples import Origin, Tuple
from topo.emission.collectors import AnchoringCollector, anchoring_collector
from topo.hot import Ran, run_inputs, run_loop
from topo.streams import AT_END, EACH, Stream, StreamBuilder, every

PLENTY = 10**9


def refuse_bad(word: str) -> str:
    if word == "bad":
        raise ValueError(word)
    return word


def several(lines: Stream[str]) -> None:
    words = lines.flat_map(str.split).map(refuse_bad)
    words.filter(lambda word: word != "a").key_by(lambda word: word).count(emit=EACH, name="first").to(print)
    words.to(print)


def one(lines: Stream[str]) -> None:
    lines.flat_map(str.split).map(refuse_bad).key_by(lambda word: word).count(emit=AT_END, name="first").to(print)


def dated(lines: Stream[str]) -> None:
    times = lines.map(refuse_bad).with_event_time(lambda line: 10**12 + len(line))
    times.key_by(lambda line: line).reduce(lambda old, new: old + new, name="first").to(print)


def counted_often(lines: Stream[str]) -> None:
    counts = lines.key_by(lambda line: line).count(emit=every("1s"), name="first")
    counts.entries().rebalance(parallelism=2).to(print)


def folded(lines: Stream[str]) -> None:
    totals = lines.key_by(lambda line: line).fold(0, lambda total, line: total + len(refuse_bad(line)), emit=EACH, name="first")
    totals.values().map(lambda total: 6 // (total - 3)).to(print)


PROGRAMS = [several, one, dated, counted_often, folded]


def parts(program: Callable[[Stream[str]], None], component: str) -> tuple[Any, AnchoringCollector, Any]:
    """Return a component of the program, its collector, and the rows and ends of its streams."""
    flow = StreamBuilder("program").config(delivery="at_least_once")
    program(flow.from_iterable(["x"], of=str, name="lines"))
    built = {spec.id: spec for spec in flow.build().components}
    # Operators that give event time are a component.
    name = component if component != "lines" or built["lines"].chain is not None else "lines-steps"
    bolt: Any = built[name].chain or built[name].component
    bolt.prepare(TaskContext("test", component, 1))
    collector = anchoring_collector(component, streams_of(bolt), pytest.fail)
    return bolt, collector, [(stream.rows, stream.ends) for stream in collector.streams]


lines = st.lists(st.sampled_from(["", "a", "b", "a b", "bad", "b a bad a", "abc", "c c c"]), max_size=9)


@pytest.mark.parametrize("component", ["lines", "first"])
@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=25)
@given(rows=lines, again=lines, limit=st.sampled_from([1, 4, PLENTY]))
def test_a_slice_in_one_call_is_as_its_rows_one_by_one(
    program: Any, component: str, rows: list[str], again: list[str], limit: int
) -> None:
    results = []
    for has_loop in (False, True):
        bolt, collector, emitted = parts(program, component)
        results.append(found := [])
        for words in (rows, again):
            given = [(word, word) if component == "first" and program in (dated, folded) else (word,) for word in words]
            run, called = (run_loop, bolt.__run_rows__) if has_loop else (run_inputs, bolt.execute)
            ran = run(called, collector, Tuple, Origin("lines", 1), given, None, emitted, limit)
            place = None if ran.error is None else [*ran.error.__notes__, str(ran.error)]
            found.append((ran.done, place, None if ran.tup is None else ran.tup.values, ran.value))
            collector.truncate()
            found.append([(list(stream.rows), list(stream.ends), dict(stream.stamps)) for stream in collector.streams])
        if component == "first":
            found += [bolt.snapshot(), list(bolt._changed)]
            bolt.end_of_input(collector)
            # Behind the end each changed result is emitted at once.
            run_loop(bolt.__run_rows__, collector, Tuple, Origin("lines", 1), [("a", "a")][:1], None, emitted, PLENTY)
            found.append([list(stream.rows) for stream in collector.streams])
    assert results[0] == results[1]


@given(slices=st.lists(lines, max_size=3))
def test_counts_of_slices_are_those_of_their_keys(slices: list[list[str]]) -> None:
    bolt, collector, emitted = parts(counted_often, "first")
    for words in slices:
        ran = run_loop(bolt.__run_rows__, collector, Tuple, Origin("lines", 1), [(word,) for word in words], None, emitted, 1)
        assert ran == Ran(len(words))
    every_word = [word for words in slices for word in words]
    assert bolt._state == Counter(every_word)
    assert list(bolt._changed) == list(dict.fromkeys(every_word))
    assert emitted[0][1] == [0] * len(every_word)
    bolt.end_of_input(collector)
    assert [entry for (entry,) in emitted[0][0]] == list(Counter(every_word).items())
