"""Kills at random, for tests that look at what a topology has published in spite of them.

`KILL_SECONDS=60` lengthens the time for which each of these tests kills, and `KILL_SEED=n` draws other kills.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.integration.support import Scene, Status, eventually, kill, words_of
from topo.launch.running import RunningTopology
from topo.master.outcome import Outcome
from topo.master_process.client import AnswerTimeout, Unreachable

SECONDS = float(os.environ.get("KILL_SECONDS", "6"))
SEED = int(os.environ.get("KILL_SEED", "5"))
KINDS = 3
"""The first three strikes: a worker, two, and all with the master."""
MARGIN = 2.0
"""A source that is paced for several times the seconds of kills does not end among them."""
SETTINGS = {
    "heartbeat": "100ms",
    "worker_timeout": "5s",
    "master_timeout": "20s",
    "restart_backoff": "50ms",
    "restart_backoff_max": "200ms",
    "checkpoint_interval": "200ms",
    "checkpoint_pause": "50ms",
}

_PACED = """

import time as _time
from pathlib import Path as _Path

_HURRY = _Path({hurry!r})

class {spout}({spout}):
    '''Is asked {rate} times a second, until the file "hurry" exists.'''

    _due = 0.0

    def next_tuple(self):
        if self._due is not None:
            now = _time.monotonic()
            if now < self._due and not _HURRY.exists():
                return
            self._due = None if _HURRY.exists() else max(self._due, now - 0.2) + 1 / {rate!r}
        super().next_tuple()
"""


def paced(scene: Scene, source: Path, spout: str, calls: float, more: str = "", lasting_s: float = SECONDS * MARGIN) -> str:
    """Write the topologies of a file once more, with a spout that takes its time: as long as there are kills, and no longer.

    Args:
        spout: the name under which the file knows the spout's class.
        calls: of its `next_tuple` for all of the input.
        more: what else the file is to define.
        lasting_s: seconds for which the input lasts if it is not hurried.

    Returns: the path of the file.
    """
    rate = calls / lasting_s
    text = source.read_text() + _PACED.format(hurry=str(scene.folder / "hurry"), spout=spout, rate=rate) + more
    path = scene.folder / source.name
    path.write_text(text)
    return str(path)


class Killer:
    """Kills processes of a topology: a worker, now and then two at once, now and then all of them with the master.

    Most of the time it waits for a checkpoint in between, so that there is state to continue from; at other times it does not,
    and strikes in the middle of a recovery.
    """

    def __init__(self, scene: Scene, running: RunningTopology) -> None:
        self.running = running
        self._scene = scene
        self._chance = random.Random(SEED)
        self._strikes = ["all", "two", "one"]
        self._counts: Counter[str] = Counter()
        self._of_terms: dict[int, Status] = {}
        self._complete = 0

    def kill_for_a_while(self, wants_more: Callable[[], bool] = lambda: False) -> Outcome:
        """Kill for as long as tests are to, and once in each way; let the topology end, and return how it did."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until or self._counts["strikes"] < KINDS or wants_more():
            if self._chance.random() < 0.7:
                self.running.wait_until(self._has_checkpoint, timeout_s=60, what=f"a checkpoint after {self}")
            else:
                time.sleep(self._chance.random() * 0.8)
            self.strike()
        self._scene.touch("hurry")
        return self.finish()

    def finish(self) -> Outcome:
        """Let the topology end, and return how it did."""
        outcome = self.running.wait(timeout_s=240)
        self._note(self.running.summary())
        return outcome

    def _has_checkpoint(self, status: Status) -> bool:
        self._note(status)
        return int(status["checkpoints"]["complete"]) > self._complete

    def _note(self, status: Status) -> None:
        self._of_terms[status["term"]] = {**(status["checkpoints"] or {}), "restarts": status["restarts"]}

    def strike(self, kind: str | None = None) -> bool:
        """Kill "one" worker, "two", the "master", or "all" with the master; without a kind the next one drawn.

        Returns whether something was killed.
        """
        with contextlib.suppress(Unreachable, AnswerTimeout):
            status = self.running.status()
            self._note(status)
            self._complete = status["checkpoints"]["complete"] if status["checkpoints"] else 0
            master, workers = status["master"]["pid"], [worker["pid"] for worker in status["workers"] if worker["pid"]]
            is_drawn = kind is None
            kind = kind or self._next_kind()
            victims = {"one": 1, "two": 2, "master": 0}.get(kind, len(workers))
            struck = sum(self._kill(pid) for pid in self._chance.sample(workers, min(victims, len(workers))))
            if kind in ("all", "master"):
                struck += self._kill(master)
                # What a process has locked is free when the last of its threads has ended.
                eventually(lambda: not self.running.folder.is_running())
                self.running = self._scene.resume(self.running.name)
                self._complete = 0
            if not struck:
                # A recovery was under way, in which no worker had a process.
                if is_drawn:
                    self._strikes.append(kind)
                return False
            self._counts["strikes"] += 1
            self._counts[kind] += 1
            self._counts["processes"] += struck
            return True
        return False

    def _next_kind(self) -> str:
        if not self._strikes:
            self._strikes = ["one"] * 5 + ["two"] * 2 + ["all"]
            self._chance.shuffle(self._strikes)
        return self._strikes.pop()

    def _kill(self, pid: int) -> bool:
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if any(str(self._scene.home) in word for word in words_of(psutil.Process(pid))):
                kill(pid, signal.SIGKILL)
                return True
        return False

    def counts(self) -> dict[str, Any]:
        """Return what happened: strikes by kind, workers killed, and over all masters' lives restores, checkpoints, restarts."""
        terms = self._of_terms.values()
        over_all = {name: sum(term.get(name, 0) for term in terms) for name in ("restores", "complete", "restarts")}
        return {"seed": SEED, **self._counts, "masters": len(self._of_terms), **over_all}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.counts().items())
