"""IcebergSink on tables of a real object store, and topologies of it whose processes are killed; pyiceberg reads them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.s3_store import bucket, server, store
from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import IN_A_STORE, KindContract, SinkKind, iceberg_rows
from tests.servers.server import Server, need
from topo import IcebergSink, IterableSpout, Topology, TopologyBuilder
from topo.errors import TopoEnvironmentError
from topo.testing import TopologyTest
from topologies import iceberg_visits

__all__ = ["bucket", "server"]

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("delta")]


@pytest.fixture(scope="module", autouse=True)
def _client() -> None:
    need(("pyiceberg", "pyarrow"))


@pytest.fixture
def settings(server: Server, bucket: str) -> dict[str, str]:
    return {
        "type": "sql",
        "warehouse": f"s3://{bucket}",
        "s3.endpoint": server.address,
        "s3.access-key-id": "topo",
        "s3.secret-access-key": "planted",
        "s3.region": "us-east-1",
        "s3.connect-timeout": "1",
        "s3.request-timeout": "2",
    }


def catalog(settings: dict[str, str], folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    return {**settings, "uri": f"sqlite:///{folder / 'catalog.db'}"}


@pytest.fixture
def kind(server: Server, bucket: str, settings: dict[str, str]) -> SinkKind:
    """A sink whose table is in the bucket; each folder has one catalog and one table."""

    def staged(folder: Path) -> list[str]:
        files, place = store(server), f"{bucket}/shop/{folder.name}/data/.staged"
        # pyarrow leaves an object for a folder that it has emptied.
        return [path for path in files.ls(place, detail=False) if path[-1] != "/"] if files.exists(place) else []

    return SinkKind(
        "S3",
        lambda folder: IcebergSink(catalog(settings, folder), f"shop.{folder.name}", schema={"n": "bigint"}),
        lambda folder: [row["n"] for row in iceberg_rows(folder, f"shop.{folder.name}", catalog(settings, folder))],
        staged,
    )


@pytest.mark.parametrize("test", IN_A_STORE, ids=lambda test: test.__name__)
def test_a_table_in_a_store_keeps_the_contract(kind: SinkKind, tmp_path: Path, test: Callable[..., None]) -> None:
    test(KindContract().take(kind), tmp_path)


def test_rows_wait_while_the_store_does_not_answer(server: Server, settings: dict[str, str], tmp_path: Path) -> None:
    given = catalog(settings, tmp_path)
    task = ReportingTask(IcebergSink(given, "shop.out", schema={"n": "bigint"}))
    task.write(1, 2)
    task.snapshot(1)
    server.freeze()
    try:
        with pytest.raises(TopoEnvironmentError):
            task.output.complete(1)
    finally:
        server.thaw()
    (text,) = task.texts()
    assert "table shop.out is not reached, and it is tried again" in text and "planted" not in text
    task.output.complete(1)
    assert "is reached again" in task.texts()[0]
    assert iceberg_rows(tmp_path, "shop.out", given) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("crash", ["numbers", "table"])
def test_a_topology_with_several_tasks_has_each_row_once_whatever_crashes(tmp_path: Path, crash: str) -> None:
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": f"file://{tmp_path / 'warehouse'}"}

    def topology() -> Topology:
        builder = TopologyBuilder("iceberg").config(delivery="exactly_once", checkpoint_interval="1s")
        builder.set_spout("numbers", IterableSpout(range(3000), fields=("n",)))
        sink = IcebergSink(given, "shop.out", schema={"n": "bigint"})
        builder.set_bolt("table", sink, 3).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology)
    test.advance("1500ms")
    test.crash(crash)
    test.advance("15s")
    assert sorted(row["n"] for row in iceberg_rows(tmp_path, "shop.out", given)) == list(range(3000))


@pytest.mark.parametrize("crash", ["clicks", "window", "table"])
def test_the_example_has_each_row_once_whatever_crashes(tmp_path: Path, crash: str) -> None:
    test = TopologyTest(lambda: iceberg_visits.topology(str(tmp_path), 9000))
    test.advance("1500ms")
    test.crash(crash)
    test.advance("15s")
    visits = [iceberg_visits.visit(click.user, click.at // 60_000 * 60_000, 1) for click in iceberg_visits.made_up(9000)]
    clicks = Counter((one.day, one.minute, one.user) for one in visits)
    rows = iceberg_visits.read(str(tmp_path)).to_pylist()
    assert Counter({(row["day"], row["minute"], row["user"]): row["clicks"] for row in rows}) == clicks and len(rows) == len(
        clicks
    )
