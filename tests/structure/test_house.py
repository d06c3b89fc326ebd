"""The shape of the code base: who imports whom, how deep classes are, how long modules, which names mean several things.

`scripts/house_figures.py` measures. The lists of exceptions may only get shorter: take an entry out as soon as it is not needed.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]

MOST_LINES = 450
MEDIAN_LINES = 150

DEEPEST = 2
DEEP_CLASSES: Mapping[str, int] = {
    "topo.connectors.delta.sink.DeltaSink": 3,
    "topo.connectors.iceberg.sink.IcebergSink": 3,
    "topo.streams.collecting.CollectSink": 3,
    "topo_cli.batch_workloads.CheckpointedBatches": 3,
    "topo_cli.batch_workloads.SentenceBatches": 3,
}
"""Classes with more ancestors of the project in a row than DEEPEST, and how many: as users' own they derive from a public one."""

SHARED_NAMES: Mapping[str, int] = {
    "Anchors": 2,  # bolt, inputs
    "DeadLetter": 2,  # topology_test, worker
}
"""Names of classes and types that several modules define, and how many do."""


@cache
def tree() -> Any:
    return runpy.run_path(str(ROOT / "scripts" / "house_figures.py"))["Tree"].read(ROOT)


def test_no_modules_import_each_other() -> None:
    assert tree().circles == []


def test_no_module_imports_one_of_a_later_layer() -> None:
    assert tree().upward == []


def test_classes_have_few_ancestors() -> None:
    depths = {name: tree().depth(name) for name in tree().bases}
    assert {name: depth for name, depth in depths.items() if depth > DEEP_CLASSES.get(name, DEEPEST)} == {}


def test_modules_are_short() -> None:
    sizes = {module.name: module.lines for module in tree().product}
    assert median(sizes.values()) <= MEDIAN_LINES
    assert {name: lines for name, lines in sizes.items() if lines > MOST_LINES} == {}


def test_a_name_means_one_thing() -> None:
    assert {name: places for name, places in tree().collisions.items() if len(places) > SHARED_NAMES.get(name, 1)} == {}
