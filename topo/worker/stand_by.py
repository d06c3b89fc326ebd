"""A process that waits, with topo imported, until it is needed: it becomes a worker, or forks workers and waits on.

The launcher writes orders to its stdin and reads answers from its stdout: `READY` once all is imported, then for each order to
fork the id of the worker, or `FAILED`. Both are lines. The worker begins when the launcher has sent it `BEGIN`. When the
launcher's process ends, however it does, stdin ends, and so does this process. Of the user's code it imports and runs none: the
workers do.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import sysconfig
import time
from contextlib import suppress
from typing import NamedTuple

READY = b"ready\n"
FAILED = b"0\n"
BEGIN = signal.SIGUSR1
CAN_FORK = sys.platform == "linux"
"""Elsewhere the launcher cannot adopt a worker that another process has forked."""
_ADOPTION_POLL_S = 0.0005
_BEGIN_WITHIN_S = 30.0
_BEGIN_POLL_S = 0.1


class WorkerOrder(NamedTuple):
    """A line from the launcher.

    Attributes:
        start_file: of the worker.
        output: the file that the worker's stdout and stderr go to.
        launcher: the process that adopts a forked worker; 0: this process becomes the worker.
    """

    start_file: str
    output: str
    launcher: int = 0

    def line(self) -> bytes:
        return json.dumps(self).encode() + b"\n"


def stand_by() -> str:
    """Carry out orders until this process is a worker.

    Returns:
        The start file.

    Raises:
        SystemExit: the launcher has ended, or wants no more workers.
    """
    # Imported here, since hosts of a Spark cluster, where no process stands by, may lack it.
    import setproctitle

    # With all that workers import later, and what only some tasks need: it cannot be known yet which task a worker is to run.
    for module in ("ctypes", "topo.plan.validation", "topo.task.operator_factory"):
        importlib.import_module(module)
    sysconfig.get_paths()
    # The collector writes to each object that it looks at, and so would copy the pages that forked workers share.
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError):
        # A launcher that does not have workers forked waits for no answer.
        _answer(READY)
    while True:
        line = sys.stdin.buffer.readline()
        if not line.endswith(b"\n"):
            raise SystemExit(0)
        order = WorkerOrder(*json.loads(line))
        if order.launcher:
            if not _fork(order.launcher):
                continue
            # In `ps` it looks as if it was not forked. STAND_BY and the folder behind it are the last words.
            setproctitle.setproctitle(" ".join([*sys.orig_argv[:-2], order.start_file]))
            setproctitle.setthreadtitle(os.path.basename(sys.executable))
        for standard, path in enumerate((os.devnull, order.output, order.output)):
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, standard)
            os.close(opened)
        return order.start_file


def _fork(launcher: int) -> bool:
    """Fork a worker; return whether this process is the worker.

    The process between this one and the worker ends at once, so that the launcher adopts the worker: only a parent learns how a
    process ends, and can have it end with the parent.
    """
    between = os.fork()
    if between:
        _, status = os.waitpid(between, 0)
        if status:
            _answer(FAILED)
        return False
    try:
        between, worker = os.getpid(), os.fork()
    except OSError:
        os._exit(1)
    if worker:
        os._exit(0)
    os.setsid()
    while (parent := os.getppid()) == between:
        time.sleep(_ADOPTION_POLL_S)
    if parent != launcher:
        _answer(FAILED)
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {BEGIN})
    _answer(b"%d\n" % os.getpid())
    until = time.monotonic() + _BEGIN_WITHIN_S
    while signal.sigtimedwait({BEGIN}, _BEGIN_POLL_S) is None:
        if os.getppid() != launcher or time.monotonic() > until:
            # The launcher has ended, or it has given up waiting for the answer and started the worker in another way.
            os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {BEGIN})
    return True


def _answer(line: bytes) -> None:
    os.write(sys.stdout.fileno(), line)
