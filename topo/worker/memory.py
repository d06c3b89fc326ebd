"""Whether this process is short of memory, or has only asked for too much at once."""

from __future__ import annotations

import mmap

from topo.observability.process_figures import rss_bytes

_LEAST_BYTES = 64 << 20


def is_memory_short() -> bool:
    """Whether the process cannot get half as much memory again as it has.

    Asked after a MemoryError: a process that has filled its memory fails with the next tuples as well, and a new one does better.
    In a process with room the tuple itself asked for more than fits, so it alone fails.
    """
    try:
        # Untouched pages take no memory.
        mmap.mmap(-1, max(_LEAST_BYTES, _resident_bytes() // 2)).close()
    except (OSError, MemoryError):
        return True
    return False


def _resident_bytes() -> int:
    try:
        return rss_bytes()
    except (OSError, ValueError, IndexError):
        return 0
