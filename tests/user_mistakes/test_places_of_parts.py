"""Errors of ready-made components, in which nothing but values is the user's, have the line that adds the component."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from topo import (
    FilesSink,
    IterableSpout,
    PrintBolt,
    TopologyBuilder,
    TopologyError,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.api.topology import Topology
from topo.testing import TopologyTest
from topo.testing.recording import RecordedEmission


def topology(**result: Any) -> Topology:
    builder = TopologyBuilder("sums").config(attempts=1)
    builder.set_spout("sales", IterableSpout([("a", "1"), ("a", "2")], fields=("shop", "cents")))
    window = WindowBolt(key="shop", window=windows.CountWindows.of(2), **result)
    builder.set_bolt("sums", window).fields_grouping("sales", "shop")
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("sums")
    return builder.build()


def line(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, one in enumerate(lines) if text in one)


@pytest.mark.parametrize("aggregate", [aggregates.Sum("cents"), aggregates.Mean("cents")])
def test_a_sum_of_text_has_the_line_of_its_window(aggregate: Any) -> None:
    """The user sums a column of a CSV file, whose values are text."""
    test = TopologyTest(lambda: topology(aggregate=aggregate))
    test.run()
    found = {(error.file, error.line, error.message) for error in test.errors()}
    assert found == {(__file__, line(topology, 'set_bolt("sums"'), "unsupported operand type(s) for +: 'int' and 'str'")}


def test_a_spout_of_items_knows_its_line() -> None:
    spout: Any = topology(aggregate=aggregates.Count()).component("sales").component
    assert spout.declared_at == (__file__, line(topology, "set_spout"))


def written_to(folder: Path) -> Topology:
    builder = TopologyBuilder("sums").config(attempts=1)
    builder.set_spout("sales", IterableSpout([("a", "1")], fields=("shop", "cents")))
    builder.set_bolt("store", FilesSink(folder / "out", partition_by="cents", fields=("shop",))).shuffle_grouping("sales")
    return builder.build()


def test_an_error_of_a_ready_made_sink_has_the_line_that_adds_it(tmp_path: Path) -> None:
    """The place was none, or one in the standard library."""
    (tmp_path / "out").write_text("no folder")
    test = TopologyTest(lambda: written_to(tmp_path))
    with suppress(Exception):
        test.run()
    found = {(error.file, error.line) for error in test.errors() if error.kind != "WorkerLost"}
    assert found == {(__file__, line(written_to, 'set_bolt("store"'))}


def test_a_part_of_a_window_is_no_component() -> None:
    """The user gives the schedule of a window, or a strategy, as the bolt."""
    strategy = WatermarkStrategy.monotonic_timestamps()
    for part in (windows.TumblingEventTimeWindows.of("1s"), strategy, RecordedEmission("a", 0, "b", ())):
        builder = TopologyBuilder("sums")
        builder.set_spout("sales", IterableSpout([1]))
        builder.set_bolt("window", part).shuffle_grouping("sales")  # type: ignore[arg-type]
        with pytest.raises(TopologyError, match="set_bolt takes a Bolt"):
            builder.build()


def broken(first: Any, second: Any) -> Any:
    raise ValueError("broken")


def test_an_error_in_a_function_of_the_user_has_its_own_line() -> None:
    test = TopologyTest(lambda: topology(reduce=broken))
    test.run()
    assert {(error.file, error.line) for error in test.errors()} == {(__file__, line(broken, "raise"))}
