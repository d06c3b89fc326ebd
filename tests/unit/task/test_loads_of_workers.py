"""How the load of a worker reaches the senders of its tasks, and what a shuffle makes of it."""

from __future__ import annotations

import pytest

from tests.tasks.components import Plain, Scripted, Sink, chain, fan
from tests.tasks.solo import Solo
from topo.emission.shuffle_shares import INTERVAL_S
from topo.wire.frames import FrameKind


def test_a_confirmation_has_the_load_of_the_worker() -> None:
    task = Solo(chain(Scripted(), Plain(), Sink(), queue_time="off"), "b")
    task.load = 73
    task.feed("x")
    task.run()
    task.wait(0.02)
    assert [frame.stream for frame in task.frames(FrameKind.CONFIRM)] == [73]


@pytest.mark.parametrize("local", [(), (3, 4)])
def test_a_shuffle_sends_more_rows_where_confirmations_have_less_load(local: tuple[int, ...]) -> None:
    task = Solo(fan(Sink(), 2), "b", local=local)
    for _ in range(40):
        task.feed(*map(str, range(20)))
        task.run()
        for target, load in (3, 100), (4, 60):
            task.confirm(target, load=load)
        task.wait(INTERVAL_S)
        task.confirm_all()
    sent = {target: sum(f.count for f in task.frames() if f.kind is FrameKind.DATA and f.target == target) for target in (3, 4)}
    assert sum(sent.values()) == 800
    assert sent[4] > 2 * sent[3]
