"""The signals that ask a worker to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

_ENDING = (signal.SIGTERM, signal.SIGINT)


def handle_end_signals(stop: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT call `stop` in this process, and end those that user code forks, as in any script.

    `multiprocessing.Pool` ends its processes by SIGTERM, and waits for them.
    """
    for signum in _ENDING:
        signal.signal(signum, lambda *_: stop())
    # Python forgets a signal that reaches a new process before it may change the handlers: the signal has to wait until then.
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_restore)


def _block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _restore() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _unblock()
