"""Child processes of user code that write to the worker's standard streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.drive import piped

pytestmark = pytest.mark.integration

FLOW = """
import subprocess, sys
from topo import BasicBolt, IterableSpout, TopologyBuilder


class Shell(BasicBolt):
    def execute(self, tup, collector):
        sys.stdout.reconfigure(line_buffering=True)
        sys.stdout.buffer.write(b"bytes\\n")
        subprocess.run(["echo", "child", tup["value"]], stdout=sys.stdout, stderr=sys.stderr, check=True)


builder = TopologyBuilder("child-output")
builder.set_spout("words", IterableSpout(["one"]))
builder.set_bolt("shell", Shell()).shuffle_grouping("words")
topology = builder.build()
"""


def test_output_of_a_subprocess_is_shown_with_the_workers_own(tmp_path: Path) -> None:
    """`subprocess.run(..., stdout=sys.stdout)` in a bolt, as it works in any script."""
    (tmp_path / "flow.py").write_text(FLOW)

    done = piped("run", tmp_path / "flow.py", "--quiet")

    assert done.code == 0, done.err
    assert done.out.splitlines()[:2] == ["bytes", "child one"]


def test_output_of_a_subprocess_without_streams_is_named(tmp_path: Path) -> None:
    """`subprocess.run(["echo", ...])`, whose output goes to the process's own streams: no log has it."""
    (tmp_path / "flow.py").write_text(FLOW.replace(", stdout=sys.stdout, stderr=sys.stderr", ""))

    done = piped("run", tmp_path / "flow.py")
    logs = piped("logs", "child-output")

    (note,) = [line for line in done.err.splitlines() if line.startswith("output of child processes, C code or crashes: ")]
    assert note in logs.err
    assert Path(note.rpartition(": ")[2]).read_text() == "child one\n"
