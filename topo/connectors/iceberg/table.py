"""An Iceberg table: opens or makes it, and adds files to it in one snapshot, with a marker. All of it blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file, pyarrow_to_schema
from pyiceberg.schema import index_by_name
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.config import Config
from pyiceberg.utils.properties import property_as_bool

from topo.connectors.iceberg.durable_files import DurableFileIO, folder_at
from topo.connectors.iceberg.target import Partitions, columns_of, is_void, partition_record
from topo.connectors.secrets import secrets_of, without
from topo.connectors.staging_places import LocalPlace, RemotePlace, StagingPlace
from topo.connectors.store_files import StoreFiles
from topo.connectors.table_publisher import NO_NUMBER, AddedFile, CommitRefusedError
from topo.errors import ConfigError, TopoEnvironmentError, TopoError

_RETRIES, _MERGE, _NAMES = "commit.retry.num-retries", "commit.manifest-merge.enabled", "schema.name-mapping.default"
_PARTITION = 3
"""The place of the partition in pyiceberg's DataFile, which has no setter for it."""
_REST_TIMEOUTS = 5.0, 15.0
"""Seconds that a REST catalog has to take a connection, and to answer: the library has no limit."""
_ATTEMPTS = 4
"""How often a catalog is loaded, and a missing table made."""


