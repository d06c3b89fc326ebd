"""Files of lines that several processes after each other append to, each of which may be killed at any step.

Staged lines are moved into the output so that every step can be repeated:

    rename `staged` to `staged.at.N`, N being the size of the output; sync the folder    N is decided, once
    write all of it to the output, from byte N on; sync the output                       the same bytes at the same place
    remove `staged.at.N`                                                                 done

A repetition finds either name and continues, or neither and has nothing to do.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from topo.durable import sync_folder
from topo.errors import TopoEnvironmentError

_TAIL_BYTES = 1 << 16
_COPY_BYTES = 1 << 20
_MARK = ".at."


def write_at(file: int, data: bytes, offset: int | None = None) -> None:
    """Write all of it: at an offset, or where the file's position is."""
    rest = memoryview(data)
    while rest:
        written = os.write(file, rest) if offset is None else os.pwrite(file, rest, offset)
        rest = rest[written:]
        if offset is not None:
            offset += written


def mend(file: int) -> int:
    """Make the file end with a whole line, and return its size: without an object of JSON that is torn, behind a newline else."""
    size = os.fstat(file).st_size
    start = size
    tail = b""
    while start > 0 and b"\n" not in tail:
        step = min(_TAIL_BYTES, start)
        start -= step
        tail = os.pread(file, step, start) + tail
    torn = tail[tail.rfind(b"\n") + 1 :]
    if not torn:
        return size
    # A line of the sink begins so, and a crash of the machine leaves zeros. Another program's line is not the sink's to remove.
    if torn[:1] in b"{\0":
        try:
            json.loads(torn)
        except ValueError:
            os.ftruncate(file, size - len(torn))
            return size - len(torn)
    write_at(file, b"\n", size)
    return size + 1


def size_of(path: Path) -> int:
    """Return the size of a file, 0 when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def move_lines(staged: Path, length: int, output: Path) -> bool:
    """Append a staged file to the output, or complete doing so. Returns False when there is no such file (any more).

    The output must end with a whole line, and no other process may append to it meanwhile.

    Raises:
        TopoEnvironmentError: the staged file has not the length that was synced.
        OSError: a step has failed; repeat it.
    """
    found = _marked(staged, output)
    if found is None:
        return False
    marked, start = found
    source = os.open(marked, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(source).st_size
        if size != length:
            raise TopoEnvironmentError(f"{marked} has {size} bytes; {length} were staged for {output}")
        target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # Also when the name was found: the process that has chosen it may have died before this.
            sync_folder(marked.parent)
            done = 0
            while piece := os.pread(source, _COPY_BYTES, done):
                write_at(target, piece, start + done)
                done += len(piece)
            os.fsync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)
    marked.unlink(missing_ok=True)
    return True


def remove_staged(staged: Path) -> None:
    """Remove a staged file, under whichever name."""
    staged.unlink(missing_ok=True)
    for marked in _marks_of(staged):
        marked.unlink(missing_ok=True)


def _marked(staged: Path, output: Path) -> tuple[Path, int] | None:
    """Rename the staged file to the name that records its offset in the output; return it and that offset."""
    size = size_of(output)
    marked = staged.with_name(f"{staged.name}{_MARK}{size}")
    try:
        staged.rename(marked)
    except FileNotFoundError:
        marks = _marks_of(staged)
        if not marks:
            return None
        marked = marks[0]
        start = int(marked.name.rpartition(_MARK)[2])
        if start <= size:
            return marked, start
        # An output that has become shorter is another one, which has none of these lines.
        marked = marked.rename(staged.with_name(f"{staged.name}{_MARK}{size}"))
    return marked, size


def _marks_of(staged: Path) -> list[Path]:
    if not staged.parent.is_dir():
        return []
    return [staged.with_name(name) for name in os.listdir(staged.parent) if name.startswith(staged.name + _MARK)]
