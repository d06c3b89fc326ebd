"""The entry point of the `topo` script. Ctrl-C is quiet, also while modules are imported: nothing has begun then.

The command, `cli/bin/topo`, has held Ctrl-C back since before Python began; it arrives as soon as it is handled here. By
`python -m topo_cli`, and where `env` cannot hold signals back, the first 20 ms are Python's own, and it prints a traceback.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_INTERRUPTED = 130
_IMPORTING = "<frozen importlib"


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; but within an import, which prints the exception, end the process."""
    at = frame
    while at is not None:
        if at.f_code.co_filename.startswith(_IMPORTING):
            os.write(2, b"interrupted\n")
            os._exit(_INTERRUPTED)
        at = at.f_back
    signal.default_int_handler(signum, frame)


def _handle(handler: signal.Handlers | object) -> None:
    """Handle Ctrl-C, unless it is ignored, as of a command that a script has put into the background."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]


_handle(_interrupt)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def main() -> None:
    """Run the command line and exit."""
    try:
        from topo_cli.main import main as run

        run()
    finally:
        # The interpreter's end is nothing to interrupt.
        _handle(signal.SIG_IGN)
