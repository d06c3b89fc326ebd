"""Batches of rows into a folder of parquet files: all of a batch is durable before any of it shows, and no file shows half.

    PATH/part-WRITER.TASK-BATCH.parquet               what readers see; with partitions below column=value/
    PATH/_topo/schema.arrow                           the schema that all writers hold to
    PATH/_topo/WRITER.TASK.LIFE/BATCH.N.tmp           files of a batch that is not committed
    PATH/_topo/WRITER.TASK.LIFE/commit                of the batch that is being committed: which file goes where

Spark, pyarrow and Hive pass over names that begin with "_". The steps of a batch, each of which may be the last:

    prepare   write and sync every file below _topo; sync that folder
    commit    if there are several files: write `commit`, sync it, rename it into place, sync the folder
              rename every file to where it belongs; sync the folders that have got one

A batch of one file is committed by its rename. One of several files is committed by its record: from then on it is finished,
if need be by a later process. A batch without a record is undone. A life is one process's; a used name is not used again,
so a process that was thought dead can repeat rows but overwrite none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topo.durable import make_folder, sync_folder
from topo.errors import TopoEnvironmentError

HIDDEN = "_topo"
_RECORD = "commit"
_FOLDER = re.compile(r"(?P<writer>.+)\.(?P<task>\d{4,})\.(?P<life>[0-9a-f]+)")


class BatchLost(TopoEnvironmentError):
    """Files of a batch were removed by somebody before the commit. The batch must be prepared again."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch that is durable and that no reader sees. Plain data: it may be stored, and committed by another process.

    Attributes:
        name: the batch's, unique for its writer and task.
        files: for each file its place now and its place when committed, both relative to the dataset.
        rows: how many rows they hold.
    """

    name: str
    files: tuple[tuple[str, str], ...]
    rows: int


class ParquetCommits:
    """One task's way to write a dataset. Every method may be repeated after it has raised, or by the task's next life.

    All methods raise OSError when the file system refuses.
    """

    def __init__(self, path: Path, writer: str, task: int, life: str, compression: str = "snappy") -> None:
        """Keep the names.

        Args:
            path: the dataset's folder.
            writer: who writes, such as "topology.component"; other writers may write to the same folder.
            task: number of the task.
            life: hexadecimal digits that no other process has.
            compression: of parquet.
        """
        self._path = path
        self._writer, self._task = writer, task
        self._own = Path(HIDDEN, f"{writer}.{task:04d}.{life}")
        self._compression = compression

    def prepare(self, name: str, tables: Mapping[str, pa.Table]) -> Staged:
        """Write the files of a batch where no reader looks, durably. A failure leaves none of them.

        Args:
            name: the batch's, of a-z, A-Z, 0-9, '-' and '_'.
            tables: what goes into each partition, by folder relative to the dataset ("" without partitions).
        """
        make_folder(self._path / self._own)
        final = f"part-{self._writer}.{self._task:04d}-{name}.parquet"
        files = tuple((str(self._own / f"{name}.{number}.tmp"), str(Path(folder, final))) for number, folder in enumerate(tables))
        staged = Staged(name, files, sum(table.num_rows for table in tables.values()))
        try:
            for (temporary, _), table in zip(files, tables.values(), strict=True):
                self._write_parquet(temporary, table)
            sync_folder(self._path / self._own)
        except BaseException:
            with suppress(OSError):
                self.abort(staged)
            raise
        return staged

    def commit(self, staged: Staged) -> None:
        """Show a batch to readers, durably; steps that are done already are skipped.

        Raises:
            BatchLost: a file is neither where it was staged nor where it belongs.
        """
        if len(staged.files) > 1 and self._is_waiting(staged):
            self._write_record(staged)
        self._show(staged)

    def abort(self, staged: Staged) -> None:
        """Remove the files of a batch whose commit has not begun."""
        for temporary, _ in staged.files:
            with suppress(FileNotFoundError):
                os.unlink(self._path / temporary)

    def recover(self, parallelism: int) -> int:
        """Finish or undo what earlier lives of this task have left, and return how many batches were finished.

        Args:
            parallelism: tasks of the writer; what tasks beyond them have left is shared out.
        """
        finished = 0
        with suppress(FileNotFoundError):
            for folder in sorted(os.listdir(self._path / HIDDEN)):
                match = _FOLDER.fullmatch(folder)
                own = match and match["writer"] == self._writer and int(match["task"]) % parallelism == self._task
                if own and folder != self._own.name:
                    finished += self._settle(Path(HIDDEN, folder))
        return finished

    def keep_schema(self, schema: pa.Schema) -> pa.Schema:
        """Store the dataset's schema unless there is one, and return the valid one."""
        make_folder(self._path / self._own)
        temporary, final = self._path / self._own / "schema.tmp", self._path / HIDDEN / "schema.arrow"
        _write(temporary, schema.serialize().to_pybytes())
        # Unlike a rename it replaces nothing: of several tasks one is the first.
        with suppress(FileExistsError):
            os.link(temporary, final)
        sync_folder(final.parent)
        os.unlink(temporary)
        return kept_schema(self._path) or schema

    def close(self) -> None:
        """Finish or undo what this life has left."""
        self._settle(self._own)

    def _settle(self, left: Path) -> bool:
        is_unfinished = False
        with suppress(FileNotFoundError):
            record = json.loads((self._path / left / _RECORD).read_bytes())
            staged = Staged(record["name"], tuple(map(tuple, record["files"])), record["rows"])
            is_unfinished = self._is_waiting(staged)
            if is_unfinished:
                # A file in neither place was committed, and has been compacted away since.
                with suppress(BatchLost):
                    self._show(staged)
        with suppress(FileNotFoundError):
            for name in os.listdir(self._path / left):
                with suppress(FileNotFoundError):
                    os.unlink(self._path / left / name)
            os.rmdir(self._path / left)
        return is_unfinished

    def _is_waiting(self, staged: Staged) -> bool:
        return any((self._path / temporary).exists() for temporary, _ in staged.files)

    def _show(self, staged: Staged) -> None:
        folders = dict.fromkeys(self._path / Path(final).parent for _, final in staged.files)
        for folder in folders:
            if not folder.is_dir():
                make_folder(folder)
        lost = []
        for temporary, final in staged.files:
            try:
                os.rename(self._path / temporary, self._path / final)
            except FileNotFoundError:
                if not (self._path / final).exists():
                    lost.append(temporary)
        # A process that has made a folder may have died before it could sync the parent.
        for folder in {*folders, *(folder.parent for folder in folders if folder != self._path)}:
            sync_folder(folder)
        if lost:
            raise BatchLost(f"{', '.join(lost)} in {self._path} was removed before its commit")

    def _write_parquet(self, relative: str, table: pa.Table) -> None:
        with open(_create(self._path / relative), "wb") as file:
            pq.write_table(table, file, compression=self._compression)
            file.flush()
            os.fsync(file.fileno())

    def _write_record(self, staged: Staged) -> None:
        record: dict[str, Any] = {"name": staged.name, "files": staged.files, "rows": staged.rows}
        # Beside the files, which may be those of a former life: the process that finds them has to find the record.
        folder = (self._path / staged.files[0][0]).parent
        _write(folder / f"{_RECORD}.tmp", json.dumps(record).encode())
        os.rename(folder / f"{_RECORD}.tmp", folder / _RECORD)
        sync_folder(folder)


def kept_schema(path: Path) -> pa.Schema | None:
    """Return the schema that a dataset is held to, or None when nothing has been written yet."""
    try:
        return pa.ipc.read_schema(pa.py_buffer((path / HIDDEN / "schema.arrow").read_bytes()))
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes) -> None:
    with open(_create(path), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
