"""Programs in a notebook, run by a real Jupyter kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.servers.server import need

pytestmark = [pytest.mark.integration, pytest.mark.server]

WORDS = """
from topo.streams import AT_END, StreamBuilder

flow = StreamBuilder("words")
lines = flow.from_iterable(["a b a", "b c"] * 50, of=str)
counts = lines.flat_map(str.split).key_by(lambda word: word).count(emit=AT_END).entries().collect()
flow.run()
print(sorted(counts))
"""
RAISES = """
failing = StreamBuilder("failing")
failing.from_iterable([1, 0, 2], of=int).map(lambda number:
    1 / number).to(print)
failing.run()
"""
LOCK = """
import threading

lock = threading.Lock()
locked = StreamBuilder("locked")
locked.from_iterable(["x"], of=str).map(lambda text: (lock, text)[1]).to(print)
locked.run()
"""
BOLT = """
from topo import BasicBolt, IterableSpout, TopologyBuilder

class Broken(BasicBolt):
    def execute(self, tup):
        pass

builder = TopologyBuilder("broken")
builder.set_spout("numbers", IterableSpout([1]))
builder.set_bolt("broken", Broken()).shuffle_grouping("missing")
builder.build()
"""


def test_a_notebook_runs_programs_and_shows_faults_with_cell_and_line(tmp_path: Path) -> None:
    need(("ipykernel", "nbclient", "cloudpickle"), "jupyter")
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    cells = [WORDS, "flow.explain()", RAISES, LOCK, BOLT]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    where = {"metadata": {"path": tmp_path}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True, resources=where).execute()
    words, explained, raised, locked, broken = [printed(cell) for cell in notebook.cells]
    assert "[('a', 100), ('b', 100), ('c', 50)]" in words
    assert explained.lstrip().startswith("program words\n\nitems x1")
    assert 'c0 -->|"by key"| c1' in explained and 'c1 -->|"to its task"| c2' in explained
    assert "ZeroDivisionError: division by zero (Cell In[3], line 3)" in raised and "1 message was given up" in raised
    assert "map at Cell In[4]:5 captures 'lock', a lock" in locked
    assert "reads from 'missing'" in broken and "(Cell In[5]:9)" in broken
    assert "(Cell In[5]:4)" in broken


def printed(cell: Any) -> str:
    """Return all that a cell has printed, shown and raised, without colours."""
    found = []
    for output in cell.outputs:
        found += [output.get("text", ""), output.get("evalue", ""), *map(str, output.get("data", {}).values())]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(found))
