from __future__ import annotations

import pytest

from tests.unit.connectors.drive import TICK, tracked
from topo import PrintBolt
from topo.emission.collectors import AnchoringCollector


def test_values_are_printed_on_a_line_and_ticks_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    bolt, collector = PrintBolt(", "), AnchoringCollector("print", (), print)
    bolt.execute(tracked(word="owl", n=3), collector)
    bolt.execute(TICK, collector)
    assert capsys.readouterr().out == "owl, 3\n"
