"""The summary of a topology in the background: not there yet, or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.errors import TopoEnvironmentError, UserError
from topo.launch.running import RunningTopology, is_done
from topo.storage.state_folder import StateFolder, TopologyFolder


@pytest.fixture
def folder(tmp_path: Path) -> TopologyFolder:
    return StateFolder(tmp_path / "home").create("flow")


def test_topology_without_a_summary_has_not_ended(folder: TopologyFolder) -> None:
    running = RunningTopology(folder)
    assert running.outcome() is None
    with pytest.raises(UserError, match="topology 'flow' has not ended"):
        running.summary()


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_damaged_summary_is_reported_as_damaged(folder: TopologyFolder, content: str) -> None:
    folder.summary.write_bytes(content.encode(errors="surrogateescape"))
    running = RunningTopology(folder)
    for read in (running.summary, running.outcome):
        with pytest.raises(TopoEnvironmentError, match=r"summary\.json is damaged.*; remove it, and `topo resume flow`"):
            read()
    # Without checkpoints no run is done, so it can be resumed.
    assert not is_done(folder)
    (folder.checkpoints / "17").mkdir(parents=True)
    with pytest.raises(TopoEnvironmentError, match="is damaged"):
        is_done(folder)


def test_summary_that_cannot_be_read_is_no_summary_of_a_running_topology(folder: TopologyFolder) -> None:
    folder.summary.mkdir()
    with pytest.raises(TopoEnvironmentError, match=r"cannot read .*summary\.json: Is a directory"):
        RunningTopology(folder).summary()
