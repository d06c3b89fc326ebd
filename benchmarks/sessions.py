"""Session windows: processor time of one element, by the number of open sessions of its key.

    python benchmarks/sessions.py [--elements 5000] [--json]

Every element extends one of the key's open sessions, drawn at random; nothing fires. Prints microseconds per element, the best of
three rounds, without and with a log that undoes failed calls (as `exactly_once` has it).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any

from topo.api import aggregates
from topo.api.windows import EventTimeSessionWindows
from topo.operators.base import OperatorContext
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.state.undo_log import UndoLog
from topo.operators.time.clock import ManualProcessingTime
from topo.operators.windows.builder import build_window_operator

APART_MS = 10_000_000


class Nowhere:
    def emit(self, value: Any, timestamp: int | None) -> None: ...
    def side(self, stream: str, value: Any, timestamp: int | None) -> None: ...
    def watermark(self, timestamp: int) -> None: ...
    def mark_idle(self) -> None: ...
    def mark_active(self) -> None: ...


def microseconds(sessions: int, elements: int, *, can_undo: bool) -> float:
    operator = build_window_operator(EventTimeSessionWindows.with_gap("1s"), aggregate=aggregates.Count())
    log = UndoLog() if can_undo else None
    operator.setup(OperatorContext(Nowhere(), ManualProcessingTime(), MailboxExecutor(TaskMailbox()), undo_log=log))
    operator.open()
    reached = [start * APART_MS for start in range(sessions)]
    for timestamp in reached:
        operator.process_element("key", 1, timestamp)
    timestamps, draw = [], random.Random(1)
    for _ in range(elements):
        session = draw.randrange(sessions)
        reached[session] += 5
        timestamps.append(reached[session])
    began = time.process_time()
    for timestamp in timestamps:
        operator.process_element("key", 1, timestamp)
    took = time.process_time() - began
    assert operator.state.entries_of("__window-contents") == sessions
    return took / elements * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=5_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result: dict[int, dict[str, float]] = {}
    for sessions in (1, 10, 100, 1_000, 10_000):
        plain, undoing = (
            min(microseconds(sessions, given.elements, can_undo=can_undo) for _ in range(3)) for can_undo in (False, True)
        )
        result[sessions] = {"us_an_element": plain, "us_an_element_with_undo": undoing}
        if not given.json:
            print(f"{sessions:6,} open sessions of the key: {plain:5.1f} us an element, {undoing:5.1f} us with undo")
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
