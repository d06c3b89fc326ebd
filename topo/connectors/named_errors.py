"""Errors of disks and of clients of stores, which do not name their file or folder: those of stores say "Forbidden" alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from topo.errors import TopoEnvironmentError, TopoError

READING, REMOVING, WRITING = "s3:GetObject", "s3:DeleteObject", "s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket"
LISTING = "s3:ListBucket"
MOVING = f"{WRITING} of both folders"
"""Rights, by their names in S3."""


@contextmanager
def naming(what: str, rights: str) -> Iterator[None]:
    """Have an error leave the block as a TopoEnvironmentError that begins with `what`, such as "file 'a' cannot be read".

    Where a store has refused its user, the error ends with the rights that it needs. Errors of topo, and MemoryError, leave the
    block unchanged.
    """
    try:
        yield
    except (TopoError, MemoryError):
        raise
    except Exception as error:
        # Those of disks have a number.
        is_refused = isinstance(error, PermissionError) and error.errno is None
        advice = f"; grant the user of the store the right to it ({rights} in S3), or correct its keys" if is_refused else ""
        reason = str(error).rstrip(".") if is_refused else str(error)
        raise TopoEnvironmentError(f"{what}: {reason or type(error).__name__}{advice}") from error
