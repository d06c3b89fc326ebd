"""The state of a machine's topologies, as files below TOPO_HOME.

    TOPO_HOME/topologies/NAME/
        topology.json  master.json  positions.msgpack  summary.json      replaced as a whole
        dead_letters.jsonl  errors.jsonl[.1]  history.jsonl[.1]          appended to; errors and history are rotated
        logs/  code/  workers/  components/  checkpoints/  savepoints/  lock

A file that is replaced is either the old one or the new one, also after a crash or on a full disk.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, overload

from msgspec import Struct

from topo.durable import make_folder, sync_folder
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError, UserError
from topo.ids import topology_name_problem
from topo.storage.shapes import ErrorShape, SummaryShape, misfit

_LOOK_S = 0.05
_REMOVED = ".removed"
"""Ends the names of topologies' folders while they are removed; those names begin with a dot."""


class TopologyIsRunning(UserError):
    """Another master holds the topology's lock."""


class StateFolderLost(TopoEnvironmentError):
    """A topology's state folder, or its lock, was removed or replaced while a process used it as its own."""


def home_folder(environment: Mapping[str, str]) -> Path:
    """Return TOPO_HOME, else `topo` in the XDG state folder, whose specification has relative paths ignored; else a UserError."""
    if home := environment.get("TOPO_HOME"):
        return Path(os.path.expanduser(home)).absolute()
    given = environment.get("XDG_STATE_HOME", "")
    if (state := given if os.path.isabs(given) else os.path.expanduser("~/.local/state")).startswith("~"):
        raise UserError(f"user {os.getuid()} has no home folder; set TOPO_HOME to a folder for the state of topologies")
    return Path(state) / "topo"


def check_name(name: str) -> str:
    """Return `name` if a topology may have it, else raise a ConfigError with the rule for names."""
    if problem := topology_name_problem(name):
        raise ConfigError(problem)
    return name


