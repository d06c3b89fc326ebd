"""A profile of tasks: a timer signal interrupts the tasks' own thread, and its handler notes the stack.

A thread that looks from outside gets the interpreter where the task gives it away, so its shares are skewed. A signal that comes
within a call into C waits for its end; each sample therefore counts for the time since the one before.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from topo.errors import UserError
from topo.ids import TaskId
from topo.wire import control

MOST_STACKS = 2000
DEEPEST = 200
_CLOCKS: dict[str, tuple[int, signal.Signals, Callable[[], float]]] = {
    "wall": (signal.ITIMER_REAL, signal.SIGALRM, time.monotonic),
    "cpu": (signal.ITIMER_PROF, signal.SIGPROF, time.process_time),
}

SampledPlace = tuple[Any, int]
"""A code object, and a line of it; 0 where lines are not asked for."""


class Sampler:
    """Samples the tasks of a worker. To be made, begun and ended on the tasks' thread.

    Args:
        task_at_work: returns the task whose code runs, None between tasks.
    """

    def __init__(self, task_at_work: Callable[[], TaskId | None]) -> None:
        self._task_at_work = task_at_work
        self._is_on = False

    def begin(self, message: control.Observe) -> Profile:
        """Begin a profile: `spec` has `rate`, samples a second, `clock`, "wall" or "cpu", and `lines`.

        Raises:
            UserError: another profile is under way here, or user code uses the signal.
        """
        timer, signum, clock = _CLOCKS[message.spec["clock"]]
        if self._is_on:
            raise UserError("another profile of this worker is under way; wait for its end")
        if signal.getsignal(signum) is not signal.SIG_DFL or signal.getitimer(timer)[0]:
            raise UserError(f"code of this topology uses {signum.name} itself, which a profile by {message.spec['clock']} needs")
        self._is_on = True
        profile = Profile(message, clock, self._task_at_work, lambda: self._stop(timer, signum))
        signal.signal(signum, profile.on_signal)
        # System calls of user code that can be continued are; those that cannot, Python repeats.
        signal.siginterrupt(signum, False)
        signal.setitimer(timer, profile.every_s, profile.every_s)
        return profile

    def _stop(self, timer: int, signum: signal.Signals) -> None:
        signal.setitimer(timer, 0.0)
        # A signal that is under way would end the process if its default action came back first.
        signal.signal(signum, signal.SIG_IGN)
        signal.signal(signum, signal.SIG_DFL)
        self._is_on = False


class Profile:
    """One profile under way.

    Attributes:
        every_s: time between two samples.
    """

    def __init__(
        self,
        message: control.Observe,
        clock: Callable[[], float],
        task_at_work: Callable[[], TaskId | None],
        stop: Callable[[], None],
    ) -> None:
        self.every_s = 1.0 / message.spec["rate"]
        self._id = message.id
        self._tasks = frozenset(message.tasks)
        self._has_lines = bool(message.spec.get("lines"))
        self._clock = clock
        self._task_at_work = task_at_work
        self._stop = stop
        self._at = clock()
        self._stacks: Counter[tuple[TaskId, tuple[SampledPlace, ...]]] = Counter()
        self._seen = self._dropped = 0

    def on_signal(self, _signum: int, frame: FrameType | None) -> None:
        """Note the stack, if one of the observed tasks is at work."""
        now = self._clock()
        count = max(1, round((now - self._at) / self.every_s))
        self._at = now
        self._seen += count
        task = self._task_at_work()
        if task not in self._tasks or task is None:
            return
        places: list[SampledPlace] = []
        has_lines = self._has_lines
        while frame is not None and len(places) < DEEPEST:
            places.append((frame.f_code, frame.f_lineno if has_lines else 0))
            frame = frame.f_back
        key = task, tuple(places)
        if key in self._stacks or len(self._stacks) < MOST_STACKS:
            self._stacks[key] += count
        else:
            self._dropped += count

    def reports(self) -> list[control.Observed]:
        """Return the stacks since the last call, outermost function first."""
        # One statement each: a signal may come between two.
        stacks, self._stacks = self._stacks, Counter()
        seen, self._seen = self._seen, 0
        dropped, self._dropped = self._dropped, 0
        if not seen:
            return []
        by_task: dict[TaskId, list[Mapping[str, Any]]] = {}
        for (task, places), count in stacks.items():
            by_task.setdefault(task, []).append({"frames": [_text(*one) for one in reversed(places)], "count": count})
        first = min(self._tasks)
        return [
            control.Observed(
                self._id,
                task,
                rows=[dict(row) for row in by_task.get(task, ())],
                seen=seen if task == first else 0,
                matched=sum(row["count"] for row in by_task.get(task, ())),
                dropped=dropped if task == first else 0,
            )
            for task in sorted({first, *by_task})
        ]

    def end(self) -> None:
        """Take no more samples."""
        self._stop()


def _text(code: Any, line: int) -> str:
    return f"{code.co_qualname} ({code.co_filename}:{line or code.co_firstlineno})"
