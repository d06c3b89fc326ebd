"""IcebergSink with a REST catalog; pyiceberg reads the tables back."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import IN_A_STORE, KindContract, SinkKind, iceberg_rows
from tests.servers import iceberg_rest
from tests.servers.server import Server
from topo import IcebergSink, IterableSpout, Topology, TopologyBuilder
from topo.errors import TopoEnvironmentError
from topo.testing import TopologyTest

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("delta")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The catalog. A proxy of the machine is not asked for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        started = iceberg_rest.start(tmp_path_factory.mktemp("rest"))
        yield started
        started.stop()


@pytest.fixture
def catalog(server: Server) -> dict[str, str]:
    return {"type": "rest", "uri": server.address}


@pytest.fixture
def kind(catalog: dict[str, str]) -> SinkKind:
    """A sink whose table is the folder's own."""
    run = secrets.token_hex(6)

    def table_of(folder: Path) -> str:
        return f"shop.{run}_{folder.name}"

    def staged(folder: Path) -> list[str]:
        from pyiceberg.catalog import load_catalog

        place = load_catalog("topo", **catalog).load_table(table_of(folder)).location().removeprefix("file:")
        return [str(path) for path in Path(place, "data", ".staged").glob("*")]

    return SinkKind(
        "REST",
        lambda folder: IcebergSink(catalog, table_of(folder), schema={"n": "bigint"}),
        lambda folder: [row["n"] for row in iceberg_rows(folder, table_of(folder), catalog)],
        staged,
    )


def test_a_catalog_that_answers_nothing_from_the_start_is_an_error_of_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from topo.connectors.iceberg.table import IcebergTable

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("topo.connectors.iceberg.table._REST_TIMEOUTS", (1.0, 1.0))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        table = IcebergTable({"uri": f"http://127.0.0.1:{silent.getsockname()[1]}"}, "shop.orders")
        with pytest.raises(TopoEnvironmentError, match=r"cannot be opened.*timed out"):
            table.open(None, ())


@pytest.mark.parametrize("test", IN_A_STORE, ids=lambda test: test.__name__)
def test_a_table_of_a_rest_catalog_keeps_the_contract(kind: SinkKind, tmp_path: Path, test: Callable[..., None]) -> None:
    test(KindContract().take(kind), tmp_path)


def test_rows_wait_while_the_catalog_does_not_answer(
    server: Server, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pytest.importorskip("topo.connectors.iceberg.table")
    monkeypatch.setattr(table, "_REST_TIMEOUTS", (1.0, 2.0))
    task = ReportingTask(IcebergSink(catalog, "shop.waits", schema={"n": "bigint"}))
    task.write(1, 2)
    task.snapshot(1)
    server.freeze()
    try:
        with pytest.raises(TopoEnvironmentError):
            task.output.complete(1)
    finally:
        server.thaw()
    (text,) = task.texts()
    assert "table shop.waits is not reached, and it is tried again" in text
    task.output.complete(1)
    assert "is reached again" in task.texts()[0]
    assert iceberg_rows(Path(), "shop.waits", catalog) == [{"n": 1}, {"n": 2}]


def test_the_files_of_a_local_table_are_durable_before_the_catalog_names_them(catalog: dict[str, str]) -> None:
    from topo.connectors.iceberg.durable_files import DurableFileIO

    task = ReportingTask(IcebergSink(catalog, "shop.durable", schema={"n": "bigint"}))
    assert isinstance(task.sink._log._table.io, DurableFileIO)


@pytest.mark.parametrize("crash", ["numbers", "table"])
def test_a_topology_with_several_tasks_has_each_row_once_whatever_crashes(catalog: dict[str, str], crash: str) -> None:
    name = f"shop.crash_{crash}"

    def topology() -> Topology:
        builder = TopologyBuilder("iceberg").config(delivery="exactly_once", checkpoint_interval="1s")
        builder.set_spout("numbers", IterableSpout(range(3000), fields=("n",)))
        sink = IcebergSink(catalog, name, schema={"n": "bigint"})
        builder.set_bolt("table", sink, 3).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology)
    test.advance("1500ms")
    test.crash(crash)
    test.advance("15s")
    assert sorted(row["n"] for row in iceberg_rows(Path(), name, catalog)) == list(range(3000))
