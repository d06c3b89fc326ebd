"""A submission that is refused leaves nothing behind, and removes nothing of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from topo import TopologyBuilder
from topo.errors import NotFoundError, UserError
from topo.launch.cores import usable_cores
from topo.launch.request import RunRequest
from topo.launch.submission import new_job, stored_job
from topo.plan.placement import most_workers
from topo.storage.state_folder import StateFolder, StateFolderLost
from topo_cli.wait_for_start import lines_of_start

TOPOLOGY = """
import shutil
from pathlib import Path
from topo import Spout, TopologyBuilder

HERE, HOME = Path(__file__), Path({home!r})

class Quiet(Spout):
    outputs = ("value",)
    def next_tuple(self):
        pass

def topology():
    if HOME in HERE.parents:
        if {is_removed}:
            shutil.rmtree(HOME / "topologies" / "flow")
        {then}
    builder = TopologyBuilder("flow")
    builder.set_spout("quiet", Quiet())
    return builder.build()
"""


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_refused_submission_leaves_no_folder_and_shows_its_own_error(tmp_path: Path, is_removed: bool) -> None:
    """The folder may be gone already: removed by hand, or by another process."""
    home, file = tmp_path / "home", tmp_path / "flow.py"
    file.write_text(TOPOLOGY.format(home=str(home), is_removed=is_removed, then='raise ValueError("the copy does not load")'))
    with pytest.raises(UserError, match="the copy does not load") as caught:
        new_job(RunRequest(topology=str(file), home=home))
    assert "No such file" not in str(caught.value)
    assert StateFolder(home).names() == []


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_submission_that_lost_its_folder_is_refused_and_leaves_that_of_another(tmp_path: Path, is_replaced: bool) -> None:
    """The other submission has its folder and its lock, and no topology.json yet."""
    home, file = tmp_path / "home", tmp_path / "flow.py"
    other = "from topo.storage.state_folder import StateFolder; StateFolder(HOME).create('flow').lock().release()"
    file.write_text(TOPOLOGY.format(home=str(home), is_removed=True, then=other if is_replaced else "pass"))
    with pytest.raises(StateFolderLost, match="removed or replaced while 'flow' used it"):
        new_job(RunRequest(topology=str(file), home=home))
    assert StateFolder(home).names() == ["flow"] * is_replaced


@pytest.mark.parametrize("given", ["auto", "off", 5])
def test_a_submission_on_this_machine_packs_many_tasks_and_later_masters_plan_alike(tmp_path: Path, given: str | int) -> None:
    home, file, most = tmp_path / "home", tmp_path / "flow.py", most_workers(usable_cores())
    file.write_text(TOPOLOGY.format(home=str(home), is_removed=False, then="pass"))
    settings = {} if given == "auto" else {"workers": given}
    job = new_job(RunRequest(topology=str(file), home=home, settings=settings, parallelism={"quiet": most + 20}))
    expected = {"auto": most, "off": most + 21, 5: 5}[given]
    assert (len(job.plan.workers), job.submitted.cores) == (expected, usable_cores())
    assert any(f"{expected} workers (the default" in line for line in lines_of_start(job.folder, "")) == (given == "auto")

    assert stored_job(job.folder).plan == job.plan
    replace(job.submitted, cores=1 + usable_cores() * 8).save(job.folder)
    moved = len(stored_job(job.folder).plan.workers)
    assert moved == (most + 21 if given == "auto" else expected), "it goes by the cores of the submission, not by these"


def test_code_that_is_gone_from_the_state_folder_is_named_with_the_way_out(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "flow.py"
    file.write_text(TOPOLOGY.format(home=str(home), is_removed=False, then="pass"))
    job = new_job(RunRequest(topology=str(file), home=home))
    shutil.rmtree(job.folder.code)
    with pytest.raises(NotFoundError, match=r"flow\.py:topology, is gone; `topo resume flow --code FILE` continues"):
        stored_job(job.folder)


@pytest.mark.parametrize("summary", ["{", "[]", "{}"])
def test_a_damaged_summary_of_the_last_run_keeps_nothing_from_being_submitted(tmp_path: Path, summary: str) -> None:
    home, file = tmp_path / "home", tmp_path / "flow.py"
    file.write_text(TOPOLOGY.format(home=str(home), is_removed=False, then="pass"))
    request = RunRequest(topology=str(file), home=home)
    new_job(request).folder.summary.write_text(summary)
    assert new_job(request).submitted.name == "flow"


def test_a_path_names_a_topology_and_what_names_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text(TOPOLOGY.format(home="/nowhere", is_removed=False, then="pass"))
    assert new_job(RunRequest(file, home=tmp_path / "home")).submitted.name == "flow"
    for given in (TopologyBuilder("flow"), lambda: None):
        with pytest.raises(UserError, match=rf"a {type(given).__name__} is no topology: give a Topology, as build\(\) returns"):
            new_job(RunRequest(given, home=tmp_path / "home"))  # type: ignore[arg-type]
