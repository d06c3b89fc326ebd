"""PostgresSink while the disk of the server is full."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract.two_phase_sinks import started
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.drive import TICK, tracked
from topo import PostgresSink
from topo.checkpoint.staged_output import StagedOutput

psycopg = pytest.importorskip("psycopg")

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def small_disk(database: PostgresServer) -> Iterator[tuple[str, Path]]:
    """A tablespace on a disk of 1 MiB, and a file that fills it."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = Path(tempfile.mkdtemp(prefix="topo-small-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("no small disk can be mounted here")
    name = f"s_{secrets.token_hex(6)}"
    try:
        shutil.chown(folder, "postgres")
        with psycopg.connect(database.address, autocommit=True) as connection:
            connection.execute(f"create tablespace {name} location '{folder}'")
            yield name, folder / "filler"
            connection.execute(f"drop table {name}")
            connection.execute(f"drop tablespace {name}")
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_rows_wait_while_the_disk_of_the_server_is_full(
    small_disk: tuple[str, Path], database: PostgresServer, delivery: str
) -> None:
    name, filler = small_disk
    with psycopg.connect(database.address, autocommit=True) as connection:
        connection.execute(f"create table {name} (n integer) tablespace {name}")
    sink = PostgresSink(database.address, name, ["n"])
    collector = started(sink, delivery=delivery)
    errors: list[BaseException] = []
    collector.report_error = errors.append  # type: ignore[method-assign]
    output = StagedOutput(sink)
    if delivery == "exactly_once":
        output.restore(None)
    sink.execute(tracked(n=1))
    with suppress(OSError):
        filler.write_bytes(bytes(2 << 20))
    if delivery == "exactly_once":
        output.snapshot(1)
        with pytest.raises(psycopg.errors.DiskFull):
            output.complete(1)
        filler.unlink()
        output.complete(1)
    else:
        sink.execute(TICK)
        assert isinstance(errors[0], psycopg.errors.DiskFull) and collector.failed == []
        filler.unlink()
        sink.execute(TICK)
    with psycopg.connect(database.address) as connection:
        assert connection.execute(f"select n from {name}").fetchall() == [(1,)]
    assert len(collector.acked) == 1
