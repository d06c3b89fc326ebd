"""A `FilesSpout` in a harness, as several test files read with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from topo import FilesSpout
from topo.testing.partition_harness import PartitionHarness


def harness_of(folder: Path | str, **settings: Any) -> PartitionHarness:
    harness = PartitionHarness(lambda: FilesSpout(folder, settle="0s", **settings))
    harness.turns(40)
    return harness
