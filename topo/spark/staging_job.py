"""The process of staging: see `topo.spark.staging`.

python -m topo.spark.staging_job FOLDER        reads an Order from its input
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from topo.durable import sync_folder
from topo.errors import TopoError
from topo.spark.snapshot import SparkSnapshot, list_parquet, read_snapshot, write_snapshot
from topo.spark.staging import Order, StagingFailed, record_failure, take_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "rows-"
_ROW_GROUP_BYTES = 32 << 20
"""What several tasks can share out where Spark has made one file of all."""
_MOST_TEXT = 4000


def stage(order: Order) -> SparkSnapshot:
    """Run the job, unless its rows are there already; return the snapshot.

    Raises:
        StagingFailed: it failed; with Spark's words.
        TopoError: Java, Spark or the disk is at fault.
    """
    with open(order.folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done := read_snapshot(order.folder, order.digest):
            return done
        for half_done in order.folder.glob(f"{_ROWS}*"):
            shutil.rmtree(half_done, ignore_errors=True)
        rows = Path(tempfile.mkdtemp(prefix=_ROWS, dir=order.folder))
        # Spark's executors may be another user's.
        rows.chmod(0o777 & ~_umask())
        return keep_rows(order, rows, _write(order, rows))


def keep_rows(order: Order, rows: Path, count: int) -> SparkSnapshot:
    """Make the files in a folder durable, which hold `count` rows, and name them in the snapshot. Raises as `stage`."""
    found = list_parquet([str(rows)], order.digest)
    _check_count(found, count, order)
    files = tuple((os.path.relpath(path, order.folder), size) for path, size in found.files)
    for path, _ in found.files:
        _sync(path)
    for folder in {*(os.path.dirname(path) for path, _ in found.files), str(order.folder)}:
        sync_folder(Path(folder))
    return write_snapshot(order.folder, SparkSnapshot(order.digest, files))


def _write(order: Order, rows: Path) -> int:
    """Have Spark write the rows; return how many it has written."""
    from topo.spark.session import make_session

    try:
        spark = make_session(order.name, order.master, order.config)
    except TopoError:
        raise
    except Exception as error:
        raise StagingFailed(f"Spark does not start on {order.master!r}: {_text(error)}") from error
    try:
        return write_rows(spark, order, rows)
    finally:
        spark.stop()


def write_rows(spark: SparkSession, order: Order, rows: Path) -> int:
    """Write the rows of an order into a folder; return how many they are.

    Raises:
        StagingFailed: Spark or the user's function has raised.
    """
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    try:
        frame = order.source.read(spark, order.columns)
        seen = Observation("rows")
        writer = frame.observe(seen, count(lit(1)).alias("rows")).write.mode("overwrite")
        # No URI: Spark would take %20 for a part of the name.
        writer.option("parquet.block.size", str(_ROW_GROUP_BYTES)).parquet(f"file://{rows.resolve()}")
    except Exception as error:
        is_wrong = isinstance(error, AnalysisException | ParseException) or _is_of_function(error, order)
        raise StagingFailed(f"Spark cannot make the rows of {order.source}: {_text(error)}{_hint(error)}", is_wrong) from error
    return int(seen.get["rows"])


def _is_of_function(error: Exception, order: Order) -> bool:
    """Whether the user's function itself has raised, so that it will again."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # PySpark passes on as errors of Py4J a Java that was lost, and a job that was, with its executors.
    return order.source.kind == "query" and not isinstance(error, PySparkException | Py4JError | ConnectionError)


def _hint(error: Exception) -> str:
    """Return what to do about a table that Spark does not find: it may be in the session of the program that submits."""
    if getattr(error, "getCondition", lambda: None)() != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    return (
        "\nThis Spark session has no temporary views of another one, such as a notebook's: make the view in query=, save it as a "
        "table of the catalog, or write it as files"
    )


def _check_count(found: SparkSnapshot, count: int, order: Order) -> None:
    import pyarrow.parquet as pq

    there = sum(pq.read_metadata(path).num_rows for path, _ in found.files)
    if there != count:
        raise StagingFailed(
            f"Spark has written {count} rows and {there} of them are in {order.folder}: "
            "the machines of the Spark cluster must share that folder; name one with staging="
        )


def _text(error: BaseException) -> str:
    """Return the message of an error, without the stack of the JVM."""
    text = str(error).partition("\n\nJVM stacktrace:")[0].strip()
    name = type(error).__name__
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        text = "".join(traceback.format_exception_only(error)).strip()
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            text += f" (line {frames[-1].lineno} of {frames[-1].filename})"
        return text[:_MOST_TEXT]
    return f"{name}: {text}"[:_MOST_TEXT]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


def main(arguments: list[str]) -> int:
    """Stage the source that the input orders; return the exit code."""
    folder = Path(arguments[0])
    try:
        order = take_order(0)
        threading.Thread(target=_end_with_input, daemon=True).start()
        stage(order)
    except EOFError:
        return 1
    except TopoError as error:
        record_failure(folder, str(error), isinstance(error, StagingFailed) and error.is_final)
        return 1
    except Exception as error:
        traceback.print_exc()
        record_failure(folder, f"Spark's process failed: {_text(error)}", False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
