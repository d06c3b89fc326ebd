"""Clients of masters."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.master_process.client import LastingClient, Unreachable
from topo.storage.state_folder import StateFolder


def test_a_client_drops_its_connection_to_a_topology_that_has_ended(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    client = LastingClient.of(folder)
    with client._connected(f"ipc://{tmp_path}/client"):
        assert client._kept is not None
    with pytest.raises(Unreachable, match="is not running"):
        client.request("ping")
    assert client._kept is None
