"""An asyncio loop on a helper thread of one task, for clients and servers that need one: aiohttp, nats-py.

    task's thread                                     loop's thread
    thread.take()   <- items, at most `most_items` <- await link.put(item), link.put_nowait(item)
    thread.send(m)  -> messages, at most `most_messages` -> await link.get(), link.get_nowait()

The loop runs one coroutine, `main(link)`. It waits where the task does not take; `send` answers False where the loop does not. An
item wakes the task through its executor, with one mail for all items that came before the mail ran.

States of the thread:

| state   | meaning                                   | leaves it by                                 |
| ------- | ----------------------------------------- | -------------------------------------------- |
| NEW     | no thread runs                            | `start`; `close`                             |
| RUNNING | a run of `main`, or the pause before one  | `close`; the end of the task; `main` returns |
| CLOSED  | `main` was cancelled, or has returned     |                                              |

A run that raises, by whatever (a SystemExit of user code, too), is reported to the task, and after a pause `main` is called again
with a new link on a new loop. Items that the task has not taken stay; messages that the loop has not got are dropped, since they
are about the connections of the run before.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from topo.api.context import Executor
from topo.errors import TopoError, TopoInternalError, UserError

Item = TypeVar("Item")
Message = TypeVar("Message")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""The pause before `main` is called again: doubled with each run that raises before it has handed over an item."""
CLOSE_S = 5.0
"""How long `close` waits for `main` to end after it was cancelled."""


class LoopThreadState(Enum):
    """The life of a thread; only ever moves downwards."""

    NEW = "new"
    RUNNING = "running"
    CLOSED = "closed"


class LoopLink(Generic[Item, Message]):
    """The loop's side of a thread, for one run of `main`. All its methods are called on the loop's thread.

    Attributes:
        run: number of the run, from 1.
    """

    def __init__(self, thread: LoopThread[Item, Message], run: int) -> None:
        self.run = run
        self._thread = thread
        self._room = asyncio.Event()
        self._message = asyncio.Event()

    def put_nowait(self, item: Item) -> bool:
        """Hand over an item to the task, if there is room; return whether there was."""
        return self._thread._offer(item, None)

    async def put(self, item: Item) -> None:
        """Hand over an item to the task; waits for room."""
        while not self._thread._offer(item, self._room):
            await self._room.wait()

    def get_nowait(self) -> Message | None:
        """Return the next message of the task; None when there is none."""
        return self._thread._poll(None)

    async def get(self) -> Message:
        """Return the next message of the task; waits for it. Several coroutines may wait, each message reaches one of them."""
        while (message := self._thread._poll(self._message)) is None:
            await self._message.wait()
        return message

    def report(self, error: BaseException) -> None:
        """Report an error of a run that continues to the task."""
        self._thread._post_report(error)


Main = Callable[[LoopLink[Item, Message]], Awaitable[None]]


