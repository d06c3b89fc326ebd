from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
from tests.unit.plan.parts import diamond
from topo.plan.physical import physical_plan
print(physical_plan(diamond(workers=3, backoff=("1s", "2s"))).digest("code"))
"""


def test_processes_with_different_hash_seeds_have_the_same_digest() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
