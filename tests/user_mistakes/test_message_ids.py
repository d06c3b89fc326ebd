"""Mistakes with message ids: each message that the engine cannot take is counted, and the run fails with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tasks.components import Replaying, Scripted, Sink
from topo import TopologyBuilder
from topo.launch.local_cluster import LocalCluster
from topo.master.outcome import Outcome, OutcomeKind
from topo.testing import TopologyTest
from topo.testing.fixtures import local_cluster

__all__ = ["local_cluster"]
MODES = ["at_least_once", "exactly_once", "at_most_once"]


class Unnamed:
    """An id that cannot be shown."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise ValueError("not ready")


def emitting(kind: Any, ids: list[Any], delivery: str) -> TopologyTest:
    builder = TopologyBuilder("ids").config(delivery=delivery)
    builder.set_spout("source", kind([lambda c, one=one: c.emit((1,), message_id=one) for one in ids]))
    builder.set_bolt("sink", Sink()).shuffle_grouping("source")
    test = TopologyTest(builder.build())
    test.run()
    return test


@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize(
    ("kind", "ids", "why"),
    [
        (Scripted, [1, ["a list"], 3], "which is not hashable"),
        (Replaying, [1, ["a list"], 3], "which is not hashable"),
        (Replaying, [1, None, 3], "a RetryingSpout gives every message one"),
        (Replaying, [2, 1, 3], "each later than the one before"),
        (Replaying, [1, 2j, 3], "cannot be stored as it is"),
        (Replaying, [1, 1 << 63, 1 << 64], "ints of 64 bits"),
        (Replaying, [1, 10**5000], "message id (ValueError in repr) (int), which cannot be stored"),
        (Scripted, [1, Unnamed(), 3], "message id (ValueError in repr) (Unnamed), which is not hashable"),
    ],
)
def test_a_message_whose_id_cannot_be_used_fails_the_run(kind: Any, ids: list[Any], why: str, delivery: str) -> None:
    """The user gives a list as an id, no id to a RetryingSpout, positions that go back, or a type that cannot be stored."""
    test = emitting(kind, ids, delivery)
    assert test.outcome is not None
    assert (test.outcome.kind, test.outcome.exit_code) == (OutcomeKind.REFUSED, 1)
    assert "1 message was refused for its id; see `topo errors`" in test.outcome.reason
    assert (test.outcome.refused, test.status()["totals"]["refused"]) == (1, 1)
    (error,) = test.errors()
    assert error.kind == "EmitError" and why in error.message
    with pytest.raises(AssertionError, match=r"was refused for its id[\s\S]*EmitError"):
        test.assert_all_acked()


def test_one_id_for_all_messages_fails_the_run() -> None:
    """A RetryingSpout emits 1,000 messages under one id."""
    test = emitting(Replaying, [7] * 1000, "at_least_once")
    assert test.outcome is not None and test.outcome.refused == 999
    assert test.acked() == [7]


@pytest.mark.parametrize("delivery", MODES)
def test_ids_without_an_order_are_fine_for_a_plain_spout(delivery: str) -> None:
    """A plain Spout's ids need no order; only a RetryingSpout's are positions."""
    test = emitting(Scripted, ["b", "a", 3, (1, "c")], delivery)
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DONE


@pytest.mark.parametrize("bad", [2j, 1 << 64, "a file name that is not UTF-8: \udcff"])
@pytest.mark.parametrize(("delivery", "refused"), [("at_least_once", 0), ("exactly_once", 1)])
def test_an_id_that_a_checkpoint_cannot_hold_is_refused_where_there_are_checkpoints(
    bad: Any, delivery: str, refused: int
) -> None:
    """A plain Spout's id cannot be stored: no checkpoint would ever be complete."""
    test = emitting(Scripted, [1, bad], delivery)
    assert test.outcome is not None and test.outcome.refused == refused


def test_a_script_of_a_test_may_name_its_messages_in_any_order() -> None:
    """The user names the messages of a scripted source; they are no positions."""
    builder = TopologyBuilder("ids")
    builder.set_spout("source", Replaying())
    builder.set_bolt("sink", Sink()).shuffle_grouping("source")
    test = TopologyTest(builder.build(), sources={"source": [("b", (1,)), ("a", (2,))]})
    test.run()
    test.assert_all_acked()
    assert sorted(test.acked()) == ["a", "b"]


UNHASHABLE = """
from topo import PrintBolt, Spout, TopologyBuilder

class Source(Spout):
    outputs = ("n",)
    def open(self, context, collector):
        self.collector, self.n = collector, 0
    def next_tuple(self):
        self.n += 1
        self.collector.emit((self.n,), message_id={"id": self.n})
        if self.n == 3:
            self.collector.end_of_input()

def topology():
    builder = TopologyBuilder("ids")
    builder.set_spout("source", Source())
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("source")
    return builder.build()
"""


@pytest.mark.integration
def test_a_dict_as_message_id_fails_the_run_of_real_processes(local_cluster: LocalCluster, tmp_path: Path) -> None:
    """The same in real processes, with the summary that is kept."""
    file = tmp_path / "ids.py"
    file.write_text(UNHASHABLE)
    running = local_cluster.submit(str(file))
    outcome: Outcome = running.wait(timeout_s=60)
    assert (outcome.kind, outcome.refused, outcome.exit_code) == (OutcomeKind.REFUSED, 3, 1)
    totals = running.summary()["totals"]
    assert (totals["emitted"], totals["acked"], totals["refused"]) == (3, 0, 3)
    error = running.errors()[0]
    assert (Path(error["file"]).name, error["line"]) == ("ids.py", UNHASHABLE.splitlines().index("    def next_tuple(self):") + 1)
