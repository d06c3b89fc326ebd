"""Ctrl-C and SIGTERM as an operator's wishes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from topo.master.events import DrainAsked, KillAsked, MasterEvent


@contextlib.contextmanager
def ending_on_signals(drain_timeout_s: float) -> Iterator[list[MasterEvent]]:
    """Gather what signals ask of a master: the first one drains its topology, the second kills it.

    Entered before the master exists, so that a signal while it comes up still ends the topology. In another thread than
    the main one, which alone receives signals, nothing is ever asked.

    Yields:
        The list that wishes are appended to; `MasterShell` takes it.
    """
    asked: list[MasterEvent] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    received: list[int] = []

    def end(signum: int, _frame: FrameType | None) -> None:
        received.append(signum)
        asked.append(DrainAsked(drain_timeout_s) if len(received) == 1 else KillAsked())

    before = {signum: signal.signal(signum, end) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
