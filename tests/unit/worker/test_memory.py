"""A process that has filled its memory is distinguished from a request for too much."""

from __future__ import annotations

import subprocess
import sys

import pytest

from topo.worker.memory import is_memory_short

FILL = """
import resource, sys
from topo.worker.memory import is_memory_short
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
held = []
try:
    while True:
        held.append(bytearray({step}))
except MemoryError:
    print(is_memory_short())
"""


@pytest.mark.parametrize(("step", "short"), [(1 << 20, "True"), (100 << 20, "True"), (1 << 40, "False")])
def test_memory_that_leaks_away_is_short_and_a_single_large_wish_is_not(step: int, short: str) -> None:
    done = subprocess.run([sys.executable, "-c", FILL.replace("{step}", str(step))], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == short, done.stderr


def test_this_process_has_memory() -> None:
    assert not is_memory_short()
