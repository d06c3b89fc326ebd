"""A source with many bad records waits for checkpoints, so that few are held in memory."""

from __future__ import annotations

from typing import Any

import pytest

from topo import MemoryPartitions, MemorySpout, PrintBolt, Topology, TopologyBuilder
from topo.dead_letters.pending import PendingDeadLetters
from topo.testing import TopologyTest


def test_with_many_bad_records_a_source_waits_for_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.dead_letters.pending.MOST_HELD", 10)
    most = 0
    add = PendingDeadLetters.add

    def noted(self: PendingDeadLetters, *arguments: Any, **named: Any) -> None:
        nonlocal most
        add(self, *arguments, **named)
        most = max(most, len(self))

    monkeypatch.setattr(PendingDeadLetters, "add", noted)
    source = MemoryPartitions({"a": [b"x"] * 100 + [b"1"]})

    def topology() -> Topology:
        spout = MemorySpout(source, decode=int)
        spout.batch_size = 5
        builder = TopologyBuilder("bad").config(delivery="exactly_once", checkpoint_interval="1h")
        builder.set_spout("numbers", spout)
        builder.set_bolt("print", PrintBolt()).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology)
    test.advance("2m")
    assert test.emitted("numbers") == [(1,)] and len(test.dead_letters()) >= 90
    assert 10 <= most < 10 + 5
