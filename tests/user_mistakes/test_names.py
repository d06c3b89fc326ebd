"""Names of topologies that a shell or a command would take for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.drive import piped
from topo import IterableSpout, TopologyBuilder
from topo.errors import TopologyError

ONE = """
from topo import IterableSpout, PrintBolt, TopologyBuilder

def topology():
    builder = TopologyBuilder("one")
    builder.set_spout("numbers", IterableSpout([1]))
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("numbers")
    return builder.build()
"""


@pytest.mark.parametrize("name", ["-rf", "--help", "-", "-1"])
def test_a_name_that_reads_as_an_option_is_refused(name: str) -> None:
    """The user names a topology `-rf`, which no command can be given."""
    builder = TopologyBuilder(name)
    builder.set_spout("numbers", IterableSpout([1]))
    with pytest.raises(TopologyError, match=f"topology name {name!r} is not allowed; .*no '-' as the first"):
        builder.build()


@pytest.mark.integration
@pytest.mark.parametrize("command", ["validate", "run", "submit"])
def test_an_empty_name_is_refused(command: str, tmp_path: Path, topo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script passes `--name "$NAME"`, and the variable is not set."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text(ONE)
    answer = piped(command, "one.py", "--name", "")
    assert answer.code == 2
    assert "topology name '' is not allowed; use 1 to 63 of a-z, 0-9 and '-'" in answer.out + answer.err
    assert not list(topo_home.glob("topologies/*"))
