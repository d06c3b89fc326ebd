"""Asynchronous calls as a task: a call for each input, its results as a mail."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from topo.api.operator_bolts import AsyncBolt
from topo.api.tuples import Origin
from topo.checkpoint.alignment import Snapshot
from topo.emission.collectors import Mark, TrackedTuple, TupleState
from topo.errors import FrameworkBug
from topo.operators.async_wait import AsyncWaitOperator, joined_inputs
from topo.operators.base import Operator, OperatorSnapshot
from topo.operators.bolt_operators import BoltCalls
from topo.operators.mailbox.mailbox import RejectedExecution
from topo.task.batch import Batch
from topo.task.environment import AsyncDone, TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.runners.operator import OperatorTask
from topo.user_errors import blame


class AsyncTask(OperatorTask):
    """Runs an `AsyncBolt`. A full queue takes no further input; its mails go on."""

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        if not isinstance(setup.component, AsyncBolt) or ports.run_async is None:
            raise FrameworkBug("an async bolt without an event loop")
        self._bolt, self._run_async = setup.component, ports.run_async
        self._is_user_open = False
        self._close_called = self._close_returned = False
        self._end_waits = False
        self._mark: Mark | None = None
        self._to_restore: list[dict[str, Any]] = []
        """Inputs of a checkpoint that have not been invoked again yet."""
        super().__init__(setup, ports)

    @property
    def capacity(self) -> int:
        """How many calls are under way at most."""
        return self._bolt.settings.capacity

    def _run_call(self, call: Coroutine[Any, Any, Any], done: AsyncDone) -> None:
        self._run_async(call, done, self._on_blocked)

    def _on_blocked(self, error: Exception) -> None:
        """A call holds up the event loop; told on another thread."""
        with suppress(RejectedExecution):
            self.executor.execute(lambda: self.reports.record(error, self.state.now), "a blocking call")

    def _make_operator(self) -> Operator:
        return AsyncWaitOperator(BoltCalls(self._bolt, self._run_call), self._bolt.settings, self)

    def _user_prepare(self) -> None:
        self._run_call(self._bolt.open(self.context), self._on_user_open)
        super()._user_prepare()

    def _on_user_open(self, _result: Any, error: BaseException | None) -> None:
        """`open` has returned or raised; told on the event loop's thread."""

        def note() -> None:
            if error is not None:
                raise error
            self._is_user_open = True
            self._invoke_restored()

        with suppress(RejectedExecution):
            self.executor.execute(note, "the user's open has returned")

    def _snapshot(self, checkpoint: int) -> Snapshot:
        snapshot = super()._snapshot(checkpoint)
        snapshot.values["own"] = [
            one if "watermark" in one else {**one, "value": _stored_tuple(one["value"])}
            for one in [*snapshot.values["own"], *self._to_restore]
        ]
        return snapshot

    def _restore_user(self, parts: list[Snapshot]) -> None:
        """Begin anew; what was in flight is invoked again when the edges and the user's bolt are open."""
        super()._restore_user([])
        self._to_restore = [
            one if "watermark" in one else {**one, "value": self._restored_tuple(one["value"], one["timestamp"])}
            for one in joined_inputs(part.values.get("own", ()) for part in parts)
        ]

    def _restored_tuple(self, stored: tuple[Any, ...], timestamp: int | None) -> TrackedTuple:
        values, *origin = stored
        return TrackedTuple.made(values, Origin(*origin), timestamp, self.epoch, (), ())

    def _edges_are_open(self, now: float) -> None:
        super()._edges_are_open(now)
        self._invoke_restored()

    def _invoke_restored(self) -> None:
        if self._is_user_open and self._to_restore:
            restored, self._to_restore = self._to_restore, []
            self._operator.close()
            self._operator = self._make_operator()
            self._start_operator(OperatorSnapshot(own=restored))

    def _on_close(self, now: float) -> None:
        """Close the user's bolt; the task is closed when that has returned or raised."""
        if not (self.state.is_working and self._is_user_open) or self._close_returned:
            super()._on_close(now)
        elif not self._close_called:
            self._close_called = True
            self.inbound.queue.clear()
            self._operator.close()
            self._run_call(self._bolt.close(), self._on_user_closed)

    def _on_user_closed(self, _result: Any, error: BaseException | None) -> None:
        """`close` has returned or raised; told on the event loop's thread."""

        def note() -> None:
            self._close_returned = True
            if error is not None:
                self.counters.lost_results += 1
                blame(error, self._bolt.close)
                self.reports.record(error, self.state.now)

        with suppress(RejectedExecution):
            self.executor.execute(note, "the user's close has returned")

    @property
    def _wait(self) -> AsyncWaitOperator:
        assert isinstance(self._operator, AsyncWaitOperator)
        return self._operator

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._end_waits = False
        self._mark = None
        super()._reset(event, now)
        if not self.is_checkpointed:
            self._renew_operator()

    @property
    def _may_act(self) -> bool:
        return super()._may_act and self._is_user_open and not self._close_called and not self._wait.is_full

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        wait = self._wait
        for index in range(first, last):
            if wait.is_full:
                batch.done = index
                break
            stamp = None if batch.stamps is None else batch.stamps[index]
            tup = TrackedTuple.made(batch.rows[index], batch.origin, stamp, self.epoch, *batch.ids_at(index))
            try:
                wait.process_element(None, tup, stamp)
            except Exception as error:
                self.failed(tup, error)
        self._settle(now)

    def _on_watermark(self, watermark: int, now: float) -> None:
        try:
            self._wait.process_watermark(watermark)
        except FrameworkBug:
            raise
        except Exception as error:
            # It is in the queue, and has put out a result that does not fit.
            self._call_raised(error, now)
        self._settle(now)

    def emitting(self, value: Any) -> None:
        """The results of this input are put out next."""
        self._output.anchors = (value,)
        self._mark = self._collector.mark()

    def emitted(self, value: Any) -> None:
        """They have been."""
        self._output.anchors = ()
        self._mark = None
        if value.epoch == self.epoch:
            self._collector.ack(value)

    def failed(self, value: Any, error: BaseException) -> None:
        """The call for this input has failed."""
        if value.epoch == self.epoch:
            blame(error, self._bolt.call)
            if self.is_checkpointed:
                value.state = TupleState.FAILED
                self.counters.failed += 1
                self._give_up(value.values, error)
            else:
                self.reports.causes.note(value.roots, error)
                self._collector.fail(value)
            if not isinstance(error, Exception):
                raise error
            self._user_error(error, self.state.now)

    def _call_raised(self, error: Exception, now: float) -> None:
        """A mail has raised: what it was putting out is discarded, and the input fails."""
        if self._mark is None:
            super()._call_raised(error, now)
            return
        (value,), mark = self._output.anchors, self._mark
        self._output.anchors, self._mark = (), None
        self._collector.rewind(mark)
        self.failed(value, error)

    def _user_end(self) -> None:
        """Nothing: the end is told when the last call is done, with all its attempts."""

    def _send_end(self, now: float) -> None:
        if not self._has_calls:
            super()._send_end(now)
        else:
            self._end_waits = True

    def _turn(self, now: float) -> None:
        super()._turn(now)
        if self._end_waits and not self._has_calls:
            self._end_waits = False
            super()._send_end(now)
        if self._close_returned:
            self._on_close(now)

    @property
    def is_quiet(self) -> bool:
        """Whether no call is under way, and none of a checkpoint has to be made again."""
        return super().is_quiet and not self._has_calls

    @property
    def _has_calls(self) -> bool:
        return bool(self._wait.in_flight or self._to_restore)

    def _levels(self) -> dict[str, float]:
        return {**super()._levels(), "async_in_flight": float(self._wait.in_flight)}


def _stored_tuple(tup: TrackedTuple) -> tuple[Any, ...]:
    origin = tup.origin
    return (tup.values, origin.component, origin.task, origin.stream, origin.fields)
