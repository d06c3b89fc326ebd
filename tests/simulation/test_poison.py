"""Messages that take their process down, and processes that are taken down by nothing in particular."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.simulator import stages
from tests.simulator.external_world import PositionedSpout, message_key
from tests.simulator.faults import Fault, FaultKind, draw_fault
from tests.simulator.scenarios import Scenario, ScenarioRun, SpoutFacts
from tests.simulator.topologies import Part

PACKED_AND_SPREAD = pytest.mark.parametrize("workers", [1, None], ids=["packed", "spread"])


def pipeline(
    total: int, workers: int | None, poison: int | None = None, faults: tuple[Fault, ...] = (), **settings: object
) -> Scenario:
    """A spout, two bolts and a sink, with the settings that users have by default unless others are given."""
    keys = [] if poison is None else [message_key("lines", 0, poison)]
    parts = [
        Part("lines", lambda outside: PositionedSpout(outside, "lines", total, 0.00002)),
        Part("parse", lambda outside: stages.Map(outside, "parse"), 2, (("lines", "default", "shuffle"),)),
        Part("check", lambda outside: stages.Map(outside, "check", 0.00001, poison=keys), 2, (("parse", "default", "fields"),)),
        Part("store", lambda outside: stages.Sink(outside, "store"), 1, (("check", "default", "shuffle"),)),
    ]
    guilty = [("check", key) for key in keys]
    facts = [SpoutFacts("lines", 1, total)]
    return Scenario(1, parts, facts, {"workers": workers, **settings}, poison=guilty, faults=faults)


def dead_letters(run: ScenarioRun) -> list[str]:
    """The keys of the dead letters, in order."""
    codec = run.simulation.codec
    return [message_key("lines", 0, codec.unpack_value(row.position)) for row in run.simulation.master.store.dead_letters]


@PACKED_AND_SPREAD
@pytest.mark.parametrize("poison", [0, 4_711, 9_999])
def test_of_ten_thousand_messages_the_one_that_kills_is_the_one_dead_letter(workers: int | None, poison: int) -> None:
    run = pipeline(10_000, workers, poison).run()
    assert run.violations == []
    assert dead_letters(run) == [message_key("lines", 0, poison)]
    assert len(run.outside.effects) == 9_999
    assert run.simulation.now < 60.0


@PACKED_AND_SPREAD
def test_fifty_kills_at_random_make_no_dead_letter_and_lose_nothing(workers: int | None) -> None:
    random = Random(50)
    kills = [replace(draw_fault(random, FaultKind.CRASH), share=number / 65, after_s=0.0) for number in range(1, 51)]
    run = pipeline(5_000, workers, faults=tuple(kills), restart_backoff_max="200ms", batch_size=64).run()
    assert run.violations == []
    assert sum(fault.kind is FaultKind.CRASH for _, fault, _ in run.simulation.strikes.struck) == 50
    assert dead_letters(run) == []
    assert len(run.outside.effects) == 5_000
