"""PostgresSink on a real server: the contract of two-phase sinks, kills, a server that is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.connectors.postgres_tables import Table, table
from tests.contract.killing import Report, run_child
from tests.contract.test_killed_sinks import Master, check_recovery, life_of
from tests.contract.two_phase_sinks import KindContract, SinkKind, SinkTask, started
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.drive import TICK, tracked
from topo import (
    SinkBlockedError,
    TaskContext,
    TopoEnvironmentError,
    TopologyConfig,
)
from topo.api.streams import declared_streams
from topo.emission.collectors import BoltCollector
from topo.errors import StagedRowsLostError

psycopg = pytest.importorskip("psycopg")

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("postgres")]
__all__ = ["table"]


def kind_of(table: Table, key: str | None) -> SinkKind:
    table.run(f"create table T (n integer {'primary key' if key else ''})")
    return SinkKind(
        "postgres",
        lambda _folder: table.sink(["n"], key=key),
        lambda _folder: [n for (n,) in table.run("select n from T order by ctid")],
        lambda _folder: [process for (process,) in table.run("select __process from T__staged")] if staged(table) else [],
    )


def staged(table: Table) -> bool:
    ((found,),) = table.run("select to_regclass('T__staged') is not null")
    return bool(found)


@pytest.fixture(params=["in memory", "spilled"])
def spilling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that fit into memory, and such that do not."""
    if request.param == "spilled":
        monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 2)


@pytest.fixture(params=[None, "n"], ids=["every row", "with a key"])
def kind(request: pytest.FixtureRequest, table: Table, spilling: None) -> SinkKind:
    return kind_of(table, request.param)


class TestContract(KindContract):
    """The promises of every two-phase sink."""


# -- kills -------------------------------------------------------------------------------------------------------------------


