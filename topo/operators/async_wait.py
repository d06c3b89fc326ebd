"""The async operator: for each element a call whose results come later, with a bound on how many are in flight.

Theory. Elements and watermarks enter a queue of limited capacity; when it is full the operator yields to the mailbox, which is
the back-pressure. A call may complete on any thread: only the first completion counts, and all it does there is to post a mail.
Everything else happens on the mailbox thread, where at most one entry leaves the queue in one mail, so that other mails get
their turn. Nothing here waits for a clock or runs an event loop: the giver of the function does that.

The snapshot is the inputs of all entries. After a restore they are invoked again, before any new input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from topo.api.async_io import AsyncMode, AsyncSettings, AsyncTimeoutError
from topo.errors import UserError
from topo.operators.async_queues import Entry, OrderedQueue, ResultQueue, UnorderedQueue
from topo.operators.base import Operator, OperatorSnapshot
from topo.operators.mailbox.mailbox import RejectedExecution
from topo.operators.time.clock import ClockTimer
from topo.user_errors import returned


class AsyncFunction(ABC):
    """A function of each element, called on the mailbox thread. Neither method may block."""

    @abstractmethod
    def invoke(self, value: Any, handle: ResultHandle) -> None:
        """Begin a call; complete the handle when it is done, now or later, on any thread. An exception fails the element."""

    def timeout(self, value: Any, handle: ResultHandle) -> None:
        """Called when the call has not completed in time; completes the handle, by default with AsyncTimeoutError."""
        handle.complete_exceptionally(AsyncTimeoutError(f"an asynchronous call has timed out for {value!r}"))


class InFlightObserver(Protocol):
    """Follows the elements through the operator; all calls come on the mailbox thread, with the very value that went in."""

    def emitting(self, value: Any) -> None:
        """The results of this element are put out next, until `emitted`."""

    def emitted(self, value: Any) -> None:
        """All results of this element were put out; it is done."""

    def failed(self, value: Any, error: BaseException) -> None:
        """The element failed and has no results; its place is free. Raise to fail the task."""


class FailTheTask:
    """The observer for those who need none: an element that fails raises."""

    def emitting(self, value: Any) -> None:
        pass

    def emitted(self, value: Any) -> None:
        pass

    def failed(self, value: Any, error: BaseException) -> None:
        raise error


class ResultHandle:
    """Takes the result of one attempt. Any thread may complete it; only the first completion counts."""

    __slots__ = ("_call", "_pending")

    def __init__(self, call: _Call) -> None:
        self._call = call
        # Popping from a list is atomic: of several threads exactly one gets the token.
        self._pending = [True]

    @property
    def is_completed(self) -> bool:
        return not self._pending

    def complete(self, results: Sequence[Any]) -> None:
        """Complete with 0 to n results.

        Raises:
            UserError: `results` is no list or tuple; the element fails by it.
        """
        if not isinstance(results, list | tuple):
            error = UserError(f"an asynchronous call completes with a list of results; got {results!r}")
            self.complete_exceptionally(error)
            raise error
        if self._take():
            self._call.post(results, None)

    def complete_exceptionally(self, error: BaseException) -> None:
        if self._take():
            self._call.post((), error)

    def _take(self) -> bool:
        try:
            self._pending.pop()
        except IndexError:
            return False
        return True


class _Call:
    """One element's way to its results, over all attempts. Mailbox thread only, `post` excepted."""

    __slots__ = ("_attempt", "_backoff", "_handle", "_operator", "_timed_out", "_timeout", "entry")

    def __init__(self, operator: AsyncWaitOperator, entry: Entry, timeout_ms: int) -> None:
        self.entry = entry
        self._operator = operator
        self._attempt = 1
        self._handle = ResultHandle(self)
        self._backoff: ClockTimer | None = None
        self._timed_out = False
        self._timeout: ClockTimer | None = None
        if timeout_ms > 0:
            clock = operator.context.clock
            self._timeout = clock.register(clock.now_ms() + timeout_ms, self._on_timeout)

    def invoke(self) -> None:
        self._call_user(self._operator.function.invoke)

    def post(self, results: Sequence[Any], error: BaseException | None) -> None:
        """Bring a completion to the mailbox thread. Any thread."""
        self._operator.post(partial(self._on_completion, results, error), "result of an asynchronous call")

    def cancel(self) -> None:
        """Let nothing happen any more."""
        for timer in (self._timeout, self._backoff):
            if timer is not None:
                timer.cancel()
        self._timeout = self._backoff = None

    def _on_completion(self, results: Sequence[Any], error: BaseException | None) -> None:
        if self.entry.is_done or self._operator.is_closed:
            return
        try:
            wants_retry = not self._timed_out and self._operator.wants_retry(self._attempt, results, error)
            backoff_ms = self._operator.backoff_ms(self._attempt) if wants_retry else 0
        except Exception as raised:
            wants_retry, error = False, raised
        if wants_retry:
            clock = self._operator.context.clock
            self._handle = ResultHandle(self)
            self._backoff = clock.register(clock.now_ms() + backoff_ms, self._on_backoff)
            return
        self._finish(results if error is None else ())
        if error is None:
            self._operator.output_one()
        else:
            self._operator.output_failed(self.entry, error)

    def _on_backoff(self, due: int) -> None:
        self._backoff = None
        self._attempt += 1
        self.invoke()

    def _on_timeout(self, due: int) -> None:
        self._timeout = None
        self._timed_out = True
        if self.entry.is_done or (self._handle.is_completed and self._backoff is None):
            return
        if self._backoff is not None:
            self._backoff.cancel()
            self._backoff = None
        self._call_user(self._operator.function.timeout)

    def _call_user(self, function: Callable[[Any, ResultHandle], None]) -> None:
        """Call the user's code. An exception leaves when the entry is done, so that nothing waits for it."""
        try:
            function(self.entry.value, self._handle)
        except BaseException:
            self.entry.has_failed = True
            self._finish(())
            self._operator.output_in_mail()
            raise

    def _finish(self, results: Sequence[Any]) -> None:
        self.cancel()
        self._operator.finish(self, results)


