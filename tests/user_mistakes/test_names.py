"""Names of topologies that a shell or a command would take for something else."""

from __future__ import annotations

import pytest

from topo import IterableSpout, TopologyBuilder
from topo.errors import TopologyError


@pytest.mark.parametrize("name", ["-rf", "--help", "-", "-1"])
def test_a_name_that_reads_as_an_option_is_refused(name: str) -> None:
    """The user names a topology `-rf`, which no command can be given."""
    builder = TopologyBuilder(name)
    builder.set_spout("numbers", IterableSpout([1]))
    with pytest.raises(TopologyError, match=f"topology name {name!r} is not allowed; .*a letter or digit first"):
        builder.build()
