"""Waits for a record on a thread while the task has nothing to read, and wakes the task: nothing is polled meanwhile.

| state   | meaning                                          | leaves it by                       |
| ------- | ------------------------------------------------ | ---------------------------------- |
| IDLE    | the task may call `consume`                      | `begin`                            |
| WAITING | the thread is in `consume`, and the task is not  | a record has come, or an error     |
| DONE    | the thread has a record for the task             | `take`                             |

Only one of both is in `consume`, so records reach the task in their order. When the assignment of the client changes during a
wait, its record may be of before: `is_stale` shows that, and the task has the client read that partition from its position.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

SLICE_S = 0.2
"""How long a wait lasts at most before the thread looks whether it is to end."""
CLOSE_S = 5.0
"""How long a client may take to be closed."""


class WaitState(Enum):
    """See above."""

    IDLE = "idle"
    WAITING = "waiting"
    DONE = "done"


class IdleWait:
    """The waits of one reader.

    Args:
        consume: returns at most `count` records within a time: `consume(count, seconds)`.
        wake: has the task call `take` soon; called on the thread.
        between: called on the thread behind each slice: the client has no turn for other threads until the wait is over.

    Attributes:
        is_stale: whether the assignment has changed since the wait began.
    """

    def __init__(
        self,
        consume: Callable[[int, float], Sequence[Any]],
        wake: Callable[[], None],
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self._consume = consume
        self._wake = wake
        self._between = between
        self._state = WaitState.IDLE
        self._is_closed = False
        self._is_interrupted = False
        self._begun, self._left = threading.Event(), threading.Event()
        self._found: Sequence[Any] | Exception = ()
        self._thread: threading.Thread | None = None
        self.is_stale = False

    @property
    def is_waiting(self) -> bool:
        """Whether the thread may be in `consume`: then the task must not be."""
        return self._state is WaitState.WAITING

    def begin(self) -> None:
        """Wait from here on. Called in the state IDLE."""
        if self._state is not WaitState.IDLE:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kafka-wait", daemon=True)
            self._thread.start()
        self.is_stale = self._is_interrupted = False
        self._left.clear()
        self._state = WaitState.WAITING
        self._begun.set()

    def interrupt(self) -> None:
        """End a wait, which is stale then, within a slice: the client changes no assignment while a thread is in `consume`."""
        self.is_stale = True
        if self._state is WaitState.WAITING:
            self._is_interrupted = True
            self._left.wait()

    def take(self) -> Sequence[Any]:
        """Return the records of a wait that is over, once; raises its error."""
        if self._state is not WaitState.DONE:
            return ()
        self._state = WaitState.IDLE
        found, self._found = self._found, ()
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """End the thread, and wait for it."""
        self._is_closed = True
        self._begun.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._begun.wait()
            self._begun.clear()
            found: Sequence[Any] | Exception = ()
            while not (found or self._is_closed or self._is_interrupted):
                try:
                    found = self._consume(1, SLICE_S)
                    self._between()
                except Exception as error:
                    found = error
            if self._is_closed:
                self._left.set()
                return
            self._found = found
            self._state = WaitState.DONE
            self._left.set()
            self._wake()


def close_client(consumer: Any) -> None:
    """Close a client. It waits until a broker has answered its commits, for ever if none does: then it is left."""
    closing = threading.Thread(target=consumer.close, name="kafka-close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)
