"""The entry point of the `topo` script. Ctrl-C is quiet, also while modules are imported: nothing has begun then.

The command, `cli/bin/topo`, has held Ctrl-C back since before Python began; it arrives as soon as it is handled here. By
`python -m topo_cli`, and where `env` cannot hold signals back, the first 20 ms are Python's own, and it prints a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from topo_cli.standard_streams import open_closed_streams

if TYPE_CHECKING:
    from topo.launch.spares import EarlySpares

_INTERRUPTED = 130
_IMPORTING = "<frozen importlib"


def _leave(_signum: int, _frame: FrameType | None) -> None:
    """End the process. A worker that is prepared ends with it."""
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def _end(signum: int, _frame: FrameType | None) -> None:
    os._exit(128 + signum)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; but within an import, which prints the exception, end the process."""
    at = frame
    while at is not None:
        if at.f_code.co_filename.startswith(_IMPORTING):
            _leave(signum, frame)
        at = at.f_back
    signal.default_int_handler(signum, frame)


def _handle(handler: signal.Handlers | object) -> None:
    """Handle Ctrl-C, unless it is ignored, as of a command that a script has put into the background."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]


_handle(_leave)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
if os.getpid() == 1:
    # Linux drops signals that the first process of a container does not handle, and a slow import would outlast the stop.
    signal.signal(signal.SIGTERM, _end)


def _early_spares(arguments: Sequence[str]) -> AbstractContextManager[EarlySpares | None]:
    """Start what makes the workers of `topo run` before this process imports the command: they import on another core."""
    if arguments[:1] != ["run"] or not {"-h", "--help"}.isdisjoint(arguments):
        return nullcontext()
    from topo_cli.foreign import foreign_topo

    if foreign_topo():
        return nullcontext()
    from topo.launch.spares import early_spares

    return early_spares()


def main() -> None:
    """Run the command line and exit."""
    try:
        # First of all: the pipes of a process that is started here would be taken for them.
        open_closed_streams()
        with _early_spares(sys.argv[1:]) as early:
            from topo_cli.main import main as run

            _handle(_interrupt)
            run(early=early)
    finally:
        # The interpreter's end is nothing to interrupt.
        _handle(signal.SIG_IGN)