class LoopThread(Generic[Item, Message]):
    """A loop and its thread. All methods are called by the task's thread; see the module for the rest.

    Args:
        main: runs until it is cancelled, or has no more to do.
        executor: of the task's context; None outside of a running topology: the task has to ask then.
        report: called on the task's thread with what `main` has raised, and with what its coroutines have reported.
        most_items: items that wait for the task.
        most_messages: messages that wait for the loop.
        name: of the thread.
        pause_s: before `main` is called again for the first time after it has raised.

    Raises:
        UserError: a limit is below 1.
    """

    def __init__(
        self,
        main: Main[Item, Message],
        executor: Executor | None,
        report: Callable[[BaseException], object],
        *,
        most_items: int = 1000,
        most_messages: int = 1000,
        name: str = "topo-loop",
        pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        if most_items < 1 or most_messages < 1:
            raise UserError(f"a loop's queues need room for one at least; got {most_items} items, {most_messages} messages")
        self._main, self._executor, self._report = main, executor, report
        self._most_items, self._most_messages = most_items, most_messages
        self._name, self._first_pause_s = name, pause_s
        self._state = LoopThreadState.NEW
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._messages: deque[Message] = deque()
        self._is_mail_posted = False
        """A mail of this thread waits in the task's mailbox, and will see all items."""
        self._has_progressed = False
        """An item was handed over in this run."""
        self._waits_for_room: asyncio.Event | None = None
        self._waits_for_message: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: asyncio.Task[None] | None = None
        self._unreported: deque[BaseException] = deque()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the task's side -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> LoopThreadState:
        """Whether it runs. CLOSED too when `main` has returned."""
        return self._state

    @property
    def items(self) -> int:
        """How many items wait for the task."""
        return len(self._items)

    def start(self) -> None:
        """Start the thread.

        Raises:
            TopoInternalError: it was started before.
        """
        if self._state is not LoopThreadState.NEW:
            raise TopoInternalError(f"a loop's thread was started twice; it is {self._state.value}")
        self._state = LoopThreadState.RUNNING
        self._thread = threading.Thread(target=self._turn, name=self._name, daemon=True)
        self._thread.start()

    def take(self, most: int | None = None) -> list[Item]:
        """Return the next items, at most that many; an empty list when there are none. Reports waiting errors first."""
        self._report_errors()
        items = self._items
        with self._lock:
            count = len(items) if most is None else min(most, len(items))
            taken = [items.popleft() for _ in range(count)]
            wake, self._waits_for_room = (self._waits_for_room, None) if taken else (None, self._waits_for_room)
        if wake is not None:
            self._wake(wake)
        return taken

    def send(self, message: Message) -> bool:
        """Hand over a message to the loop, if there is room and a run; return whether it was taken."""
        with self._lock:
            if self._run is None or len(self._messages) >= self._most_messages:
                return False
            self._messages.append(message)
            wake, self._waits_for_message = self._waits_for_message, None
        if wake is not None:
            self._wake(wake)
        return True

    def call(self, action: Callable[[], object]) -> bool:
        """Have an action run on the loop's thread, behind those before; return False when there is no loop to run it."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(action)
        except RuntimeError:
            # The loop was closed meanwhile.
            return False
        return True

    def close(self, wait_s: float = CLOSE_S) -> bool:
        """Cancel `main`, and wait for the thread; return whether it has ended in that time.

        It is a daemon, and ends with the process in any case. It may be called again, and before `start`.
        """
        self._state = LoopThreadState.CLOSED
        self._closing.set()
        self._cancel()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(wait_s)
            return not self._thread.is_alive()
        return True

    def _cancel(self) -> None:
        with self._lock:
            loop, run = self._loop, self._run
        if loop is not None and run is not None:
            self.call(run.cancel)

    def _wake(self, event: asyncio.Event) -> None:
        self.call(event.set)

    def _report_errors(self) -> None:
        while self._unreported:
            self._report(self._unreported.popleft())

    def _on_mail(self) -> None:
        self._is_mail_posted = False
        self._report_errors()

    # -- the loop's side -------------------------------------------------------------------------------------------------

    def _offer(self, item: Item, waits: asyncio.Event | None) -> bool:
        """Append an item if there is room; otherwise have `waits` set when there is."""
        with self._lock:
            if len(self._items) >= self._most_items:
                if waits is not None:
                    waits.clear()
                    self._waits_for_room = waits
                return False
            self._items.append(item)
        self._has_progressed = True
        self._post_mail()
        return True

    def _poll(self, waits: asyncio.Event | None) -> Message | None:
        """Take a message if there is one; otherwise have `waits` set when there is."""
        with self._lock:
            if self._messages:
                return self._messages.popleft()
            if waits is not None:
                waits.clear()
                self._waits_for_message = waits
            return None

    def _post_report(self, error: BaseException) -> None:
        self._unreported.append(error)
        self._post_mail()

    def _post_mail(self) -> None:
        if self._executor is None or self._is_mail_posted:
            return
        # Set before the mail is posted: it may run at once.
        self._is_mail_posted = True
        try:
            self._executor.execute(self._on_mail, f"{self._name} has items")
        except TopoError:
            # The task has ended: so does this thread.
            self._closing.set()
            self._cancel()

    def _turn(self) -> None:
        number, pause_s = 0, self._first_pause_s
        while not self._closing.is_set():
            number += 1
            self._has_progressed = False
            try:
                self._run_once(number)
            except BaseException as error:
                # Also a SystemExit, which would end this thread alone, and a cancellation that nothing has asked for.
                if self._closing.is_set():
                    break
                self._post_report(error)
            else:
                break
            pause_s = self._first_pause_s if self._has_progressed else pause_s
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._state = LoopThreadState.CLOSED

    def _run_once(self, number: int) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.set_exception_handler(self._on_lost_exception)
            try:
                runner.run(self._main_run(loop, number))
            finally:
                with self._lock:
                    self._loop = self._run = None
                    self._waits_for_room = self._waits_for_message = None
                    self._messages.clear()

    async def _main_run(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        link = LoopLink(self, number)
        with self._lock:
            self._loop, self._run = loop, asyncio.current_task()
        if not self._closing.is_set():
            await self._main(link)

    def _on_lost_exception(self, _loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        """Report what a coroutine has raised that no other awaits, and what a callback has raised."""
        error = about.get("exception")
        self._post_report(error if isinstance(error, BaseException) else RuntimeError(str(about.get("message"))))