def near_misses(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that someone who wrote `name` may have meant, best first."""
    return tuple(difflib.get_close_matches(name, list(names), n=3))


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably; 0600.

    Raises:
        TopoEnvironmentError: the disk is full or not writable; the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise TopoEnvironmentError(f"cannot write {path}: {error.strerror}; the file is unchanged") from error


def is_gone(path: Path) -> bool:
    """Whether a path certainly does not exist; False when that cannot be checked for the moment."""
    try:
        os.stat(path)
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def append_lines(path: Path, lines: Iterable[bytes], *, is_durable: bool = True) -> None:
    """Append each of `lines` and a newline: all of them or none; durably, unless the caller can do without them.

    A tail that a crash left without a newline gets one first, so that it spoils no line but its own.

    Raises:
        TopoEnvironmentError: the disk is full or not writable; nothing was appended.
    """
    data = b"".join(line + b"\n" for line in lines)
    try:
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    data = b"\n" + data
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                if is_durable:
                    os.fsync(file.fileno())
                if not end and is_durable:
                    # It may be new, and lost with its first lines if the folder does not have it.
                    sync_folder(path.parent)
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise TopoEnvironmentError(f"cannot append to {path}: {error.strerror}") from error


def rotate(path: Path, most_bytes: int) -> None:
    """Move a file of at least `most_bytes` over the older one, so that a new file is begun."""
    with suppress(OSError):
        if path.stat().st_size >= most_bytes:
            os.replace(path, _older(path))


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def json_lines(path: Path, shape: type | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON lines file, oldest first; a torn row is passed over, a missing file is empty.

    Raises TopoEnvironmentError at a row of another shape, and for a file that cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    except OSError as error:
        raise TopoEnvironmentError(f"cannot read {path}: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        for number, line in enumerate(file, 1):
            with suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    if shape is not None and (why := misfit(row, shape)):
                        raise TopoEnvironmentError(f"{path} is damaged in line {number} ({why}): correct it, or remove the file")
                    yield row


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    return list(json_lines(path))


class _Below:
    """The path of a file or folder in a topology's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, folder: None, _owner: type) -> Self: ...

    @overload
    def __get__(self, folder: TopologyFolder, _owner: type) -> Path: ...

    def __get__(self, folder: TopologyFolder | None, _owner: type) -> Self | Path:
        return self if folder is None else folder.path / self._name


class TopologyFolder(Struct, frozen=True):
    """The files of one topology. Their content is their writers' concern."""

    path: Path
    topology = _Below("topology.json")
    """The submission: code, parameters, config."""
    master = _Below("master.json")
    """Term, epoch, incarnations, and where the master listens."""
    positions = _Below("positions.msgpack")
    """The committed positions of spout tasks."""
    dead_letters = _Below("dead_letters.jsonl")
    """The messages given up, one a line."""
    replays = _Below("replays.jsonl")
    """What became of dead letters that were emitted again, one change a line."""
    errors = _Below("errors.jsonl")
    """Errors, one a line."""
    history = _Below("history.jsonl")
    """Figures of the past, a minute a line."""
    summary = _Below("summary.json")
    """The summary of the last run."""
    checkpoints = _Below("checkpoints")
    """The checkpoints of the last run, unless it has them elsewhere."""
    savepoints = _Below("savepoints")
    """The savepoints that were not asked for elsewhere; never removed."""
    operator = _Below("operator.jsonl")
    """The actions of the web page, one a line."""
    logs = _Below("logs")
    code = _Below("code")
    """Copies of the user's code, each in a folder named by its digest."""
    components = _Below("components")
    """What components keep for themselves, as long as there are positions; not there unless one does."""
    workers = _Below("workers")
    """Private files of the running workers: specifications and crash markers."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def older_errors(self) -> Path:
        """Older errors, if there were many."""
        return _older(self.errors)

    def all_errors(self) -> Iterator[dict[str, Any]]:
        """Yield what went wrong, oldest first."""
        yield from json_lines(self.older_errors, ErrorShape)
        yield from json_lines(self.errors, ErrorShape)

    @property
    def older_history(self) -> Path:
        """The history before that, if there is much."""
        return _older(self.history)

    def last_summary(self) -> dict[str, Any] | None:
        """Return how the last run ended; None when it has not, or its master was lost first.

        Raises:
            TopoEnvironmentError: the summary is damaged, or cannot be read.
        """
        try:
            found = json.loads(self.summary.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TopoEnvironmentError(f"cannot read {self.summary}: {error.strerror}") from error
        except ValueError as error:
            found, why = {}, str(error)
        else:
            why = misfit(found, SummaryShape)
        if why:
            way_out = f"remove it, and `topo resume {self.name}` continues the topology"
            raise TopoEnvironmentError(f"{self.summary} is damaged: {why}; {way_out}")
        return dict(found)

    def lock(self) -> TopologyLock:
        """Become the topology's only master. Raises as `TopologyLock`."""
        return TopologyLock(self)

    def lock_identity(self) -> tuple[int, int] | None:
        """Return device and inode of the lock file, None when there is none. Raises OSError when that cannot be known.

        While a master holds its lock open, no other file has the same identity.
        """
        try:
            status = os.stat(self.path / "lock")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino

    def check_identity(self, own: tuple[int, int] | None) -> None:
        """Check that the folder still has the lock file that this process began with, so that files below it are its own.

        A folder that cannot be looked at for the moment passes.

        Raises:
            StateFolderLost: it was removed, or another topology has begun in its place.
        """
        with suppress(OSError):
            if self.lock_identity() == own:
                return
            raise StateFolderLost(f"the state folder {self.path} or its lock was removed or replaced while {self.name!r} used it")

    def owner(self) -> str:
        """Return the process id of the last that has held the lock; "" while one is about to take it. Raises OSError."""
        return (self.path / "lock").read_text(errors="replace")

    def is_running(self) -> bool:
        """Whether a master holds the lock. Raises TopoEnvironmentError when that cannot be known."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise TopoEnvironmentError(f"cannot read {self.path / 'lock'}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)

    def make_parts(self) -> None:
        """Make the folders in it that are missing. Raises OSError."""
        for path in (self.path, self.logs, self.code, self.workers):
            make_folder(path, 0o700)

    def remove(self) -> None:
        """Forget the topology. Files that cannot be removed stay, and a folder that has gone already is no error."""
        # Renamed first: another topology may begin under the name while files are removed.
        removed = self.path.with_name(f".{self.name}.{os.urandom(4).hex()}{_REMOVED}")
        with suppress(OSError):
            self.path.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


class TopologyLock:
    """Held by the topology's master until it is released or its process ends.

    As a context manager it raises `StateFolderLost` in place of an error of the file system or environment when the folder was
    removed or replaced within the block.

    Args:
        sleep: called once while another process has the lock, since `is_running` holds it for a moment, too.

    Raises:
        TopologyIsRunning: there is a master already; names its process.
        StateFolderLost, TopoEnvironmentError: the folder was removed; its lock cannot be opened.
    """

    def __init__(self, folder: TopologyFolder, sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder = folder
        try:
            descriptor = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError as error:
            raise StateFolderLost(f"{folder.path} was removed; try again") from error
        except OSError as error:
            raise TopoEnvironmentError(f"cannot lock {folder.path}: {error.strerror}") from error
        status = os.fstat(descriptor)
        self._identity = status.st_dev, status.st_ino
        try:
            take_lock(descriptor, sleep)
            # The lock of a removed folder excludes no process from the folder that has taken its place.
            self.check()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"
            os.close(descriptor)
            raise TopologyIsRunning(f"topology {folder.name!r} is running already, under process {owner}") from error
        except OSError as error:
            os.close(descriptor)
            raise TopoEnvironmentError(f"cannot lock {folder.path}: {error.strerror}") from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor: int | None = descriptor

    def check(self) -> None:
        """Check that the locked folder still is at its path. Raises as `TopologyFolder.check_identity`."""
        self._folder.check_identity(self._identity)

    def release(self) -> None:
        """Let another master begin. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> TopologyLock:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            is_explained = isinstance(error, StateFolderLost) or not isinstance(error, OSError | TopoEnvironmentError)
            if self._descriptor is not None and not is_explained:
                self.check()
        finally:
            self.release()


def take_lock(descriptor: int, sleep: Callable[[float], None] = time.sleep) -> None:
    """Take a lock, though a look at it may hold it for a moment. Raises BlockingIOError when another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sleep(_LOOK_S)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class StateFolder:
    """All topologies that this user has run on this machine."""

    def __init__(self, home: Path) -> None:
        """Open `home`, making it if need be.

        Raises:
            TopoEnvironmentError: it cannot be made.
            ConfigError: it is another user's, or others can look into it: code that topo runs is in there.
        """
        self._home = home
        self._topologies = home / "topologies"
        try:
            # What only reads must not wait for the disk.
            if not self._topologies.is_dir():
                self._make()
            status = self._topologies.stat()
        except OSError as error:
            raise TopoEnvironmentError(f"cannot use {home}: {error.strerror}; set TOPO_HOME to a folder of your own") from error
        if status.st_uid != os.getuid():
            raise ConfigError(
                f"{self._topologies} belongs to the user of id {status.st_uid}, and this command runs as {os.getuid()}: "
                "become that user, or set TOPO_HOME to a folder of your own"
            )
        if status.st_mode & 0o077:
            raise ConfigError(f"{self._topologies} must be yours alone: chmod 700 it, or set TOPO_HOME")

    def _make(self) -> None:
        make_folder(self._home, 0o700)
        make_folder(self._topologies, 0o700)

    def names(self) -> list[str]:
        """Return the names of all topologies, sorted. Raises TopoEnvironmentError when the folder was removed."""
        try:
            names = [entry.name for entry in self._topologies.iterdir() if entry.is_dir()]
        except OSError as error:
            raise TopoEnvironmentError(f"cannot list {self._topologies}: {error.strerror}") from error
        return sorted(name for name in names if not topology_name_problem(name))

    def create(self, name: str) -> TopologyFolder:
        """Open the folder of a topology, creating missing parts; finish removals that a process was ended in."""
        folder = TopologyFolder(self._topologies / check_name(name))
        try:
            self._make()
            folder.make_parts()
            for leftover in self._topologies.glob(f".*{_REMOVED}"):
                shutil.rmtree(leftover, ignore_errors=True)
        except OSError as error:
            raise TopoEnvironmentError(f"cannot make {folder.path}: {error.strerror}") from error
        return folder

    def find(self, name: str) -> TopologyFolder:
        """The folder of a topology that is known.

        Raises:
            NotFoundError: it is not; carries near misses.
        """
        folder = TopologyFolder(self._topologies / name)
        if topology_name_problem(name) or not folder.path.is_dir():
            raise NotFoundError(f"no topology is called {name!r}.", near_misses(name, self.names()))
        return folder
