"""The log of a Delta table: opens or makes the table, and adds files to it in one version, with a marker. All of it blocks."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa

from topo.connectors.delta.target_schema import TargetSchema, check_writable, checked_target
from topo.connectors.file_folders import is_remote, shown_url
from topo.connectors.secrets import secrets_of, without
from topo.connectors.staging_places import LocalPlace, RemotePlace, StagingPlace
from topo.connectors.table_publisher import NO_NUMBER, AddedFile, CommitRefusedError
from topo.durable import local_path, make_folder, sync_folder
from topo.errors import ConfigError, TopoEnvironmentError

_LIMITS = {"timeout": "15s", "connect_timeout": "5s", "max_retries": "2", "retry_timeout": "10s"}
"""Of requests to a store, where the user gives none: less than a worker may take for one call."""

_MISSING_VERSION = ("ot found", "Invalid table version")
"""In errors of the library when a version is missing that there was."""


class DeltaLog:
    """The log of one table, as of the last look.

    Args:
        url: of the table.
        options: of its store.
    """

    attempts = 2

    def __init__(self, url: str | os.PathLike[str], options: Mapping[str, str]) -> None:
        text = os.fspath(url)
        self._root = None if is_remote(text) else local_path(text).absolute()
        self._url = text if self._root is None else os.fspath(self._root)
        self._options = dict(options) if self._root is not None else {**_LIMITS, **options}
        self._secrets = secrets_of(options)
        self._table: Any = None
        self._target: TargetSchema | None = None
        self._synced: set[str] = set()
        """Files of a local log that are durable."""

    def __str__(self) -> str:
        return f"table {shown_url(self._url)}"

    # -- the table -----------------------------------------------------------------------------------------------------------

    def open(self, declared: TargetSchema | None) -> TargetSchema:
        """Open the table, or make it where it is missing and its schema is declared. Returns the schema that it has.

        Raises:
            ConfigError: it is missing, has other columns than declared, or cannot be written by adding files.
            TopoEnvironmentError: its store is not reached, or refuses the user.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        with self.explained("cannot be opened"):
            try:
                self._table = DeltaTable(self._url, storage_options=self._options)
            except TableNotFoundError:
                if declared is None:
                    raise ConfigError(
                        f"{self} does not exist; make it, or give schema=, such as {{'user': 'string', 'cents': 'bigint'}}"
                    ) from None
                if self._root is None:
                    # Another task may have made it meanwhile; if not, what follows raises.
                    with suppress(DeltaError):
                        self._create(self._url, declared)
                else:
                    self._create_durably(self._root, declared)
                self._table = DeltaTable(self._url, storage_options=self._options)
        found = self._schema()
        if declared is not None:
            _check_declared(str(self), declared, found)
            # Columns that were added since the table was made are null in its files.
            found = found._replace(columns=pa.schema([field for field in found.columns if field.name in declared.columns.names]))
        self._target = found
        self.sync()
        return found

    def _create(self, url: str, declared: TargetSchema) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(url, declared.columns, partition_by=list(declared.partition_by), storage_options=self._options)

    def _create_durably(self, root: Path, declared: TargetSchema) -> None:
        """Make a local table that has its schema from the first moment on: a log that a power cut empties is no table."""
        make_folder(root)
        new = root / f".new-{os.urandom(6).hex()}"
        try:
            self._create(os.fspath(new), declared)
            for file in (new / "_delta_log").iterdir():
                _sync(file)
            sync_folder(new / "_delta_log")
            try:
                os.rename(new / "_delta_log", root / "_delta_log")
            except OSError as error:
                # Another task has made it meanwhile.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            sync_folder(root)
        finally:
            rmtree(new, ignore_errors=True)

    def place(self) -> StagingPlace:
        """Return where files for the table are staged: the store of the table itself, by its own settings."""
        if self._root is not None:
            return LocalPlace(self._root)
        from topo.connectors.store_files import StoreFiles

        return RemotePlace(StoreFiles(self._files()), "")

    def _files(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self._url, self._options))

    def _schema(self) -> TargetSchema:
        columns = pa.schema(self._table.schema().to_arrow())
        metadata = self._table.metadata()
        check_writable(str(self), metadata.configuration, columns)
        return checked_target(pa.schema([field.remove_metadata() for field in columns]), metadata.partition_columns)

    def refresh(self) -> None:
        """Read the versions that were added since the last look.

        Raises:
            ConfigError: the table has other columns now, or was deleted.
        """
        with self.explained("cannot be read"):
            self._table.update_incremental()
            found = self._schema()
        assert self._target is not None
        changed = [field.name for field in self._target.columns if not _has(found.columns, field)]
        changed += [field.name for field in found.columns if not field.nullable and field.name not in self._target.columns.names]
        if changed or found.partition_by != self._target.partition_by:
            what = ", ".join(map(repr, changed)) or "partition_by"
            raise ConfigError(f"{self} was given another schema while the topology ran ({what}); restart it with that schema")

    # -- versions ------------------------------------------------------------------------------------------------------------

    def marker(self, writer: str) -> int:
        """Return the number of the last transaction of a writer, as of the last look."""
        with self.explained("cannot be read"):
            return self._table.transaction_version(writer) or NO_NUMBER

    def has(self, names: Sequence[str]) -> bool:
        """Whether the table has one of these files, as of the last look. It reads all of their names."""
        with self.explained("cannot be read"):
            return not {uri.rpartition("/")[2] for uri in self._table.file_uris()}.isdisjoint(names)

    def check(self, files: Sequence[AddedFile]) -> None:
        """Check published files, which an earlier process has written, against the table as of the last look.

        Raises:
            ConfigError: the table has other columns: with such a file no reader could read it any more.
        """
        from pyarrow import parquet

        assert self._target is not None
        for file in files:
            with self.explained(f"cannot be given {file.name}"):
                columns = parquet.read_schema(file.name, filesystem=self._files())
            wrong = [
                f"{field.name!r} is {columns.field(field.name).type if field.name in columns.names else 'missing'}"
                for field in self._target.in_files
                if (field.name in columns.names or not field.nullable) and not _has(columns, field.with_nullable(False))
            ]
            if wrong:
                raise ConfigError(
                    f"{self} was given another schema after {file.name} with {file.rows} rows had been staged for it, in which "
                    f"{', '.join(wrong)}: give the table its former schema until the file is added; or remove the file, and its "
                    "rows are reported as lost"
                )

    def add(self, files: Sequence[AddedFile], writer: str | None, number: int) -> None:
        """Add files in one version, with the marker of a writer.

        The table is taken to be as of the last look: if another process has added a version of the same writer since then, this
        one is refused. Versions of others are no obstacle, unless they change the schema.

        Raises:
            CommitRefusedError: nothing was added.
            TopoEnvironmentError: files may have been added.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, Transaction

        assert self._target is not None
        by, now = self._target.partition_by, int(time.time() * 1000)
        actions = [
            AddAction(
                file.name,
                file.bytes,
                dict(zip(by, file.partition, strict=True)),
                now,
                True,
                json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        marks = None if writer is None else [Transaction(writer, number)]
        properties = CommitProperties(app_transactions=marks)
        with self.explained("takes no new version"):
            try:
                self._table.create_write_transaction(
                    actions, "append", self._table.schema(), list(by), commit_properties=properties
                )
            except CommitFailedError as error:
                raise CommitRefusedError(self._shown(error, "takes no new version")) from None

    def sync(self) -> None:
        """Make the versions of a local log durable; the library leaves that to the operating system."""
        if self._root is None:
            return
        log = self._root / "_delta_log"
        # The library makes checkpoints of the log, too, and readers begin with the last one: empty, it would hide the table.
        names = {name for name in os.listdir(log) if name.endswith((".json", ".parquet"))}
        new = sorted(names - self._synced)
        for name in new:
            _sync(log / name)
        if any(name.endswith(".parquet") for name in new):
            _sync(log / "_last_checkpoint")
        if new:
            sync_folder(log)
            sync_folder(self._root)
        self._synced = names

    # -- errors --------------------------------------------------------------------------------------------------------------

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Have an error of the library leave the block as one of topo's, without secrets."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            if self._target is not None and any(text in str(error) for text in _MISSING_VERSION) and self._is_gone():
                raise ConfigError(
                    f"{self} was deleted while the topology ran; make it again, or give schema=, and restart the topology"
                ) from None
            raise TopoEnvironmentError(self._shown(error, what)) from None

    def _is_gone(self) -> bool:
        """Whether the table of the last look is no more there; another one may have its place."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            found = DeltaTable(self._url, storage_options=self._options)
        except TableNotFoundError:
            return True
        except (DeltaError, OSError):
            return False
        return bool(found.metadata().id != self._table.metadata().id)

    def _shown(self, error: BaseException, what: str) -> str:
        return without(self._secrets, f"{self} {what}: {error}")


def _sync(path: Path) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # The library removes versions that are older than it keeps.
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _has(columns: pa.Schema, field: pa.Field) -> bool:
    found = columns.field(field.name) if field.name in columns.names else None
    return found is not None and found.type.equals(field.type) and (found.nullable or not field.nullable)


def _check_declared(table: str, declared: TargetSchema, found: TargetSchema) -> None:
    """Check a table against a declaration: it may have further columns, if they may be null. Raises ConfigError."""
    names = declared.columns.names
    needed = [field for field in found.columns if field.name in names or not field.nullable]
    if _types(declared) != {field.name: field.type for field in needed}:
        raise ConfigError(
            f"{table} has the columns {_text(found)}, and DeltaSink is given {_text(declared)}: write to another table, give the "
            "schema that it has, or leave schema= out"
        )
    if declared.partition_by != found.partition_by:
        raise ConfigError(
            f"{table} is partitioned by {found.partition_by or 'nothing'}, and DeltaSink is given "
            f"{declared.partition_by or 'nothing'}: write to another table, or give its own"
        )


def _types(target: TargetSchema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in target.columns}


def _text(target: TargetSchema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in target.columns)
