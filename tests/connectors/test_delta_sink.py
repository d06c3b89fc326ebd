"""DeltaSink on tables of a real object store, and of a local disk; deltalake itself reads them back."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.s3_store import bucket, server, store
from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import IN_A_STORE, KindContract, SinkKind
from tests.servers.server import Server, need
from topo import DeltaSink
from topo.errors import TopoEnvironmentError
from topo.testing import TopologyTest

__all__ = ["bucket", "server"]

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("delta")]


@pytest.fixture(scope="module", autouse=True)
def _client() -> None:
    need(("deltalake", "pyarrow"))


@pytest.fixture
def options(server: Server) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": "topo",
        "AWS_SECRET_ACCESS_KEY": "planted",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture
def kind(server: Server, bucket: str, options: dict[str, str]) -> SinkKind:
    """A sink whose table is a prefix of the bucket."""
    from deltalake import DeltaTable

    def rows(folder: Path) -> list[int]:
        url = f"s3://{bucket}/{folder.name}"
        if not DeltaTable.is_deltatable(url, options):
            return []
        found: list[int] = DeltaTable(url, storage_options=options).to_pyarrow_table()["n"].to_pylist()
        return sorted(found)

    def staged(folder: Path) -> list[str]:
        files, place = store(server), f"{bucket}/{folder.name}/.staged"
        return list(files.ls(place, detail=False)) if files.exists(place) else []

    def make(folder: Path) -> DeltaSink:
        return DeltaSink(f"s3://{bucket}/{folder.name}", schema={"n": "bigint"}, storage_options=options)

    return SinkKind("S3", make, rows, staged)


@pytest.mark.parametrize("test", IN_A_STORE, ids=lambda test: test.__name__)
def test_a_table_in_a_store_keeps_the_contract(kind: SinkKind, tmp_path: Path, test: Callable[..., None]) -> None:
    test(KindContract().take(kind), tmp_path)


def test_rows_wait_while_the_store_does_not_answer(server: Server, bucket: str, options: dict[str, str]) -> None:
    from deltalake import DeltaTable

    quick = {**options, "timeout": "1s", "connect_timeout": "1s", "max_retries": "0"}
    task = ReportingTask(DeltaSink(f"s3://{bucket}/out", schema={"n": "bigint"}, storage_options=quick))
    task.write(1, 2)
    server.freeze()
    try:
        with pytest.raises(TopoEnvironmentError, match=f"cannot write to s3://{bucket}/out: "):
            task.snapshot(1)
    finally:
        server.thaw()
    task.write(3)
    task.snapshot(2)
    server.freeze()
    try:
        with pytest.raises(TopoEnvironmentError, match="cannot be read"):
            task.output.complete(2)
    finally:
        server.thaw()
    (text,) = task.texts()
    assert f"table s3://{bucket}/out is not reached, and it is tried again" in text and "planted" not in text
    task.output.complete(2)
    assert "is reached again" in task.texts()[0]
    assert sorted(DeltaTable(f"s3://{bucket}/out", storage_options=options).to_pyarrow_table()["n"].to_pylist()) == [1, 2, 3]


EXAMPLE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "topologies" / "delta_orders.py"))


@pytest.mark.parametrize("crash", ["orders", "table"])
def test_the_example_has_each_order_once_whatever_crashes(tmp_path: Path, crash: str) -> None:
    from deltalake import DeltaTable

    test = TopologyTest(lambda: EXAMPLE["topology"](str(tmp_path), 3000))
    test.advance("1500ms")
    test.crash(crash)
    test.advance("15s")
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert sorted(rows, key=lambda row: row["number"]) == EXAMPLE["made_up"](3000)
