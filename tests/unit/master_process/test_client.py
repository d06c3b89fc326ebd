"""Clients of masters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topo.master_process.client import Client, LastingClient, Unreachable
from topo.storage.state_folder import StateFolder


def test_a_client_drops_its_connection_to_a_topology_that_has_ended(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    client = LastingClient.of(folder)
    with client._connected(f"ipc://{tmp_path}/client"):
        assert client._kept is not None
    with pytest.raises(Unreachable, match="is not running"):
        client.request("ping")
    assert client._kept is None


def test_a_master_that_has_no_address_yet_is_named_with_the_command_that_ends_it(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    with folder.lock(), pytest.raises(Unreachable, match=rf"not published its address yet.*`kill {os.getpid()}` ends it"):
        Client.of(folder).request("kill")
