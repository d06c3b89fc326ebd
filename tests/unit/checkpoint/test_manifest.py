"""Manifests: written and read, refused where they do not fit, and shared out among tasks of another number."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topo.checkpoint.encoding import SCHEMA_VERSION
from topo.checkpoint.manifest import (
    ComponentFigures,
    ComponentShape,
    Manifest,
    Part,
    decode_manifest,
    encode_manifest,
    has_ended,
    misfits,
    name_of,
    reopened,
    shares_for,
    without,
)
from topo.errors import CheckpointDamagedError, CheckpointRefusedError
from topo.ids import TaskId
from topo.keys import key_group, range_of, route_of
from topo.plan.state_kinds import BY_PARTITION

SPOUT = ComponentShape(kind="spout", parallelism=1, max_parallelism=128)
COUNT = ComponentShape(kind="bolt", parallelism=2, max_parallelism=128, keyed_by=("lines.default: word",))


def manifest(parallelism: int = 2, max_parallelism: int = 128) -> Manifest:
    shape = msgspec.structs.replace(COUNT, parallelism=parallelism, max_parallelism=max_parallelism)
    parts = [("lines", 0), *(("count", index) for index in range(parallelism))]
    return Manifest(
        topology="words",
        checkpoint=12,
        components={"lines": SPOUT, "count": shape},
        parts=tuple(
            Part(file=f"{task}.part", length=100, checksum="c0", component=component, task=TaskId(task), index=index)
            for task, (component, index) in enumerate(parts, start=1)
        ),
        figures=ComponentFigures(bytes=300, duration_ms=12.5),
        created_ms=1_700_000_000_000,
    )


def test_a_manifest_comes_out_as_it_went_in() -> None:
    assert decode_manifest(encode_manifest(manifest()), "manifest.json") == manifest()


def test_a_manifest_is_json_that_anyone_can_read() -> None:
    found = json.loads(encode_manifest(manifest()))["manifest"]
    assert found["topology"] == "words"
    assert [part["component"] for part in found["parts"]] == ["lines", "count", "count"]


@given(st.data())
def test_a_changed_manifest_is_damaged(data: st.DataObject) -> None:
    whole = encode_manifest(manifest())
    if data.draw(st.booleans()):
        changed = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, len(whole) * 8 - 1))
        broken = bytearray(whole)
        broken[at // 8] ^= 1 << at % 8
        changed = bytes(broken)
    try:
        found = decode_manifest(changed, "manifest.json")
    except CheckpointDamagedError as error:
        assert error.file == "manifest.json"
    else:
        # Outside of the checked content there are a few bytes of JSON that may differ without a difference.
        assert found == manifest()


def test_a_manifest_of_a_newer_version_is_refused_with_both_versions() -> None:
    newer = msgspec.structs.replace(manifest(), schema=SCHEMA_VERSION + 1, topo="9.8.7")
    with pytest.raises(CheckpointRefusedError, match=rf"topo 9\.8\.7 \(schema {SCHEMA_VERSION + 1}\), which is newer .* topo 0"):
        decode_manifest(encode_manifest(newer), "manifest.json")


def test_the_name_of_a_part_says_all_that_is_known_of_it() -> None:
    part = manifest().parts[1]
    name = name_of(part, manifest())
    assert (name.file, name.topology, name.checkpoint, name.component, name.task) == ("2.part", "words", 12, "count", 2)
    assert (name.length, name.checksum) == (100, "c0")


# -- what fits ---------------------------------------------------------------------------------------------------------------


def test_the_same_components_fit_at_another_parallelism() -> None:
    assert misfits(manifest(), "words", {"lines": SPOUT, "count": msgspec.structs.replace(COUNT, parallelism=5)}) == []


def test_new_components_need_nothing() -> None:
    assert misfits(manifest(), "words", {"lines": SPOUT, "count": COUNT, "more": COUNT}) == []


def test_another_topology_is_refused_by_name() -> None:
    (problem,) = misfits(manifest(), "numbers", {})
    assert "is of topology 'words', not of 'numbers'" in problem


def test_state_that_nobody_takes_is_refused_unless_it_is_left_out() -> None:
    (problem,) = misfits(manifest(), "words", {"lines": SPOUT})
    assert "no task takes the state of 'count'" in problem
    left = without(manifest(), ["count"])
    assert misfits(left, "words", {"lines": SPOUT}) == []
    assert [part.component for part in left.parts] == ["lines"] and shares_for(left, "count", 0, 2) == []


FLOW = {
    "lines": msgspec.structs.replace(SPOUT, origin="from_files at flow.py:3"),
    "lines-steps": msgspec.structs.replace(COUNT, keyed_by=(), state="nothing", origin="from_files at flow.py:3"),
    "count": msgspec.structs.replace(COUNT, keyed_by=("lines-steps.default: key",)),
}
CHAINED = {"lines": FLOW["lines"], "count": msgspec.structs.replace(COUNT, keyed_by=("lines.default: key",))}


@pytest.mark.parametrize(("before", "now"), [(FLOW, CHAINED), (CHAINED, FLOW), (FLOW, FLOW)])
def test_operators_of_streams_behind_a_source_may_run_in_its_tasks_or_be_a_component(before: Any, now: Any) -> None:
    assert misfits(msgspec.structs.replace(manifest(), components=before), "words", now) == []


@pytest.mark.parametrize("change", [{"state": "state by key"}, {"origin": "rebalance at flow.py:4"}, {"origin": ""}])
def test_another_component_of_such_a_name_is_refused_when_it_is_gone(change: dict[str, Any]) -> None:
    before = {**FLOW, "lines-steps": msgspec.structs.replace(FLOW["lines-steps"], **change)}
    (problem,) = misfits(msgspec.structs.replace(manifest(), components=before), "words", CHAINED)
    assert problem.startswith("no task takes the state of 'lines-steps'")


def with_state(shape: ComponentShape, state: str) -> ComponentShape:
    return msgspec.structs.replace(shape, state=state)


def test_state_of_another_kind_is_refused_unless_it_is_left_out() -> None:
    old = msgspec.structs.replace(manifest(), components={"lines": SPOUT, "count": with_state(COUNT, "state without a key")})
    now = {"lines": SPOUT, "count": with_state(COUNT, "state by key")}
    (problem,) = misfits(old, "words", now)
    assert "'count' has state without a key in the checkpoint, and state by key now" in problem
    assert "--drop-state count" in problem
    assert misfits(without(old, ["count"]), "words", now) == []


@pytest.mark.parametrize(("old", "new"), [("nothing", "windows"), ("", "windows"), ("windows", ""), ("windows", "windows")])
def test_state_of_an_unknown_kind_fits_and_so_does_any_where_there_was_none(old: str, new: str) -> None:
    before = msgspec.structs.replace(manifest(), components={"lines": SPOUT, "count": with_state(COUNT, old)})
    assert misfits(before, "words", {"lines": SPOUT, "count": with_state(COUNT, new)}) == []


def test_a_manifest_from_before_kinds_of_state_were_noted_can_be_read() -> None:
    body = msgspec.to_builtins(manifest())
    for shape in body["components"].values():
        del shape["state"]
    assert msgspec.convert(body, Manifest) == manifest()


@pytest.mark.parametrize(
    ("component", "changes", "words"),
    [
        ("count", {"max_parallelism": 64}, "set max_parallelism=128 for it"),
        (
            "count",
            {"keyed_by": ("lines.default: user",)},
            "goes by lines.default: word, and its inputs are grouped by lines.default: user",
        ),
        ("count", {"keyed_by": ()}, "are grouped by nothing"),
        ("count", {"kind": "spout"}, "'count' was a bolt and is a spout"),
        ("lines", {"parallelism": 2}, "'lines' had 1 tasks and has 2"),
    ],
)
def test_what_would_lose_or_misplace_state_is_refused(component: str, changes: dict[str, object], words: str) -> None:
    shapes = {"lines": SPOUT, "count": COUNT}
    shapes[component] = msgspec.structs.replace(shapes[component], **changes)
    (problem,) = misfits(manifest(), "words", shapes)
    assert words in problem


def test_everything_that_is_wrong_is_said_at_once() -> None:
    assert len(misfits(manifest(), "words", {"count": msgspec.structs.replace(COUNT, max_parallelism=1)})) == 2


# -- who takes what ----------------------------------------------------------------------------------------------------------


def test_at_the_same_parallelism_each_task_takes_its_own_part_whole() -> None:
    for index in range(2):
        (share,) = shares_for(manifest(), "count", index, 2)
        assert share.part.index == index
        assert share.groups == range_of(index, 128, 2)
        assert share.takes_values


def by_partition(*ended: bool) -> Manifest:
    """A spout with positions by partition, of as many tasks."""
    shape = msgspec.structs.replace(SPOUT, parallelism=len(ended), state=BY_PARTITION)
    kept = manifest(len(ended))
    parts = tuple(msgspec.structs.replace(part, ended=end) for part, end in zip(kept.parts[1:], ended, strict=True))
    return msgspec.structs.replace(kept, components={"count": shape}, parts=parts)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
def test_all_tasks_of_another_parallelism_read_the_positions_of_all_partitions(before: int, after: int) -> None:
    kept = by_partition(*[False] * before)
    assert misfits(kept, "words", {"count": msgspec.structs.replace(kept.components["count"], parallelism=after)}) == []
    for index in range(after):
        shares = shares_for(kept, "count", index, after)
        assert [share.part.index for share in shares if share.takes_values] == list(range(before))


def test_positions_by_partition_stay_with_their_task_at_the_same_parallelism() -> None:
    shares = [share for share in shares_for(by_partition(False, False), "count", 1, 2) if share.takes_values]
    assert [share.part.index for share in shares] == [1]


@pytest.mark.parametrize(("ended", "has_all"), [((True, True), True), ((True, False), False)])
def test_with_another_parallelism_a_partitioned_spout_has_ended_when_all_tasks_had(
    ended: tuple[bool, ...], has_all: bool
) -> None:
    assert [has_ended(by_partition(*ended), "count", index, 3) for index in range(3)] == [has_all] * 3
    assert has_ended(by_partition(*ended), "count", 0, 2), "by its own part where the number of tasks is the same"


def test_a_component_that_the_checkpoint_does_not_know_takes_nothing() -> None:
    assert shares_for(manifest(), "more", 0, 3) == []


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(1, 40), min_size=1, max_size=4), st.sampled_from([40, 128, 129]))
def test_rescaled_again_and_again_every_key_is_with_its_task_once(first: int, steps: list[int], max_parallelism: int) -> None:
    keys = [f"key {number}" for number in range(40)]
    holding = {index: {key for key in keys if route_of(key, max_parallelism, first) == index} for index in range(first)}
    values = {index: [f"values of {index}"] for index in range(first)}
    before = first
    for now in steps:
        taken = manifest(before, max_parallelism)
        shares = {index: shares_for(taken, "count", index, now) for index in range(now)}
        holding = {
            index: {
                key
                for share in shares[index]
                for key in holding[share.part.index]
                if key_group(key, max_parallelism) in share.groups
            }
            for index in range(now)
        }
        values = {
            index: [value for share in shares[index] if share.takes_values for value in values[share.part.index]]
            for index in range(now)
        }
        before = now
        assert holding == {index: {key for key in keys if route_of(key, max_parallelism, now) == index} for index in range(now)}
    assert Counter(value for found in values.values() for value in found) == Counter(f"values of {i}" for i in range(first))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 130), st.integers(1, 130))
def test_no_key_group_is_read_twice_or_left_out(before: int, now: int) -> None:
    taken = manifest(before, 130)
    groups = [group for index in range(now) for share in shares_for(taken, "count", index, now) for group in share.groups.groups]
    assert sorted(groups) == list(range(130))


def ended(*tasks: int, parallelism: int = 2) -> Manifest:
    """A manifest in which those tasks were behind the end of their input."""
    whole = manifest(parallelism)
    parts = tuple(msgspec.structs.replace(part, ended=part.task in tasks) for part in whole.parts)
    return msgspec.structs.replace(whole, parts=parts)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_that_the_input_has_ended_holds_for_every_task_of_another_parallelism(parallelism: int) -> None:
    for index in range(parallelism):
        assert has_ended(ended(1, 2, 3), "count", index, parallelism)
        assert not has_ended(ended(1), "count", index, parallelism)
        assert not has_ended(ended(1, 2, 3), "new", index, parallelism)


def test_a_run_from_the_end_of_another_reads_on_and_one_from_its_middle_does_not() -> None:
    assert not any(part.ended for part in reopened(ended(1, 2, 3)).parts)
    assert reopened(ended(1)) == ended(1)
