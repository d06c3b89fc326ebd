"""Rows of a bolt that cannot be sent, in a topology with checkpoints: dead letters of the next checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import CHECKPOINTED, Manual, Plain, Scripted, Sink, chain, fan
from tests.tasks.solo import Solo


def emit_odd(tup: Any, collector: Any) -> None:
    collector.emit(tup.values)
    collector.emit((object(),))


def test_an_edge_without_room_does_not_delay_a_dead_letter_to_a_later_checkpoint() -> None:
    topology = chain(Scripted(), Plain(emit_odd), Sink(), delivery=CHECKPOINTED, edge_window=1, batch_size=1)
    solo = Solo(topology, "b")
    solo.feed(1, tracked=False)
    solo.turn()
    assert not solo.task.outbound.outbox.has_room(solo.plan.tasks_of("c")[0])
    solo.feed(2, tracked=False)
    solo.barrier(1)
    solo.complete(1)
    assert len(solo.dead_letters()) == 2


@pytest.mark.parametrize("bolt", [Plain, Manual])
def test_a_row_whose_key_cannot_be_one_is_a_dead_letter(bolt: Any) -> None:
    solo = Solo(fan(Sink, 2, bolt(), grouping="fields", by=("value",), delivery=CHECKPOINTED), "b")
    solo.feed(1, {"no": "key"}, tracked=False)
    solo.barrier(1)
    solo.complete(1)
    assert solo.values() == [1]
    assert solo.dead_letters() == [(({"no": "key"},), 1)]
