"""Records events that only tasks know: the final output of operators, and messages that are refused or fail."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from topo.api.operator_bolts import OperatorBolt
from topo.emission.emitter import StreamRows
from topo.errors import UnsupportedValueError
from topo.ids import TaskId
from topo.task.observer import TaskObserver
from topo.testing.recording import Watch
from topo.testing.recording_spouts import SpoutWatch


class TaskRecorder(TaskObserver):
    """Observes the task that runs a component, which is watched itself unless it is an operator bolt."""

    def __init__(self, component: object, watch: Watch) -> None:
        self._spout = component if isinstance(component, SpoutWatch) else None
        self._is_operator = isinstance(component, OperatorBolt)
        self._watch = watch

    def rows_emitted(self, task: TaskId, streams: Sequence[StreamRows]) -> None:
        """Record what an operator has put out; what a call has emitted that raised was taken back before."""
        for stream in streams if self._is_operator else ():
            name = stream.declaration.name
            for row in stream.rows:
                with suppress(UnsupportedValueError):
                    self._watch.note(self._watch.carrier.carried(row, name), name)

    def messages_refused(self, task: TaskId, message_ids: Sequence[Any]) -> None:
        if self._spout is not None:
            for message_id in message_ids:
                self._spout.refused(message_id)

    def message_failed(self, task: TaskId, message_id: Any) -> None:
        """Record a failure that is not reported to the spout, because a replay follows."""
        self._watch.record.failed.setdefault(self._watch.component, []).append(message_id)
