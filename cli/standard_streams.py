"""Standard streams that are closed."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Point standard streams that are closed, as by `>&-`, at /dev/null: the next file or socket would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
