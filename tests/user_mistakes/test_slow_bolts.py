"""Bolts that are slower than the defaults seem to allow for."""

from __future__ import annotations

import pytest

from tests.simulation.slow_runs import MODES, SlowRun, Stage, constant


@pytest.mark.parametrize("mode", MODES)
def test_a_bolt_that_queries_a_database_for_ten_milliseconds_with_all_defaults(mode: str) -> None:
    """A user runs 4,000 messages, 40 s of work, through a bolt of 10 ms and sets nothing: no message is replayed or given up."""
    SlowRun(mode, 4_000, Stage(constant(0.01))).go(60.0).assert_healthy()