def joined_inputs(queues: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return what one operator restores of what several had in flight.

    Watermarks of one queue say nothing of the elements of another, which may be older, so they are left out where elements of
    several meet: nothing may get behind one, and the inputs send theirs again.
    """
    filled = [queue for queue in queues if queue]
    if len(filled) == 1:
        return list(filled[0])
    return [one for queue in filled for one in queue if "watermark" not in one]


class AsyncWaitOperator(Operator):
    """Calls a function for each element and puts out its results in order, or as they come between two watermarks.

    Args:
        settings: mode, capacity, timeout, retries.
        observer: follows the elements; by default the error of a failed call is raised.

    Attributes:
        is_closed: set by `close`: later completions are dropped.
    """

    def __init__(self, function: AsyncFunction, settings: AsyncSettings, observer: InFlightObserver | None = None) -> None:
        self.function = function
        self.is_closed = False
        self._settings = settings
        self._observer = observer if observer is not None else FailTheTask()
        self._calls: dict[Entry, _Call] = {}
        self._entering: Entry | None = None
        self._idle_waits = False
        """The input is idle; passed on when nothing is in flight."""
        self._to_restore: deque[dict[str, Any]] = deque()
        is_ordered = settings.mode is AsyncMode.ORDERED
        self._queue: ResultQueue = OrderedQueue(settings.capacity) if is_ordered else UnorderedQueue(settings.capacity)

    @property
    def in_flight(self) -> int:
        """How many elements and watermarks are in the queue."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the next element or watermark would wait."""
        return self._queue.is_full

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Remember the inputs; `open` invokes them again."""
        self._to_restore.extend(snapshot.own)

    def open(self) -> None:
        """Take the restored inputs as if they came now; yields if they are more than the capacity."""
        while self._to_restore:
            one = self._to_restore.popleft()
            if "watermark" in one:
                self.process_watermark(one["watermark"])
            else:
                self.process_element(one["key"], one["value"], one["timestamp"])

    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None:
        """Enter the element, waiting for room by yielding, and begin its call.

        Raises:
            MailFailed: a mail failed that ran meanwhile.
            Exception: whatever the function raises; the element then has no results.
        """
        entry = Entry(key, value, timestamp)
        self._enter(entry)
        call = self._calls[entry] = _Call(self, entry, self._settings.timeout_ms)
        call.invoke()

    def process_watermark(self, timestamp: int) -> None:
        """Enter the watermark, waiting for room by yielding; it leaves when everything before it has left."""
        self._enter(Entry.of_watermark(timestamp))
        self.output_one()

    def process_idle(self, idle: bool) -> None:
        """Pass idleness on behind everything in flight, because a later watermark would end it; not at all if it ends before."""
        if self._idle_waits:
            self._idle_waits = idle
        elif idle and len(self._queue):
            self._idle_waits = True
        else:
            super().process_idle(idle)

    def end_of_input(self) -> None:
        """Yield until everything has left, retries included."""
        while len(self._queue):
            self.context.executor.yield_()

    def own(self) -> list[Any]:
        """The inputs of all entries in the order of the queue, results that were not put out yet included.

        Failed entries, which keep their place until those before them have left, are not: the observer knows of them already.
        """
        entering = () if self._entering is None else (self._entering,)
        inputs = [entry.as_input() for entry in (*self._queue.entries(), *entering) if not entry.has_failed]
        return [*inputs, *self._to_restore]

    def close(self) -> None:
        """Drop all elements in flight, completed or not."""
        self.is_closed = True
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()

    def _enter(self, entry: Entry) -> None:
        self._entering = entry
        try:
            while self._queue.is_full:
                self.context.executor.yield_()
        finally:
            self._entering = None
        self._queue.put(entry)

    def finish(self, call: _Call, results: Sequence[Any]) -> None:
        """Set the results of a call's entry. For the call."""
        self._calls.pop(call.entry, None)
        call.entry.results = results
        self._queue.completed(call.entry)

    def output_one(self) -> None:
        """Put out one entry that is ready, if any, and post a mail for the next. For the call."""
        entry = None if self.is_closed else self._queue.pop_ready()
        if entry is None:
            return
        try:
            self._put_out(entry)
        finally:
            if self._queue.has_ready:
                self.output_in_mail()
            elif self._idle_waits and not len(self._queue):
                # Not at once: after output that has raised, its remains are discarded first.
                self.post(self._tell_idle, "idleness behind asynchronous results")

    def _tell_idle(self) -> None:
        if self._idle_waits and not len(self._queue) and not self.is_closed:
            self._idle_waits = False
            self.output.mark_idle()

    def output_in_mail(self) -> None:
        """Post a mail that puts out one entry. For the call."""
        self.post(self.output_one, "output of asynchronous results")

    def output_failed(self, entry: Entry, error: BaseException) -> None:
        """Put out the entries that wait for a failed one, and notify the observer."""
        entry.has_failed = True
        try:
            self.output_one()
        finally:
            self._observer.failed(entry.value, error)

    def post(self, action: Callable[[], object], description: str) -> None:
        """Have `action` run as a mail, from any thread; dropped when the task ends."""
        try:
            self.context.executor.execute(action, description)
        except RejectedExecution:
            return

    def wants_retry(self, attempt: int, results: Sequence[Any], error: BaseException | None) -> bool:
        """Whether a completion asks for another attempt and may have it. For the call."""
        retry = self._settings.retry
        if retry is None:
            return False
        if error is None:
            asks = retry.result_predicate is not None and retry.result_predicate(results)
        else:
            asks = retry.error_predicate is not None and retry.error_predicate(error)
        return asks and retry.can_retry(attempt)

    def backoff_ms(self, attempt: int) -> int:
        """How long to wait after an attempt. For the call."""
        assert self._settings.retry is not None
        wait_ms: Any = self._settings.retry.backoff_ms(attempt)
        if not isinstance(wait_ms, int | float):
            raise returned(self._settings.retry.backoff_ms, wait_ms, "return the milliseconds to wait")
        return int(wait_ms)

    def _put_out(self, entry: Entry) -> None:
        if entry.watermark is not None:
            self.output.watermark(entry.watermark)
        elif not entry.has_failed:
            self._observer.emitting(entry.value)
            for result in entry.results or ():
                self.output.emit(result, entry.timestamp)
            self._observer.emitted(entry.value)
