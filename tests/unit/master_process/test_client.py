"""Clients of masters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topo.ids import Epoch
from topo.master.commands import MasterRecord
from topo.master_process.client import Client, LastingClient, Unreachable
from topo.operate.topology_index import list_row
from topo.storage.master_record import write_record
from topo.storage.state_folder import StateFolder


def test_a_client_drops_its_connection_to_a_topology_that_has_ended(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    client = LastingClient.of(folder)
    with client._connected(f"ipc://{tmp_path}/client"):
        assert client._kept is not None
    folder.summary.write_bytes(b"{}")
    with pytest.raises(Unreachable, match="is not running; `topo status words` shows how it ended"):
        client.request("ping")
    assert client._kept is None


def test_a_topology_that_has_processed_its_input_is_not_offered_a_resume(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    folder.summary.write_text('{"status": "FINISHED"}')
    with pytest.raises(Unreachable, match=r"it has processed all its input; `topo status words` shows its figures$"):
        Client.of(folder).request("kill")


def test_a_lost_master_is_not_reported_as_the_end_of_its_topology(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    with pytest.raises(Unreachable, match=r"left no summary; workers that it left end.*`topo resume words`"):
        Client.of(folder).request("kill")


def test_a_master_that_has_no_address_yet_is_named_with_the_command_that_ends_it(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    with folder.lock(), pytest.raises(Unreachable, match=rf"not published its address yet.*`kill {os.getpid()}` ends it"):
        Client.of(folder).request("kill")
    # That of the last master, which this one has not replaced yet.
    write_record(folder.master, MasterRecord(1, Epoch(1), {}), pid=1, client_endpoint=f"ipc://{tmp_path}/gone")
    with folder.lock():
        with pytest.raises(Unreachable, match="not published its address yet"):
            Client.of(folder).request("kill", 0.1)
        assert list_row(folder, 0.1)["status"] == "STARTING"
    assert list_row(folder, 0.1)["status"] == "LOST"
