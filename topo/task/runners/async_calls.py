"""Asynchronous calls as a task: a call for each input, its results as a mail."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from topo.api.operator_bolts import AsyncBolt
from topo.api.tuples import Origin
from topo.checkpoint.alignment import Snapshot
from topo.emission.collectors import Mark, TrackedTuple
from topo.errors import TopoInternalError
from topo.operators.async_wait import AsyncWaitOperator, joined_inputs
from topo.operators.base import OperatorSnapshot
from topo.operators.bolt_operators import BoltCalls
from topo.operators.mailbox.mailbox import RejectedExecution
from topo.task.batch import Batch
from topo.task.environment import AsyncDone
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.operator import OperatorKind
from topo.user_errors import blame
from topo.wire.control import Close


class AsyncKind(OperatorKind):
    """An `AsyncBolt`. A full queue takes no further input; mails still run.

    The task is closed when the user's `close` has returned: the loop of the event loop's thread runs it.
    """

    _operator: AsyncWaitOperator
    end_of_input = None
    """END is sent when the last call is done, with all its attempts."""

    def __init__(
        self,
        parts: TaskParts,
        bolt: AsyncBolt,
        guarantee: InputGuarantee,
        output: OperatorOutput,
        close_task: Callable[[float], object],
    ) -> None:
        if parts.env.run_async is None:
            raise TopoInternalError("an async bolt without an event loop")
        self.bolt, self._run_async, self._close_task = bolt, parts.env.run_async, close_task
        self._is_user_open = False
        self._close_called = self._close_returned = False
        self._mark: Mark | None = None
        """How far the output had come before the results that are being put out."""
        self._to_restore: list[dict[str, Any]] = []
        """Inputs of a checkpoint that have not been invoked again yet."""
        super().__init__(parts, guarantee, output, renews=True)

    @property
    def capacity(self) -> int:
        """How many calls are under way at most."""
        return self.bolt.settings.capacity

    def _make_operator(self) -> AsyncWaitOperator:
        self._mark = None
        return AsyncWaitOperator(BoltCalls(self.bolt, self._run_call), self.bolt.settings, self)

    # -- the event loop --------------------------------------------------------------------------------------------------

    def _run_call(self, call: Coroutine[Any, Any, Any], done: AsyncDone) -> None:
        self._run_async(call, done, self._on_blocked)

    def _on_blocked(self, error: Exception) -> None:
        """A call holds up the event loop. Called on another thread."""
        self._post(lambda: self._reports.record(error, self._state.now), "a blocking call")

    def _post(self, action: Callable[[], object], description: str) -> None:
        """Have the task's thread run an action, if the task is not closed. Any thread may call it."""
        with suppress(RejectedExecution):
            self._parts.executor.execute(action, description)

    # -- life ------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to open the bolt, and start the operator."""
        self._run_call(self.bolt.open(self._parts.spec.context), self._on_user_open)
        super().open()

    def _on_user_open(self, _result: Any, error: BaseException | None) -> None:
        """`open` has returned or raised. Called on the event loop's thread."""

        def note() -> None:
            if error is not None:
                raise error
            self._is_user_open = True
            self.invoke_restored()

        self._post(note, "the user's open has returned")

    def snapshot(self, checkpoint: int) -> Snapshot:
        """Return the inputs whose calls are under way, or are to be made again."""
        held = [*self._operator.own(), *self._to_restore]
        own = [one if "watermark" in one else {**one, "value": _stored_tuple(one["value"])} for one in held]
        return Snapshot(self._operator.freeze(), {"own": own})

    def restore(self, parts: list[Snapshot]) -> None:
        """Start with an empty operator; calls of the checkpoint are made again when the edges and the user's bolt are open."""
        self._renew_operator()
        self._to_restore = [
            one if "watermark" in one else {**one, "value": self._restored_tuple(one["value"], one["timestamp"])}
            for one in joined_inputs(part.values.get("own", ()) for part in parts)
        ]

    def _restored_tuple(self, stored: tuple[Any, ...], timestamp: int | None) -> TrackedTuple:
        values, *origin = stored
        return TrackedTuple.made(values, Origin(*origin), timestamp, self._state.epoch, (), ())

    def invoke_restored(self) -> None:
        """Invoke the inputs of the checkpoint again, if the user's bolt is open."""
        if self._is_user_open and self._to_restore:
            restored, self._to_restore = self._to_restore, []
            self._replace_operator()
            self._mails_have_run = True
            self._start_operator(OperatorSnapshot(own=restored))

    def on_close(self, _event: Close, now: float) -> None:
        """Close the user's bolt; the task is closed when that has returned or raised."""
        if not (self._state.is_working and self._is_user_open) or self._close_returned:
            self._close_task(now)
        elif not self._close_called:
            self._close_called = True
            self._parts.inbound.queue.clear()
            self._operator.close()
            self._run_call(self.bolt.close(), self._on_user_closed)

    def _on_user_closed(self, _result: Any, error: BaseException | None) -> None:
        """`close` has returned or raised. Called on the event loop's thread."""

        def note() -> None:
            self._close_returned = True
            if error is not None:
                self._state.counters.lost_results += 1
                blame(error, self.bolt.close)
                self._reports.record(error, self._state.now)

        self._post(note, "the user's close has returned")

    def close_when_returned(self, now: float) -> None:
        """Close the task, if `close` has returned."""
        if self._close_returned:
            self._close_task(now)

    # -- calls -----------------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether another call can be made."""
        return self._is_user_open and not self._close_called and not self._operator.is_full

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Begin calls until the queue is full, and settle."""
        wait = self._operator
        for index in range(first, last):
            if wait.is_full:
                batch.done = index
                break
            stamp = None if batch.stamps is None else batch.stamps[index]
            tup = TrackedTuple.made(batch.rows[index], batch.origin, stamp, self._state.epoch, *batch.ids_at(index))
            try:
                wait.process_element(None, tup, stamp)
            except Exception as error:
                self.failed(tup, error)
        self.calls.settle(now)

    def _take_watermark(self, watermark: int, now: float) -> None:
        try:
            self._operator.process_watermark(watermark)
        except TopoInternalError:
            raise
        except Exception as error:
            # It is in the queue, and has put out a result that does not fit.
            self._call_raised(error, now)
        self.calls.settle(now)

    def emitting(self, value: Any) -> None:
        """The results of this input are put out next."""
        self._collector.current = (value,)
        self._mark = self._collector.mark()

    def emitted(self, value: Any) -> None:
        """They have been."""
        self._collector.current = ()
        self._mark = None
        if value.epoch == self._state.epoch:
            self._collector.ack(value)

    def failed(self, value: Any, error: BaseException) -> None:
        """The call for this input has failed."""
        if value.epoch == self._state.epoch:
            blame(error, self.bolt.call)
            self._guarantee.fail_input(self._collector, value, error)
            if not isinstance(error, Exception):
                raise error
            self._reports.user_error(error, self._state.now)

    def _call_raised(self, error: Exception, now: float) -> None:
        """A mail has raised: discard its rows, and fail its input."""
        if self._mark is None:
            self._reports.user_error(error, now)
            return
        (value,), mark = self._collector.current, self._mark
        self._collector.current, self._mark = (), None
        self._collector.rewind(mark)
        self.failed(value, error)

    def unfinished(self) -> str:
        """Describe the calls that are under way, or that a checkpoint has and that are not made again yet."""
        return "calls are under way" if self._operator.in_flight or self._to_restore else ""

    def levels(self) -> dict[str, float]:
        """Return the number of calls under way."""
        return {"async_in_flight": float(self._operator.in_flight)}


def _stored_tuple(tup: TrackedTuple) -> tuple[Any, ...]:
    origin = tup.origin
    return (tup.values, origin.component, origin.task, origin.stream, origin.fields)
