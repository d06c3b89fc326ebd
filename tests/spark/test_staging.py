"""Staging without Spark: rows that are on the disk when the snapshot names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from topo.spark.snapshot import NAME  # noqa: E402
from topo.spark.spark_source import source_of  # noqa: E402
from topo.spark.staging import Order  # noqa: E402
from topo.spark.staging_job import keep_rows  # noqa: E402


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
