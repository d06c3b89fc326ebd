"""Savepoints over real processes: a topology that continues from one, also with other numbers of tasks, has the state and output
of a run that was never stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import PATIENCE_S, Scene, component_of, kill, pid_of
from tests.integration.test_exactly_once import PACKED, WINDOWS, counting, counts, ended_well, expected_counts
from tests.integration.test_operator_bolts import expected_windows, rows_of
from topo.errors import CheckpointRefusedError, NotFoundError, TopoEnvironmentError, TopologyError, UserError
from topo.launch.rebalancing import rebalancing_of
from topo.launch.running import RunningTopology
from topo.storage.checkpoint_store import open_store

pytestmark = pytest.mark.integration


def emitted(number: int) -> Callable[[dict[str, Any]], bool]:
    return lambda status: int(status["totals"]["emitted"]) >= number


def tasks_of(running: RunningTopology, component: str) -> int:
    status = running.wait_until(lambda status: status["status"] == "RUNNING", timeout_s=PATIENCE_S)
    return int(component_of(status, component)["parallelism"])


def windows(scene: Scene) -> list[tuple[str, int, Any]]:
    return sorted((row["key"], row["start"], row["numbers"]) for row in rows_of(scene.folder, "out"))


def test_counts_are_those_of_an_undisturbed_run_after_two_three_and_one_task(scene: Scene) -> None:
    running = scene.submit(scene.file(counting(9000)), **PACKED)
    running.wait_until(emitted(1500))
    change = running.rebalance({"count": 3, "spread": 1})
    assert [(move.component, move.before, move.after) for move in change.moves] == [("spread", 2, 1), ("count", 2, 3)]
    assert (tasks_of(running, "count"), tasks_of(running, "spread")) == (3, 1)
    running.wait_until(emitted(1500))
    kill(pid_of(running.wait_until(lambda status: status["checkpoints"]["complete"] >= 1), "count", 2))
    running.wait_until(lambda status: status["restarts"] == 1 and status["status"] == "RUNNING")
    running.rebalance({"count": 1})
    assert (tasks_of(running, "count"), tasks_of(running, "spread")) == (1, 1)
    ended_well(scene, running)
    assert counts(scene) == expected_counts(9000)


def test_windows_are_those_of_an_undisturbed_run_after_two_three_and_one_task(scene: Scene) -> None:
    running = scene.submit(scene.file(WINDOWS), **PACKED)
    running.wait_until(emitted(1000))
    running.rebalance({"windows": 3})
    assert tasks_of(running, "windows") == 3
    running.wait_until(emitted(1000))
    running.rebalance({"windows": 1})
    ended_well(scene, running)
    assert windows(scene) == sorted((key, start, numbers) for (key, start), numbers in expected_windows(4000).items())
    assert rows_of(scene.folder, "late") == []


def test_a_savepoint_of_a_moment_is_gone_on_from_although_the_topology_went_on(scene: Scene) -> None:
    topology = scene.file(counting(4000).replace("parallelism=2).fields", "parallelism=1).fields"))
    running = scene.submit(topology, **PACKED)
    running.wait_until(emitted(500))
    place = running.savepoint()
    ended_well(scene, running)
    assert counts(scene) == expected_counts(4000)
    (scene.folder / "out.jsonl").unlink()
    running = scene.cluster.submit(topology, settings=PACKED, start_from=place)
    ended_well(scene, running)
    assert counts(scene) == expected_counts(4000)
    manifest = open_store(place, "flow").latest().manifest
    assert manifest is not None and manifest.is_savepoint


def test_what_cannot_move_is_refused_and_the_topology_goes_on(scene: Scene) -> None:
    whole = 'class Whole(Count):\n    key = None\n\ndef topology():\n    builder = TopologyBuilder("flow")\n'
    lines = (
        'builder.set_spout("numbers", Numbers())',
        'builder.set_bolt("spread", Spread()).shuffle_grouping("numbers")',
        'builder.set_bolt("whole", Whole()).global_grouping("spread")',
        "return builder.build()",
    )
    topology = scene.file(counting(100_000) + whole + "\n".join(f"    {line}" for line in lines))
    running = scene.submit(topology, **PACKED)
    running.wait_until(emitted(1))
    with pytest.raises(TopologyError, match="the state of Whole goes by no key"):
        running.rebalance({"whole": 2})
    with pytest.raises(TopologyError, match="'numbers' is a spout"):
        running.rebalance({"numbers": 2})
    with pytest.raises(TopologyError, match="parallelism 1000 is more than max_parallelism 128"):
        running.rebalance({"spread": 1000})
    with pytest.raises(NotFoundError, match=r"Did you mean 'spread'\?"):
        running.rebalance({"sprad": 2})
    assert running.rebalance({"spread": 1}).moves == ()
    assert rebalancing_of(running.folder, {"spread": 2}).moves[0].after == 2
    status = running.status()
    assert (status["term"], status["status"], status["restarts"]) == (1, "RUNNING", 0)
    place = running.kill(savepoint=True)
    with pytest.raises(CheckpointRefusedError, match="the state of Whole goes by no key"):
        scene.cluster.submit(topology, settings=PACKED, start_from=place, parallelism={"whole": 2})


def test_without_checkpoints_there_is_no_savepoint_and_state_does_not_move(scene: Scene) -> None:
    running = scene.submit(scene.file(counting(100_000)), delivery="at_least_once", workers=2)
    running.wait_until(emitted(1))
    for refused in (running.savepoint, lambda: running.kill(savepoint=True)):
        with pytest.raises(UserError, match="flow takes no checkpoints"):
            refused()
    with pytest.raises(TopologyError, match="'count': state by key is kept in memory alone with delivery=at_least_once"):
        running.rebalance({"spread": 1})
    assert running.status()["status"] == "RUNNING"


def test_a_topology_that_has_not_begun_is_not_ended_with_an_empty_savepoint(scene: Scene) -> None:
    slow = "def prepare(self, context):\n        while not (HERE / 'go').exists():\n            time.sleep(0.01)\n"
    running = scene.submit(scene.file(counting(300).replace("def prepare(self, context):\n", slow)), **PACKED)
    with pytest.raises(UserError, match="flow has not begun yet"):
        running.kill(savepoint=True)
    scene.touch("go")
    ended_well(scene, running)
    assert counts(scene) == expected_counts(300)


def test_a_savepoint_that_cannot_be_written_is_told_and_nothing_is_lost(scene: Scene) -> None:
    (scene.folder / "file").write_text("in the way")
    running = scene.submit_background(scene.file(counting(4000)), "flow", **PACKED)
    running.wait_until(emitted(500))
    with pytest.raises(TopoEnvironmentError, match="the savepoint of flow was not written"):
        running.savepoint(scene.folder / "file" / "save")
    with pytest.raises(TopoEnvironmentError, match="flow continues as before"):
        running.kill(savepoint=scene.folder / "file" / "save")
    ended_well(scene, running)
    assert counts(scene) == expected_counts(4000)


def test_state_of_a_component_that_is_gone_has_to_be_dropped_in_words(scene: Scene, tmp_path: Path) -> None:
    text = counting(3000)
    running = scene.submit(scene.file(text), **PACKED)
    running.wait_until(emitted(300))
    place = running.kill(savepoint=True)
    renamed = text.replace('set_bolt("count"', 'set_bolt("tally"').replace('global_grouping("count")', 'global_grouping("tally")')
    topology = scene.file(renamed, "renamed")
    with pytest.raises(CheckpointRefusedError, match="no task takes the state of 'count'"):
        scene.cluster.submit(topology, settings=PACKED, start_from=place)
    running = scene.cluster.submit(topology, settings=PACKED, start_from=place, drop_state=["count"])
    ended_well(scene, running)
    whole, found = Counter(expected_counts(3000)), Counter(counts(scene))
    assert found < whole and found, "it began with nothing, behind the savepoint's position"


def test_keyed_state_of_a_bolt_that_has_no_key_any_more_has_to_be_dropped(scene: Scene) -> None:
    text = counting(3000)
    running = scene.submit(scene.file(text), **PACKED)
    running.wait_until(emitted(300))
    place = running.kill(savepoint=True)
    topology = scene.file(text.replace('    key = "key"\n', ""), "keyless")
    with pytest.raises(CheckpointRefusedError, match="'count' has state by key in the checkpoint, and state without a key now"):
        scene.cluster.submit(topology, settings=PACKED, start_from=place)
    running = scene.cluster.submit(topology, settings=PACKED, start_from=place, drop_state=["count"])
    ended_well(scene, running)
    whole, found = Counter(expected_counts(3000)), Counter(counts(scene))
    assert found < whole and found, "it began with nothing, behind the savepoint's position"
