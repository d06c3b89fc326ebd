"""What the loop of a worker does about figures that cannot be sent, and about messages that were lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.task.harness import Plain, Scripted
from tests.unit.worker.test_core import Hosted, word_count
from topo.transport.memory import MemoryNetwork, MemoryTransport
from topo.wire import control
from topo.worker.core import EXIT_ORPHANED
from topo.worker.loop import Connections, Loop


def made() -> tuple[Loop, Any, list[control.FromWorker]]:
    bolt = Plain()
    hosted = Hosted(word_count(Scripted(ends=False), counted=bolt)[0])
    transport = MemoryTransport(MemoryNetwork())
    sent: list[control.FromWorker] = []

    class Told(Loop):
        def tell(self, message: control.FromWorker) -> None:
            super().tell(message)
            sent.extend(control.decode_from_worker(data) for data in self._to_master)
            self._to_master.clear()

    connections = Connections(transport, hosted.plan, frozenset())
    loop = Told(hosted.worker, transport, 0, {}, connections, hosted.plan.config, lambda: "", hosted.clock)
    (task,) = [task for task in hosted.worker.tasks.values() if task.component_id == "c"]
    return loop, task, sent


@pytest.mark.parametrize("odd", [object(), 2**70])
def test_metrics_that_cannot_be_sent_are_left_out_of_the_heartbeat_and_told_of_once(odd: Any) -> None:
    loop, task, sent = made()
    task.context.metrics.gauge("g").value = odd
    for _ in range(2):
        loop.tell(loop.worker.heartbeat(""))
    (error,) = [message for message in sent if isinstance(message, control.ComponentError)]
    assert (error.component, error.task) == ("c", task.id)
    assert "metrics of component 'c' cannot be sent" in error.message
    beats = [message for message in sent if isinstance(message, control.Heartbeat)]
    assert len(beats) == 2
    assert all(set(beat.tasks) == set(loop.worker.tasks) for beat in beats), "the engine's own figures are there"


def test_anything_else_that_cannot_be_sent_is_an_error_of_the_engine() -> None:
    loop, task, _ = made()
    with pytest.raises(TypeError):
        loop.tell(control.ComponentError(task=task.id, component="c", kind="K", message=object(), traceback=""))  # type: ignore[arg-type]


def test_a_heartbeat_says_how_many_messages_went_before_it() -> None:
    loop, task, sent = made()
    for number in range(3):
        loop._beat(float(number))
        loop.tell(control.ComponentError(task=task.id, component="c", kind="K", message="m", traceback=""))
    task.context.metrics.gauge("g").value = object()
    loop._beat(3.0)
    beats = [message for message in sent if isinstance(message, control.Heartbeat)]
    assert [beat.said for beat in beats] == [sent.index(beat) for beat in beats] == [0, 2, 4, 7]


@pytest.mark.parametrize(("said", "ends"), [(2, False), (-1, False), (1, False), (3, True)])
def test_a_worker_that_has_not_got_all_that_the_master_has_said_ends(said: int, ends: bool) -> None:
    loop, _, _ = made()
    told = [control.Deactivate(), control.Alive(1), control.Activate(), control.Alive(said)]
    loop._pending_messages.extend(map(control.encode, told))
    loop._take_messages(loop.now())
    assert (loop.worker.exit is not None) is ends
    if loop.worker.exit is not None:
        assert loop.worker.exit.code == EXIT_ORPHANED
        assert loop.worker.exit.why.endswith(f"the master has sent {said}, and 2 have arrived")
