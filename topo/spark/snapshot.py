"""The list of a source's parquet files: fixed once, since positions count them.

A snapshot is a file `snapshot.json` in a folder that all tasks of the source see. It is written whole and once: for files that
are read where they lie by the first task that comes, for staged ones by the process that stages them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from topo.durable import sync_folder
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError

NAME = "snapshot.json"


@dataclass(frozen=True, slots=True)
class SparkSnapshot:
    """The files of a source, in the order in which they are read.

    Attributes:
        source: what they are the rows of, as a digest.
        files: path, absolute or below the snapshot's folder, and size in bytes of each.
    """

    source: str
    files: tuple[tuple[str, int], ...]


def list_parquet(paths: Sequence[str], source: str) -> SparkSnapshot:
    """Return the parquet files below some paths: all files but those that Spark passes over.

    Their names, or those of their folders, begin with a dot, or with _ and are not those of a partition.

    Raises:
        NotFoundError: a path does not exist.
    """
    found: list[tuple[str, int]] = []
    for path in paths:
        if not os.path.exists(path):
            raise NotFoundError(f"SparkSpout: there is no file or folder {path!r}.")
        found += [(file, os.stat(file).st_size) for file in sorted(_files(os.path.abspath(path)))]
    return SparkSnapshot(source, tuple(found))


def has_partitions(path: str) -> bool:
    """Whether columns are in the names of folders, such as `origin=JFK/`: only Spark reads those as it has written them."""
    for _, subfolders, _ in os.walk(path):
        subfolders[:] = [name for name in subfolders if not _is_hidden(name)]
        if any("=" in name for name in subfolders):
            return True
    return False


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = [name for name in subfolders if not _is_hidden(name)]
        found += [os.path.join(folder, name) for name in names if not _is_hidden(name)]
    return found


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def read_snapshot(folder: Path, source: str) -> SparkSnapshot | None:
    """Return the snapshot of a folder; None when there is none yet.

    Raises:
        ConfigError: the folder holds the rows of another source.
        TopoEnvironmentError: it cannot be read.
    """
    try:
        found = json.loads((folder / NAME).read_bytes())
        snapshot = SparkSnapshot(found["source"], tuple((str(path), int(size)) for path, size in found["files"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TopoEnvironmentError(f"{folder / NAME} cannot be read ({error}); remove {folder} to have it made again") from error
    if snapshot.source != source:
        raise ConfigError(f"SparkSpout: {folder} holds the rows of another source; remove it, or choose another staging folder")
    return snapshot


def write_snapshot(folder: Path, snapshot: SparkSnapshot) -> SparkSnapshot:
    """Write a snapshot durably unless there is one; return the stored one.

    Raises:
        TopoEnvironmentError: the folder cannot be written to.
        ConfigError: as `read_snapshot`.
    """
    data = json.dumps({"source": snapshot.source, "files": snapshot.files}).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".snapshot-", dir=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(temporary, folder / NAME)
        finally:
            os.unlink(temporary)
        sync_folder(folder)
    except OSError as error:
        raise TopoEnvironmentError(f"cannot write {folder / NAME}: {error.strerror}") from error
    return read_snapshot(folder, snapshot.source) or snapshot
