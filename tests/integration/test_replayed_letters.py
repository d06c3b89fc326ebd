"""Dead letters that are emitted again: each once, over kills of workers and of the master, with its result on its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.drive import piped
from tests.integration.support import ENDLESS, SINK, Scene, acked, eventually, flow, kill, pid_of
from topo.errors import UserError
from topo.launch.leftovers import end_leftovers
from topo.launch.running import RunningTopology
from topo.master_process.client import Client
from topo.operate.dead_letter_rows import dead_letter_rows
from topo_cli.letter_files import chosen

pytestmark = pytest.mark.integration

FLOW = (
    ENDLESS
    + """
class Picky(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        if tup["value"] % 50 == 7 and not (HERE / "mended").exists():
            raise KeyError(f"no rate for {tup['value']}")
        while tup["value"] % 50 == 7 and (HERE / "held").exists():
            time.sleep(0.01)
        collector.emit((tup["value"],))

"""
    + flow(
        'builder.set_spout("numbers", Endless())',
        'builder.set_bolt("picky", Picky()).shuffle_grouping("numbers")',
        SINK + '.shuffle_grouping("picky")',
    )
)


def replay(running: RunningTopology, numbers: list[int], **more: Any) -> Any:
    return Client(running.name, running.folder.path.parents[1]).request("replay", numbers=numbers, **more)


def states(running: RunningTopology) -> list[str]:
    return [row["replay"]["state"] if row["replay"] else "" for row in dead_letter_rows(running.folder)]


def broken(scene: Scene, dead_letters: int = 3) -> RunningTopology:
    running = scene.submit_background(scene.file(FLOW), attempts=1, workers=1)
    eventually(lambda: len(running.dead_letters()) >= dead_letters)
    return running


def all_are(running: RunningTopology, numbers: list[int], state: str) -> Callable[[], bool]:
    return lambda: all(states(running)[number - 1] == state for number in numbers)


def test_a_letter_is_emitted_again_once_however_often_one_asks(scene: Scene) -> None:
    running = broken(scene)
    # Not mended yet: it fails again, and its row has the cause.
    assert replay(running, [1]) == {"asked": [1], "known": {}, "refused": {}}
    eventually(all_are(running, [1], "failed"))
    assert "no rate for 7" in next(dead_letter_rows(running.folder))["replay"]["why"]
    assert replay(running, [1], dry_run=True)["asked"] == [1]
    assert states(running)[0] == "failed"
    scene.touch("mended")
    assert chosen(running.folder, "1-3", "value > 10", "numbers", "KeyError") == [2, 3]
    with pytest.raises(UserError, match="valu"):
        chosen(running.folder, None, "valu > 10", None, None)
    assert replay(running, [1, 2, 3, 999_999])["refused"] == {"999999": "there is no such dead letter"}
    refused = piped("dead-letters", "replay", running.name, "--ids", "999999", "--home", running.folder.path.parents[1])
    assert refused.code == 1 and "999999: cannot be emitted again: there is no such dead letter" in refused.out
    eventually(all_are(running, [1, 2, 3], "done"))
    assert replay(running, [1, 2, 3]) == {"asked": [], "known": {"1": "done", "2": "done", "3": "done"}, "refused": {}}
    lines = scene.lines()
    assert [lines.count(value) for value in (7, 57, 107)] == [1, 1, 1]
    given_up = {row["values"][0] for row in running.dead_letters()}
    # Positions, and the counts at the end, are those of the source's own messages.
    scene.touch("stop")
    eventually(lambda: not running.folder.is_running())
    outcome = running.outcome()
    assert outcome is not None and outcome.kind.value == "dead letters", outcome
    lines = scene.lines()
    assert set(lines) | given_up == set(range(max(lines) + 1))


def test_letters_under_way_outlive_the_worker_and_the_master(scene: Scene) -> None:
    running = broken(scene)
    scene.touch("held")
    scene.touch("mended")
    assert replay(running, [1, 2])["asked"] == [1, 2]
    assert replay(running, [1, 2])["known"] == {"1": "under way", "2": "under way"}
    kill(pid_of(running.status(), "numbers"))
    running.wait_until(lambda status: status["restarts"] == 1)
    kill(running.status()["master"]["pid"])
    eventually(lambda: not running.folder.is_running())
    end_leftovers(running.folder)
    assert states(running)[:2] == ["under way", "under way"]
    (scene.folder / "held").unlink()

    running = scene.resume("flow")
    eventually(all_are(running, [1, 2], "done"))
    running.wait_until(lambda status: acked(status) > 0)
    assert {7, 57} <= set(scene.lines())


def test_with_exactly_once_replays_are_refused_with_the_reason(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOW), delivery="exactly_once", attempts=1)
    running.wait_until(lambda status: status["status"] == "RUNNING")
    with pytest.raises(UserError, match=r"delivery=exactly_once, and its dead letters are not replayed: .* feed the values in"):
        replay(running, [1])


def test_dead_letters_of_a_topology_that_has_ended_are_emitted_by_its_resume(scene: Scene) -> None:
    """Its input ends again at once: it ends when the dead letters have a result."""
    running = broken(scene, 1)
    scene.touch("stop")
    eventually(lambda: not running.folder.is_running())
    scene.touch("mended")
    assert 7 not in scene.lines()

    asked = piped("dead-letters", "replay", running.name, "--ids", "1", "--home", running.folder.path.parents[1])
    assert asked.out == "1 of 1 dead letters are emitted again by the next `topo resume`\n", asked.err
    assert states(running)[0] == "under way" and running.dead_letters()[0]["values"] == [7]
    scene.resume("flow").wait()
    assert states(running)[0] == "done"
    assert scene.lines().count(7) == 1
