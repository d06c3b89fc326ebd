"""What a submit stores: read as it was written, also by an earlier topo, and refused when it is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.submissions import small_plan, store_submission
from topo.errors import NotFoundError
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.storage.submitted import FIRST, SparkCluster, SubmissionDamaged, SubmittedTopology, checkpoints_of

STORED = Path(__file__).parents[2] / "contract" / "golden" / "state_folder" / "topology.json"
OPTIONAL = ("copied", "py_files", "parallelism", "start_from", "drop_state", "spark", "otherwise")


@pytest.fixture
def folder(tmp_path: Path) -> TopologyFolder:
    return StateFolder(tmp_path / "home").create("flow")


def missing(old: Any, new: Any, place: str = "") -> list[str]:
    """Return the places of keys and values of `old` that `new` lacks."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [lost for key, value in old.items() for lost in missing(value, new.get(key, "no key"), f"{place}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [lost for row, (one, other) in pairs for lost in missing(one, other, f"{place}[{row}]")]
    return [] if old == new else [place]


def test_stored_file_is_written_back_with_the_same_keys_and_values(folder: TopologyFolder) -> None:
    """Keys that a later topo has added may join them."""
    folder.topology.write_bytes(STORED.read_bytes())
    SubmittedTopology.read(folder).save(folder)
    assert missing(json.loads(STORED.read_bytes()), json.loads(folder.topology.read_bytes())) == []


def test_keys_that_an_earlier_topo_did_not_write_have_defaults(folder: TopologyFolder) -> None:
    facts = json.loads(STORED.read_bytes())
    folder.topology.write_text(json.dumps({key: value for key, value in facts.items() if key not in OPTIONAL}))
    submitted = SubmittedTopology.read(folder)
    assert (submitted.py_files, submitted.parallelism, submitted.spark, submitted.otherwise) == ([], {}, None, FIRST)


def test_paths_in_a_state_folder_move_with_it_and_others_stay(folder: TopologyFolder, tmp_path: Path) -> None:
    def paths(home: str) -> dict[str, Any]:
        own = tmp_path / home / "topologies" / "flow"
        py_files = [f"{own}/code/9/tools.zip", f"{tmp_path}/home/other.zip"]
        spark = SparkCluster(master="yarn", py_files=py_files)
        return {"reference": f"{own}/code/1/flow.py:a", "start_from": f"{own}/savepoints/2", "py_files": py_files, "spark": spark}

    store_submission(folder, small_plan(), **paths("home"))
    moved = tmp_path / "moved" / "topologies" / "flow"
    moved.parent.mkdir(parents=True)
    folder.path.rename(moved)
    for _ in range(2):
        submitted = SubmittedTopology.read(TopologyFolder(moved))
        assert {name: getattr(submitted, name) for name in paths("moved")} == paths("moved")
        submitted.save(TopologyFolder(moved))


@pytest.mark.parametrize("text", ['{"name": "fl', "[]", '{"name": "flow"}', "\xff"])
def test_damaged_file_is_refused_with_the_ways_out(folder: TopologyFolder, text: str) -> None:
    folder.topology.write_text(text, encoding="latin-1")
    with pytest.raises(SubmissionDamaged, match=r"topology\.json is damaged \(.+\); `topo submit` replaces it: without `--from`"):
        SubmittedTopology.read(folder)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda plan: plan["components"].pop(1), "component 'sieve' is used and not declared"),
        (lambda plan: plan["tasks"].pop(), "its workers do not host each task once"),
        (lambda plan: plan["workers"].pop(), "its workers do not host each task once"),
        (lambda plan: plan["tasks"].reverse(), "the ids of its tasks do not count from 1"),
        (lambda plan: plan["subscriptions"][0].update(stream="odd"), "component 'numbers' has no stream 'odd'"),
    ],
)
def test_a_plan_whose_parts_do_not_fit_together_is_damaged(
    folder: TopologyFolder, damage: Callable[[dict[str, Any]], object], why: str
) -> None:
    facts = json.loads(STORED.read_bytes())
    damage(facts["plan"])
    folder.topology.write_text(json.dumps(facts))
    with pytest.raises(SubmissionDamaged, match=rf"topology\.json is damaged \({why}\); `topo submit` replaces it"):
        SubmittedTopology.read(folder)


def test_name_without_a_submit_is_not_found(folder: TopologyFolder) -> None:
    with pytest.raises(NotFoundError, match="topology 'flow' was never submitted"):
        SubmittedTopology.read(folder)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"delivery": "at_least_once"}, ""),
        ({"delivery": "exactly_once"}, "@/5"),
        ({"delivery": "exactly_once", "checkpoint_folder": "kept"}, "/srv/kept/flow/5"),
        ({"delivery": "exactly_once", "checkpoint_folder": "~/kept"}, "/home/me/kept/flow/5"),
        ({"delivery": "exactly_once", "checkpoint_folder": "s3://kept/"}, "s3://kept/flow/5"),
    ],
)
def test_each_run_has_checkpoints_of_its_own(
    folder: TopologyFolder, settings: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    store_submission(folder, small_plan(**settings), submitted_from="/srv")
    assert checkpoints_of(folder) == place.replace("@", str(folder.checkpoints))