def test_killed_before_and_after_any_request_a_sink_recovers_the_rows_of_the_checkpoint(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every seventh step: a life of 4 checkpoints has some 260."""
    monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 2)
    step, is_done, completed = 1, False, set()
    while not is_done:
        one = Table(table.address, f"{table.name}_{step}")
        kind = kind_of(one, None)
        master = Master()
        is_done, reports = run_child(life_of(kind, tmp_path, master), step)
        master.note(reports)
        completed.add(master.complete)
        check_recovery(kind, tmp_path, master)
        one.run("drop table T, T__staged, T__committed" if staged(one) else "drop table T")
        step += 7
    assert completed == {0, 1, 2, 4}
    assert step > 100


def test_a_move_that_two_processes_begin_at_once_is_made_once(table: Table, tmp_path: Path) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    ((_, token),) = state = task.snapshot(1)
    store: Any = task.sink._store  # type: ignore[attr-defined]

    def other(report: Report) -> None:
        report("begins")
        SinkTask(kind, tmp_path, state=state).die()
        report("is done")

    with store.transaction():
        assert store.mark(token[0], token[1])
        # The other process waits for this transaction, which moves the rows.
        ended: list[Any] = []
        thread = Thread(target=lambda: ended.append(run_child(other, 10_000)))
        thread.start()
        wait_for(lambda: table.run("select 1 from pg_stat_activity where wait_event_type = 'Lock'"))
        store.move(token[0], token[1])
        store.drop(token[0], token[1])
    thread.join()
    assert ended == [(True, ["begins", "is done"])]
    assert kind.rows(tmp_path) == [1, 2] and kind.staged(tmp_path) == []


def test_rows_whose_staging_was_not_answered_are_staged_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    store: Any = task.sink._store  # type: ignore[attr-defined]

    @contextmanager
    def unanswered() -> Iterator[None]:
        with type(store).transaction(store):
            yield
        raise psycopg.OperationalError("the answer is lost")

    with monkeypatch.context() as patch, pytest.raises(psycopg.OperationalError, match="the answer is lost"):
        patch.setattr(store, "transaction", unanswered)
        task.snapshot(1)
    task.write(3)
    task.snapshot(2)
    task.output.complete(2)
    assert kind.rows(tmp_path) == [1, 2, 3] and kind.staged(tmp_path) == []


def wait_for(found: Callable[[], Any]) -> None:
    until = time.monotonic() + 30
    while not found():
        assert time.monotonic() < until
        time.sleep(0.02)


# -- the server is gone ------------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_in_a_transaction_gets_its_rows_when_it_is_back(
    database: PostgresServer, table: Table, tmp_path: Path
) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    task.snapshot(1)
    task.write(3)
    database.kill()
    try:
        with pytest.raises(psycopg.OperationalError, match=r"PostgresSink: table '.*' in database '.*' at /"):
            task.output.complete(1)
        with pytest.raises(psycopg.OperationalError, match=r"PostgresSink: table '.*' in database '.*' at /"):
            task.snapshot(2)
        task.write(4)
    finally:
        database.start_again()
    task.output.complete(1)
    assert kind.rows(tmp_path) == [1, 2]
    task.snapshot(3)
    task.output.complete(3)
    assert kind.rows(tmp_path) == [1, 2, 3, 4] and kind.staged(tmp_path) == []


def test_while_the_server_is_gone_rows_wait_up_to_a_limit(
    database: PostgresServer, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 3)
    monkeypatch.setattr("topo.connectors.spilling._MOST_ROWS", 9)
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    database.kill()
    try:
        task.write(1, 2, 3)
        with pytest.raises(TopoEnvironmentError, match="3 rows wait in memory, and it is tried again"):
            task.write(4)
        with pytest.raises(SinkBlockedError, match="go back to the last checkpoint"):
            task.write(*range(4, 12))
    finally:
        database.start_again()


def test_a_batch_is_kept_while_the_server_is_gone_and_acked_when_it_is_back(database: PostgresServer, table: Table) -> None:
    table.run("create table T (n integer)")
    sink = table.sink(["n"])
    collector = started(sink, delivery="at_least_once")
    errors: list[BaseException] = []
    collector.report_error = errors.append  # type: ignore[method-assign]
    sink.execute(tup := tracked(n=1))
    database.kill()
    try:
        sink.execute(TICK)
        sink.execute(TICK)
        assert all(f"PostgresSink: table {table.name!r} in database " in str(error) for error in errors)
        assert len(errors) == 2 and collector.acked == [] and collector.failed == []
    finally:
        database.start_again()
    sink.execute(TICK)
    assert collector.acked == [tup] and table.run("select * from T") == [(1,)]


def test_a_server_that_answers_nothing_fails_the_call_and_not_the_worker(database: PostgresServer, table: Table) -> None:
    table.run("create table T (n integer)")
    sink = table.sink(["n"])
    errors: list[BaseException] = []
    collector = BoltCollector("sink", declared_streams(sink.outputs), errors.append)
    config = replace(TopologyConfig(), delivery="at_least_once", progress_timeout_s=1.0)
    sink.prepare(TaskContext("test", "sink", 1, config=config, clock=time.monotonic), collector)
    sink.execute(tracked(n=1))
    database.freeze()
    try:
        sink.execute(TICK)
    finally:
        database.thaw()
    assert "no answer within 0.7 s" in str(errors[0])
    sink.execute(TICK)
    assert len(collector.acked) == 1 and table.run("select * from T") in ([(1,)], [(1,), (1,)])


def test_staged_rows_that_are_gone_are_reported(table: Table, tmp_path: Path) -> None:
    kind = kind_of(table, None)
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    task.snapshot(1)
    table.run("delete from T__staged where n = 1")
    with pytest.raises(StagedRowsLostError, match=r"2 rows were staged for table 't_.*', and 1 of them"):
        task.output.complete(1)


def test_metrics_show_the_rows_that_wait_and_count_once_those_that_were_moved(table: Table) -> None:
    table.run("create table T (a int)")
    sink = table.sink(["a"])
    config = replace(TopologyConfig(), delivery="exactly_once")
    context = TaskContext("test", "sink", 1, config=config)
    sink.prepare(context, BoltCollector("sink", declared_streams(sink.outputs), lambda error: None))
    tokens = []
    for rows in (1, 2, 3):
        sink.begin()
        for n in range(rows):
            sink.execute(tracked(a=n))
        tokens.append(sink.pre_commit())
    waiting, rows_counter = context.metrics.gauge("staged_rows"), context.metrics.counter("rows")
    assert (waiting.value, rows_counter.value) == (6, 0)
    sink.commit(tokens[0])
    sink.commit(tokens[0])
    assert (waiting.value, rows_counter.value) == (5, 1)
    table.run("delete from T__staged where __number = 1")
    sink.commit(tokens[1])
    sink.abort(tokens[2])
    assert (waiting.value, rows_counter.value) == (0, 1)
