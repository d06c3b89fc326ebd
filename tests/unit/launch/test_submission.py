"""A submission that is refused leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.errors import UserError
from topo.launch.request import RunRequest
from topo.launch.submission import new_job
from topo.storage.state_folder import StateFolder

COPY_RAISES = """
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
        raise ValueError("the copy does not load")
    builder = TopologyBuilder("flow")
    builder.set_spout("quiet", Quiet())
    return builder.build()
"""


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_refused_submission_leaves_no_folder_and_shows_its_own_error(tmp_path: Path, is_removed: bool) -> None:
    """The folder may be gone already: removed by hand, or by another process."""
    home, file = tmp_path / "home", tmp_path / "flow.py"
    file.write_text(COPY_RAISES.format(home=str(home), is_removed=is_removed))
    with pytest.raises(UserError, match="the copy does not load") as caught:
        new_job(RunRequest(topology=str(file), home=home))
    assert "No such file" not in str(caught.value)
    assert StateFolder(home).names() == []
