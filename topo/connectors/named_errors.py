"""Errors of disks and of clients of stores, which do not name their file or folder: those of stores say "Forbidden" alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from topo.errors import TopoEnvironmentError, TopoError


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Have an error leave the block as a TopoEnvironmentError that begins with `what`, such as "file 'a' cannot be read".

    Errors of topo, and MemoryError, leave it unchanged.
    """
    try:
        yield
    except (TopoError, MemoryError):
        raise
    except Exception as error:
        raise TopoEnvironmentError(f"{what}: {str(error) or type(error).__name__}") from error
