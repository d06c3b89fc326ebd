"""Ctrl-C, SIGTERM and SIGHUP as an operator's wishes."""

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

    SIGHUP, of a terminal that is closed, drains, too, unless it is ignored as under `nohup`; it is never the second one.

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
        if signum == signal.SIGHUP and received:
            return
        received.append(signum)
        asked.append(DrainAsked(drain_timeout_s) if len(received) == 1 else KillAsked())

    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    before = {signum: signal.signal(signum, end) for signum in {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} - ignored}
    try:
        yield asked
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
