"""Staging without Spark: rows that are on the disk when the snapshot names them."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import psutil
import pytest
from msgspec import Meta, Struct, convert

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.integration.support import PATIENCE_S  # noqa: E402
from tests.spark.test_java import java  # noqa: E402
from topo import TaskContext, TopoEnvironmentError  # noqa: E402
from topo.spark import SparkSpout  # noqa: E402
from topo.spark.snapshot import NAME  # noqa: E402
from topo.spark.spark_source import source_of  # noqa: E402
from topo.spark.staging import Order, StagingFailed, _packed  # noqa: E402
from topo.spark.staging_job import keep_rows, write_rows  # noqa: E402


def test_files_and_their_names_are_durable_before_the_snapshot_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        if not (tmp_path / NAME).exists():
            synced.add(os.fstat(descriptor).st_ino)

    rows = tmp_path / "rows-1"
    rows.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"a": [number]}), rows / f"{number}.parquet")
    monkeypatch.setattr(os, "fsync", noted)
    source = source_of(None, None, "SELECT a FROM t", None, "parquet", {})
    snapshot = keep_rows(Order("test", tmp_path, source, ("a",), "local[1]", {}), rows, 2)
    files = [tmp_path / name for name, _ in snapshot.files]
    assert {path.stat().st_ino for path in (*files, rows, tmp_path)} <= synced


@pytest.mark.parametrize("kind", ["ZeroDivisionError", "Py4JNetworkError", "ConnectionRefusedError"])
def test_a_query_that_lost_its_java_is_run_again(tmp_path: Path, kind: str) -> None:
    protocol = pytest.importorskip("py4j.protocol")
    error = getattr(protocol, kind, None) or getattr(builtins, kind)

    def query(spark: object) -> None:
        raise error("no answer")

    order = Order("test", tmp_path, source_of(None, None, None, query, "parquet", {}), ("a",), "local[1]", {})
    with pytest.raises(StagingFailed, match="no answer") as caught:
        write_rows(None, order, tmp_path)  # type: ignore[arg-type]
    assert caught.value.is_final == (kind == "ZeroDivisionError")


class Late(Struct):
    """A class as a notebook or the topology's file may have it."""

    minutes: Annotated[int, Meta(ge=1)] = 60


def limit(spark: object) -> int:
    return convert({"minutes": 90}, Late).minutes


def test_a_query_takes_along_the_structs_of_its_module(tmp_path: Path) -> None:
    limit(None)
    data = _packed(Order("test", tmp_path, source_of(None, None, None, limit, "parquet", {}), ("a",), "local[1]", {}))
    program = "from topo.spark.staging import take_order; print(take_order(0).source.value(None))"
    sent = len(data).to_bytes(8, "big") + data
    assert subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=True).stdout == b"90\n"


def test_a_process_that_cannot_be_started_is_tried_again_until_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    spout = SparkSpout(sql="SELECT 1 AS one", fields=("one",), staging=tmp_path / "staged")
    spout.open(TaskContext("t", "rows", 1), None)
    try:
        with pytest.raises(StagingFailed, match="ended without a word"):
            end(spout)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/nowhere")
            for _ in range(3):
                with pytest.raises(TopoEnvironmentError, match="cannot start Spark's process"):
                    spout.next_tuple()
        with pytest.raises(StagingFailed, match="ended without a word"):
            end(spout)
    finally:
        spout.close()


def end(spout: SparkSpout) -> None:
    """Kill the processes that a spout has started or starts, until it reports one."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                if any("staging_job" in word for word in child.cmdline()):
                    child.kill()
        spout.next_tuple()
        time.sleep(0.01)
    pytest.fail("no process was started")
