"""What users expect of batching bolts, and the answer that they get."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BatchBolt, ConfigError, IterableSpout, TopologyBuilder, TopologyError
from topo.testing import run_bolt


class Score(BatchBolt):
    outputs = ("id", "score")

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        for tup in tuples:
            collector.emit((tup["id"], 1.0), tup)


def built(bolt: Any, grouping: str = "shuffle", **settings: Any) -> Any:
    builder = TopologyBuilder("scores").config(message_timeout="5s", delivery="at_least_once")
    builder.set_spout("ids", IterableSpout([(1,)], fields=("id",)))
    getattr(builder.set_bolt("score", bolt, 2, **settings), f"{grouping}_grouping")("ids")
    return builder.build()


def test_a_batch_by_key_that_is_shuffled_is_refused() -> None:
    """The user wants a batch for each key and forgets the fields grouping."""
    with pytest.raises(TopologyError, match=r"bolt 'score': its key is 'id'.*use fields_grouping\('ids', 'id'\)"):
        built(Score(key="id"))


def test_a_wait_longer_than_the_message_timeout_is_refused() -> None:
    """The user lets tuples wait for their batch until their messages have timed out."""
    with pytest.raises(TopologyError, match=r"bolt 'score': a tuple waits 10s for its batch.*message_timeout of 'ids' is 5s"):
        built(Score(wait="10s"))


def test_ticks_for_a_batching_bolt_are_refused() -> None:
    """The user sets a tick interval to have open batches written, as other bolts need it."""
    with pytest.raises(TopologyError, match=r"tick_interval is set, but a Score gets no ticks; use wait="):
        built(Score(), tick_interval="1s")


@pytest.mark.parametrize(("size", "wait", "stated"), [(0, "1s", "size=0"), (10, "0s", "give size=1"), ("10", "1s", "size='10'")])
def test_a_size_or_wait_that_cannot_be_is_refused_where_it_is_written(size: Any, wait: str, stated: str) -> None:
    """The user gives a size of zero, no wait at all, or text."""
    with pytest.raises(ConfigError, match=stated):
        Score(size, wait=wait)


def test_a_call_that_forgets_the_anchors_fails_its_tuples_and_says_what_is_missing() -> None:
    """The user emits as in a BasicBolt, without saying which tuple of the batch a row descends from."""

    class Forgets(Score):
        def execute_batch(self, tuples: Any, collector: Any) -> None:
            for tup in tuples:
                collector.emit((tup["id"], 1.0))

    run = run_bolt(Forgets(), [{"id": 1}])
    assert run.failed == [0] and "'anchors'" in str(run.errors[0])


def test_rows_that_are_returned_or_yielded_are_an_error() -> None:
    """The user returns the scores of a batch, or yields them."""

    class Returns(Score):
        def execute_batch(self, tuples: Any, collector: Any) -> Any:
            return [(tup["id"], 1.0) for tup in tuples]

    class Yields(Score):
        def execute_batch(self, tuples: Any, collector: Any) -> Any:
            yield from ((tup["id"], 1.0) for tup in tuples)

    for bolt, kind in ((Returns(), "list"), (Yields(), "generator")):
        run = run_bolt(bolt, [{"id": 1}])
        assert run.failed == [0]
        assert f"returned a {kind}, which is not used; emit each row with collector.emit" in str(run.errors[0])


def test_a_bolt_without_init_has_the_default_settings() -> None:
    """The user writes an __init__ and does not call super().__init__()."""

    class Forgets(Score):
        def __init__(self) -> None:
            self.sizes: list[int] = []

    run_bolt(Forgets(), [{"id": 1}]).assert_all_acked()
    built(Forgets())
