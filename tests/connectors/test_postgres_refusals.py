"""What PostgreSQL refuses: certificates, rights that are taken back, a table that is replaced under its spout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import self_signed
from tests.connectors.postgres_tables import new_table, run, values
from tests.connectors.sink_tasks import ReportingTask
from tests.connectors.spout_tasks import until
from tests.servers.postgres import PostgresServer, start
from tests.unit.connectors.drive import TICK
from topo import ConfigError, PostgresSink, PostgresSpout, TaskContext
from topo.api.streams import declared_streams
from topo.emission.collectors import BoltCollector
from topo.errors import RightMissingError
from topo.testing.partition_harness import PartitionHarness

psycopg = pytest.importorskip("psycopg")

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("postgres")]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Path]]:
    """A server that requires TLS, and its certificate."""
    files = self_signed(tmp_path_factory.mktemp("tls"), "127.0.0.1")
    server = start(certificate=files)
    yield server, files[0]
    server.stop()


@pytest.fixture
def table(dsn: str) -> str:
    return new_table(dsn)


def test_tables_are_read_over_tls_from_a_server_whose_certificate_fits(
    secured: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    server, authority = secured
    run(server.address, "create table orders (id bigserial primary key, n int); insert into orders (n) values (7)")
    base = f"port={server.port} dbname=postgres user=topo sslmode=verify-full"
    harness = PartitionHarness(lambda: PostgresSpout(f"{base} host=127.0.0.1 sslrootcert={authority}", "orders", ["n"], key="id"))
    until(harness, lambda: values(harness) == [7])
    assert harness.errors == []
    harness.stop()

    # Without these refusals a task would wait for minutes, as for a server that is away.
    other, _ = self_signed(tmp_path, "127.0.0.1")
    for rest, reason in (
        (f"host=127.0.0.1 sslrootcert={other}", "of an unknown authority; give its file as sslrootcert"),
        (f"host=localhost hostaddr=127.0.0.1 sslrootcert={authority}", "for another host; correct the host"),
        ("host=127.0.0.1 sslmode=disable", "refuses the connection.* no encryption"),
    ):
        with pytest.raises(ConfigError, match=reason):
            PartitionHarness(lambda rest=rest: PostgresSpout(f"{base} {rest}", "orders", ["n"], key="id"))
        with pytest.raises(ConfigError, match=reason):
            ReportingTask(PostgresSink(f"{base} {rest}", "orders", ["n"]))


def test_a_table_that_is_replaced_under_its_spout_is_reported(dsn: str, table: str) -> None:
    run(dsn, f"insert into {table} (n) select generate_series(1, 5)")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id"))
    until(harness, lambda: len(values(harness)) == 5)
    run(dsn, f"drop table {table}; create table {table} (id bigserial primary key, n int); insert into {table} (n) values (6)")
    until(harness, lambda: harness.errors)
    assert "was read up to id=5, and its sequence is at 1: the table is a new one" in str(harness.errors[0])
    assert f"select setval('{table}_id_seq', 5)" in str(harness.errors[0])

    run(dsn, f"select setval('{table}_id_seq', 5); insert into {table} (n) values (6)")
    until(harness, lambda: values(harness) == [1, 2, 3, 4, 5, 6])
    harness.stop()


def test_rows_that_are_deleted_when_they_are_read_are_no_sign_of_another_table(dsn: str, table: str) -> None:
    run(dsn, f"insert into {table} (n) select generate_series(1, 5)")
    harness = PartitionHarness(lambda: PostgresSpout(dsn, table, ["n"], key="id"))
    until(harness, lambda: len(values(harness)) == 5)
    run(dsn, f"delete from {table}")
    until(harness, lambda: harness.clock() > 10)
    run(dsn, f"insert into {table} (n) values (6)")
    until(harness, lambda: values(harness) == [1, 2, 3, 4, 5, 6])
    assert harness.errors == []
    harness.stop()


def test_the_right_to_read_that_is_taken_back_is_named(dsn: str, table: str) -> None:
    run(dsn, f"create role {table} login; grant select on {table} to {table}; insert into {table} (n) values (1)")
    user = dsn.replace("user=topo", f"user={table}")
    harness = PartitionHarness(lambda: PostgresSpout(user, table, ["n"], key="id"))
    until(harness, lambda: values(harness) == [1])
    run(dsn, f"revoke select on {table} from {table}; insert into {table} (n) values (2)")
    until(harness, lambda: any("grant this user select on it" in str(error) for error in harness.errors))
    run(dsn, f"grant select on {table} to {table}")
    until(harness, lambda: values(harness) == [1, 2])
    harness.stop()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_the_right_to_write_that_is_taken_back_is_named(dsn: str, table: str, delivery: str) -> None:
    run(dsn, f"create role {table} login; grant select, insert, update, delete on {table} to {table}")
    run(dsn, f"grant usage on sequence {table}_id_seq to {table}; grant create on schema public to {table}")
    task = ReportingTask(PostgresSink(dsn.replace("user=topo", f"user={table}"), table, ["n"], max_batch=1), delivery)
    run(dsn, f"revoke insert on {table} from {table}")
    task.write(1)
    if delivery == "exactly_once":
        task.snapshot(1)
        with pytest.raises(RightMissingError, match="grant this user insert on it"):
            task.output.complete(1)
    else:
        assert "grant this user insert on it" in task.texts()[0]
    assert "grant this user insert on it" in task.sink.refusal
    run(dsn, f"grant insert on {table} to {table}")
    if delivery == "exactly_once":
        task.output.complete(1)
    else:
        task.sink.execute(TICK)
    assert task.sink.refusal == "" and run(dsn, f"select n from {table}") == [(1,)]


def test_the_gauge_of_a_sink_that_has_ended_shows_no_outage(dsn: str, table: str) -> None:
    sink, context = PostgresSink(dsn, table, ["n"]), TaskContext("test", "sink", 1)
    sink.prepare(context, BoltCollector("sink", declared_streams(sink.outputs), lambda error: None))
    sink.cleanup()
    assert context.metrics.gauge("connected").value == 1