class IcebergTable:
    """One table, as of the last look.

    Args:
        catalog: its name in the user's .pyiceberg.yaml, or its properties as pyiceberg takes them.
        name: of the table, with its namespace.

    Attributes:
        location: the folder of its data files when it was opened, as a URL or a path.
    """

    attempts = 20

    def __init__(self, catalog: str | Mapping[str, str], name: str) -> None:
        self._given, self._name = catalog, name
        self._secrets = secrets_of({} if isinstance(catalog, str) else catalog)
        self._table: Any = None
        self._columns = pa.schema([])

    def __str__(self) -> str:
        return f"table {self._name}"

    # -- the table -----------------------------------------------------------------------------------------------------------

    def open(self, declared: pa.Schema | None, partition_by: Sequence[str]) -> tuple[pa.Schema, Partitions]:
        """Open the table, or make it where it is missing and its columns are declared. Returns its columns and partitions.

        Raises:
            ConfigError: it is missing, has other columns than declared, or cannot be written by adding files.
            TopoEnvironmentError: catalog or store are not reached, or refuse the user.
        """
        with self._explained("cannot be opened"):
            catalog = self._catalog()
            try:
                self._table = catalog.load_table(self._name)
            except (NoSuchTableError, NoSuchNamespaceError):
                if declared is None:
                    raise ConfigError(
                        f"{self} does not exist; make it, or give schema=, such as {{'user': 'string', 'cents': 'bigint'}}"
                    ) from None
                self._make(catalog, declared, partition_by)
                self._table = catalog.load_table(self._name)
        self._columns, self._spec = columns_of(self._table), self._table.spec()
        self._ids = {field.name: field.field_id for field in self._table.schema().fields}
        place = self._table.properties.get("write.data.path") or f"{self._table.location().rstrip('/')}/data"
        self.location = str(place).rstrip("/")
        if declared is not None:
            self._check_declared(declared, partition_by)
            # Columns that were added since the table was made are null in its files.
            self._columns = pa.schema([field for field in self._columns if field.name in declared.names])
        return self._columns, Partitions(self._table, self._columns)

    def _catalog(self) -> Any:
        name, properties = (self._given, {}) if isinstance(self._given, str) else ("topo", self._given)
        self._secrets += secrets_of(Config().get_catalog_config(name) or {})
        settings = {**(Config().get_catalog_config(name) or {}), **properties}
        if _is_rest(settings):
            catalog: Any = _LimitedRestCatalog(name, **settings)
        else:
            catalog = _loaded(partial(load_catalog, name, **properties))
            if isinstance(catalog, RestCatalog):
                _limit(catalog._session)
        warehouse = catalog.properties.get("warehouse")
        if warehouse is None or folder_at(warehouse) is not None:
            # The catalog makes the table's files by this setting. The library leaves syncing to the operating system.
            catalog.properties.setdefault("py-io-impl", f"{DurableFileIO.__module__}.{DurableFileIO.__qualname__}")
        return catalog

    def _make(self, catalog: Any, declared: pa.Schema, partition_by: Sequence[str]) -> None:
        """Make the table, while other tasks may do the same: which error that gives depends on the catalog."""
        for attempt in range(_ATTEMPTS):
            try:
                self._create(catalog, declared, partition_by)
            except Exception:
                if catalog.table_exists(self._name):
                    return
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _create(self, catalog: Any, declared: pa.Schema, partition_by: Sequence[str]) -> None:
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        with catalog.create_table_transaction(self._name, declared) as transaction, transaction.update_spec() as spec:
            for name in partition_by:
                spec.add_identity(name)

    def _check_declared(self, declared: pa.Schema, partition_by: Sequence[str]) -> None:
        types, found = ({field.name: field.type for field in schema} for schema in (declared, self._columns))
        needed = [field.name for field in self._columns if field.name in types or not field.nullable]
        if types != {name: found[name] for name in needed}:
            raise ConfigError(
                f"{self} has the columns {_text(found)}, and IcebergSink is given {_text(types)}: write to another table, "
                "give the schema that it has, or leave schema= out"
            )
        fields = [field for field in self._spec.fields if not is_void(field)]
        names = [self._table.schema().find_column_name(field.source_id) for field in fields]
        if names != list(partition_by) or any(str(field.transform) != "identity" for field in fields):
            raise ConfigError(
                f"{self} is partitioned by {', '.join(map(str, fields)) or 'nothing'}, and IcebergSink is given "
                f"{tuple(partition_by) or 'nothing'}: write to another table, give its own, or leave schema= out"
            )

    def place(self) -> StagingPlace:
        """Return where files for the table are staged: in the folder of its data files.

        Raises:
            ConfigError: pyarrow does not reach that store.
        """
        folder = folder_at(self.location)
        if folder is not None:
            return LocalPlace(folder)
        files = self._table.io
        if not isinstance(files, PyArrowFileIO):
            raise ConfigError(f"{self}: IcebergSink reaches {self.location} by pyarrow alone, and not by {type(files).__name__}")
        scheme, host, path = files.parse_location(self.location, files.properties)
        return RemotePlace(StoreFiles(files.fs_by_scheme(scheme, host)), path)

    def refresh(self) -> None:
        """Read the snapshots that were added since the last look.

        Raises:
            ConfigError: the table has other columns or partitions now.
        """
        with self._explained("cannot be read"):
            try:
                self._table.refresh()
            except (NoSuchTableError, ValueError) as error:
                # Another table has its name now.
                if isinstance(error, ValueError) and "UUID does not match" not in str(error):
                    raise
                raise ConfigError(
                    f"{self} was dropped while the topology ran; make it again, or give schema=, and restart the topology"
                ) from None
        found = columns_of(self._table)
        changed = [field.name for field in self._columns if field.name not in found.names or not _takes(found, field)]
        changed += [field.name for field in found if not field.nullable and field.name not in self._columns.names]
        if changed or self._table.spec() != self._spec:
            what = ", ".join(map(self._renamed, changed)) or "its partitions"
            raise ConfigError(
                f"{self} was given another schema while the topology ran ({what}); give it the former one, or restart the "
                "topology with fields and schema= of the new one"
            )

    def _renamed(self, column: str) -> str:
        """Return the name of a column that was changed, with its new one."""
        new = self._table.schema().find_column_name(self._ids.get(column, 0))
        return repr(column) if new in (None, column) else f"{column!r} is {new!r} now"

    # -- snapshots -----------------------------------------------------------------------------------------------------------

    def marker(self, writer: str) -> int:
        """Return the number of the last transaction of a writer, as of the last look."""
        number, _, _ = self._table.properties.get(writer, str(NO_NUMBER)).partition(" ")
        return int(number)

    def has(self, names: Sequence[str]) -> bool:
        """Whether the table was given one of these files, as of the last look. Unless a marker names one, it reads all names."""
        first = [value.partition(" ")[2] for key, value in self._table.properties.items() if key.startswith("topo.")]
        if not set(names).isdisjoint(first):
            return True
        with self._explained("cannot be read"):
            paths = self._table.inspect.data_files()["file_path"].to_pylist()
        return not {path.rpartition("/")[2] for path in paths}.isdisjoint(names)

    def check(self, files: Sequence[AddedFile]) -> None:
        """Do nothing: columns have ids, by which files that are added keep their own."""

    def add(self, files: Sequence[AddedFile], writer: str | None, number: int) -> None:
        """Add files in one snapshot, with the marker of a writer, to the table as of the last look.

        Raises:
            CommitRefusedError: another process has added a snapshot meanwhile, so nothing was added.
            TopoEnvironmentError: files may have been added.
        """
        table, metadata = self._table, self._table.metadata
        # The library's own repetition would not look at the marker. This copy is for this commit: the next one looks again.
        table.metadata = metadata.model_copy(update={"properties": {**metadata.properties, _RETRIES: "0"}})
        with self._explained("takes no new snapshot"), table.transaction() as transaction:
            if writer is not None:
                # A table property, since snapshots expire.
                transaction.set_properties({writer: f"{number} {files[0].name}"})
            if table.name_mapping() is None:
                # Those files have no ids of fields that an earlier version has written.
                transaction.set_properties({_NAMES: table.schema().name_mapping.model_dump_json()})
            paths = [f"{self.location}/{file.name}" for file in files]
            read = partial(_data_file, table.io, transaction.table_metadata)
            found = list(ExecutorFactory.get_or_create().map(read, paths))
            update = transaction.update_snapshot()
            is_merged = property_as_bool(table.properties, _MERGE, False)
            with update.merge_append() if is_merged else update.fast_append() as snapshot:
                for file, data_file in zip(files, found, strict=True):
                    # The library goes by statistics, which a table may switch off and long values do not have.
                    if (partition := partition_record(table, file.partition)) is not None:
                        data_file[_PARTITION] = partition
                    snapshot.append_data_file(data_file)

    def close(self) -> None:
        """Close the connections to the catalog."""
        if self._table is not None:
            self._table.catalog.close()

    def sync(self) -> None:
        """Do nothing: all files that the catalog names are durable."""

    # -- errors --------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Have an error of the library, whose classes have no common base, leave the block as one of topo's, without secrets."""
        try:
            yield
        except TopoError:
            raise
        except CommitFailedException as error:
            raise CommitRefusedError(self._shown(error, what)) from None
        except Exception as error:
            raise TopoEnvironmentError(self._shown(error, what)) from None

    def _shown(self, error: BaseException, what: str) -> str:
        return without(self._secrets, f"{self} {what}: {str(error) or type(error).__name__}")


