"""Errors that no tuple causes: the process has run out of a resource, and a new process has it again."""

from __future__ import annotations

from errno import EMFILE

_NO_THREAD = "can't start new thread"


def is_process_fault(error: BaseException) -> bool:
    """Whether memory, threads or open files have run out in this process. Looks at the cause of an error as well."""
    for one in (error, error.__cause__):
        if isinstance(one, MemoryError) or (isinstance(one, OSError) and one.errno == EMFILE):
            return True
        if isinstance(one, RuntimeError) and _NO_THREAD in str(one):
            return True
    return False
