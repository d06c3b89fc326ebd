"""Staging: one Spark job, in a separate process, that leaves parquet files and a snapshot of them in a folder.

    FOLDER/snapshot.json        written last: the rows are whole, and are never made again
    FOLDER/rows-RANDOM/         files of one attempt; the snapshot names those of the complete attempt
    FOLDER/failure.json         error of the last attempt
    FOLDER/lock                 held by the process at work

The process ends with its parent, whatever ends that: it sees the end of its standard input. Spark's Java does the same.
A process that still works when another begins holds the lock, and writes to its own folder. So a kill at any
moment leaves the old state or the new one.

This is the side of the task that starts it; `topo.spark.staging_job` is the process.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from topo.errors import TopoEnvironmentError, UserError
from topo.spark.spark_source import SparkSource
from topo.user_code.copy import pickled

_JOB = "topo.spark.staging_job"
_FAILURE = "failure.json"
_LENGTH = 8
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a staging: source and folder.

    Attributes:
        name: of the Spark application.
        folder: see above; for a Spark cluster, a folder that all its machines see.
        source: the rows.
        columns: the columns that are wanted of them.
        master: of Spark.
        config: of Spark.
    """

    name: str
    folder: Path
    source: SparkSource
    columns: tuple[str, ...]
    master: str
    config: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The identity of the source in the snapshot."""
        return self.source.digest(self.columns, self.config)


class StagingFailed(UserError):
    """The Spark job failed. The message has Spark's own words.

    Attributes:
        is_final: whether another attempt must fail as well: the query is wrong.
    """

    def __init__(self, message: str, is_final: bool = False) -> None:
        self.is_final = is_final
        super().__init__(message)

    def __reduce__(self) -> tuple[type[StagingFailed], tuple[str, bool]]:
        return StagingFailed, (str(self), self.is_final)


class StagingProcess:
    """The process, as the task sees it that has started it."""

    def __init__(self, order: Order) -> None:
        """Start it.

        Raises:
            TopoEnvironmentError: it cannot be started, or the folder not be written to.
            UserError: the function cannot be handed over.
        """
        self._folder = order.folder
        message = _packed(order)
        try:
            order.folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(order.folder / _FAILURE)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _JOB, str(order.folder)],
                stdin=subprocess.PIPE,
                # Whatever Spark prints belongs to the log.
                stdout=2,
            )
        except OSError as error:
            raise TopoEnvironmentError(f"cannot start Spark's process for {order.folder}: {error}") from error
        assert self._process.stdin is not None
        self._input: IO[bytes] = self._process.stdin
        # The function may be larger than a pipe, and the parent must not wait for it to be read.
        threading.Thread(target=self._send, args=(message,), daemon=True).start()

    def _send(self, message: bytes) -> None:
        with suppress(OSError, ValueError):
            self._input.write(len(message).to_bytes(_LENGTH, "big") + message)
            self._input.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def failure(self) -> StagingFailed:
        """Return the error of a process that has ended without a snapshot."""
        try:
            failure = json.loads((self._folder / _FAILURE).read_bytes())
            return StagingFailed(str(failure["text"]), bool(failure["is_final"]))
        except (OSError, ValueError, KeyError):
            return StagingFailed(f"Spark's process ended without a word (exit code {self._process.returncode}); see `topo logs`")

    def close(self) -> None:
        """End it. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with suppress(OSError):
            self._input.close()


def record_failure(folder: Path, text: str, is_final: bool) -> None:
    """Write a failure to the folder, for the task."""
    written = folder / f".{_FAILURE}.{os.getpid()}"
    written.write_text(json.dumps({"text": text, "is_final": is_final}))
    os.replace(written, folder / _FAILURE)


def take_order(descriptor: int) -> Order:
    """Read the order that the task has sent, and take over where it finds its modules.

    Raises:
        EOFError: the task has ended meanwhile.
    """
    message = io.BytesIO(_read(descriptor, int.from_bytes(_read(descriptor, _LENGTH), "big")))
    sys.path[:] = pickle.load(message)
    order: Order = pickle.load(message)
    return order


def _read(descriptor: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = os.read(descriptor, length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _packed(order: Order) -> bytes:
    paths = pickle.dumps(sys.path)
    if order.source.kind != "query":
        return paths + pickle.dumps(order)
    import cloudpickle

    # By value: the module may be a topology file that was loaded under a name that other processes do not know.
    module = sys.modules.get(order.source.function.__module__)
    by_value = module is not None and module.__name__ != "__main__"
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        try:
            packed = pickled(order)
        finally:
            if by_value:
                cloudpickle.unregister_pickle_by_value(module)
        return paths + packed
    except Exception as error:
        raise UserError(f"{order.source} cannot be handed to another process: {type(error).__name__}: {error}") from error