def _is_rest(settings: Mapping[str, Any]) -> bool:
    """Whether pyiceberg makes its own REST catalog of settings."""
    kind = settings.get("type") or ("rest" if str(settings.get("uri", "")).startswith("http") else "")
    return str(kind).lower() == "rest" and "uri" in settings and "py-catalog-impl" not in settings


class _LimitedRestCatalog(RestCatalog):  # type: ignore[misc]
    """Each request has a time limit, also the one for the settings, which making it sends."""

    def _create_session(self) -> Any:
        return _limit(super()._create_session())


def _limit(session: Any) -> Any:
    """Have each request of a session fail that takes too long."""
    session.request = partial(session.request, timeout=_REST_TIMEOUTS)
    return session


def _loaded(load: Callable[[], Any]) -> Any:
    """Return a catalog, while other tasks may make the tables of its database."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(Exception):
            return load()
    return load()


def _data_file(files: Any, metadata: Any, path: str) -> Any:
    """Return a file for a snapshot, which rows of a checkpoint can have filled before the columns were changed.

    Iceberg finds columns by their ids, but the library statistics by the names of a schema: it gets the one of the file.
    """
    if len(metadata.schemas) > 1:
        with files.new_input(path).open() as stream:
            columns = index_by_name(pyarrow_to_schema(pq.read_schema(stream), metadata.name_mapping())).items()
        required = {field.field_id for field in metadata.schema().fields if field.required}
        for schema in (metadata.schema(), *reversed(metadata.schemas)):
            if columns <= index_by_name(schema).items() and required <= {field.field_id for field in schema.fields}:
                metadata = metadata.model_copy(update={"current_schema_id": schema.schema_id})
                break
    fields = metadata.spec().fields
    if not any(map(is_void, fields)):
        return parquet_file_to_data_file(files, metadata, path)
    # The library looks for a value of each field in the statistics.
    spec = metadata.spec().model_copy(update={"fields": tuple(field for field in fields if not is_void(field))})
    file = parquet_file_to_data_file(files, metadata.model_copy(update={"partition_specs": [spec]}), path)
    values = iter([file.partition[place] for place in range(len(file.partition))])
    file[_PARTITION] = Record(*(None if is_void(field) else next(values) for field in fields))
    return file


def _takes(columns: pa.Schema, field: pa.Field) -> bool:
    found = columns.field(field.name)
    return bool(found.type.equals(field.type) and (found.nullable or not field.nullable))


def _text(columns: Mapping[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
