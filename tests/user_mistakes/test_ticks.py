"""What users of Storm do with ticks, and the answer that they get."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, StatefulBolt, Topology, TopologyBuilder, TopologyError
from topo.testing import ADVANCE, CRASH, END, TopologyTest


class Cleans(BasicBolt):
    """A job that runs at each tick."""

    def prepare(self, context: Any) -> None:
        self.times = 0

    def execute(self, tup: Any, collector: Any) -> None:
        assert tup.is_tick
        self.times += 1


class Emits(Cleans):
    outputs = ("times",)


class Remembers(Cleans, StatefulBolt):
    """A job that keeps in its state how often it has run."""

    def snapshot(self) -> Any:
        return self.times

    def restore(self, state: Any) -> None:
        self.times = state or 0


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def topology(job: BasicBolt, delivery: str = "at_least_once", **settings: Any) -> Topology:
    builder = TopologyBuilder("job").config(delivery=delivery)
    builder.set_spout("words", IterableSpout([""], fields=("word",)))
    builder.set_bolt("sink", Sink()).shuffle_grouping("words")
    builder.set_bolt("job", job, **settings)
    return builder.build()


def test_a_bolt_may_read_nothing_but_ticks_and_keeps_no_run_from_ending() -> None:
    """The user has a periodic job as a bolt without any grouping."""
    test = TopologyTest(topology(Cleans(), tick_interval="1s"), sources={"words": ["a", ADVANCE("10s"), "b", END]})
    test.run()
    test.assert_all_acked()
    assert test.outcome is not None and test.outcome.exit_code == 0
    assert 9 <= test.bolt("job").times <= 11


def test_a_bolt_that_reads_nothing_but_ticks_has_its_state_in_checkpoints() -> None:
    """A window elsewhere makes the topology exactly_once; the job's worker dies."""
    script = ["a", ADVANCE("6s"), CRASH("job"), ADVANCE("4s"), "b", END]
    built = topology(Remembers(), delivery="exactly_once", tick_interval="1s")
    test = TopologyTest(built, sources={"words": script}, checkpoint_interval="1s")
    test.run()
    test.assert_all_acked()
    assert test.outcome is not None and test.outcome.exit_code == 0
    assert 8 <= test.bolt("job").times <= 11


@pytest.mark.parametrize(
    ("job", "settings", "stated"),
    [
        (Cleans(), {}, r"bolt 'job' reads nothing; say what with a grouping, such as \.shuffle_grouping\('words'\)"),
        (Emits(), {"tick_interval": "1s"}, "bolt 'job' reads nothing but ticks, but emits; make it a Spout"),
    ],
)
def test_a_bolt_without_input_that_cannot_work_is_refused(job: BasicBolt, settings: dict[str, Any], stated: str) -> None:
    """The user forgets the grouping, or emits at ticks alone."""
    with pytest.raises(TopologyError, match=stated):
        topology(job, **settings)
