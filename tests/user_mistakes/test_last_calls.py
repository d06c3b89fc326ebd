"""Mistakes in the last calls of a component: their output is missing, and the run must not count as done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from topo import AsyncBolt, BasicBolt, IterableSpout, Topology, TopologyBuilder
from topo.testing import END, TopologyTest


class Buffered(BasicBolt):
    """Writes its rows when it is closed, to a disk that is full."""

    def prepare(self, context: Any) -> None:
        self.rows: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.rows.append(tup.values)

    def cleanup(self) -> None:
        raise OSError("no space left on device")


class Mean(BasicBolt):
    """Divides by what may be zero, at the end."""

    outputs = ("mean",)

    def prepare(self, context: Any) -> None:
        self.seen = 0

    def execute(self, tup: Any, collector: Any) -> None:
        pass

    def end_of_input(self, collector: Any) -> None:
        collector.emit((1 / self.seen,))


def error_of_failed_run(bolt: Any, **config: Any) -> Any:
    """Run a bolt, whose last call raises; return the one error."""

    def topology() -> Topology:
        builder = TopologyBuilder("last").config(**config)
        builder.set_spout("numbers", IterableSpout([], fields=("number",)))
        builder.set_bolt("bolt", bolt()).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology, sources={"numbers": [1, 2, END]})
    test.run()
    assert test.outcome is not None and test.outcome.exit_code == 1
    assert "results may be missing; see `topo errors`" in test.outcome.reason
    (row,) = test.errors()
    return row


@pytest.mark.parametrize("bolt", [Buffered, Mean])
def test_a_last_call_raises(bolt: type[BasicBolt]) -> None:
    """A bolt's last call raises: the run has failed, and reports that results may be missing, and where."""
    row = error_of_failed_run(bolt)
    assert row.component == "bolt" and row.file == __file__


class Uploads(AsyncBolt):
    """Sends the remaining rows when it is closed, after a pause, to a server that has gone."""

    async def call(self, tup: Any) -> None:
        pass

    async def close(self) -> None:
        await asyncio.sleep(3)
        raise ConnectionResetError("the server has gone")


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once", "exactly_once"])
def test_close_of_an_async_bolt_raises(delivery: str) -> None:
    """An AsyncBolt's `close` raises: the same answer as for `cleanup` of other bolts."""
    row = error_of_failed_run(Uploads, delivery=delivery)
    assert (row.component, row.kind, row.file) == ("bolt", "ConnectionResetError", __file__)
