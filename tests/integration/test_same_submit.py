"""A topology whose master was lost continues when it is submitted again; an ended one starts from the beginning."""

from __future__ import annotations

import pytest

from tests.integration.support import ENDLESS, SINK, Scene, acked, eventually, flow, kill
from topo.launch.leftovers import end_leftovers
from topo.launch.master_process import write_failure
from topo.launch.running import RunningTopology

pytestmark = pytest.mark.integration

FLOW = ENDLESS + flow('builder.set_spout("numbers", Endless())', SINK + '.shuffle_grouping("numbers")')


def lose_master(running: RunningTopology) -> None:
    status = running.wait_until(lambda status: acked(status) > 300)
    eventually(running.folder.positions.exists)
    kill(status["master"]["pid"])
    eventually(lambda: not running.folder.is_running())
    end_leftovers(running.folder)


def test_the_same_submit_goes_on_even_when_one_between_could_not_be_started(scene: Scene) -> None:
    topology = scene.file(FLOW)
    lose_master(scene.submit_background(topology))
    (folder,) = (scene.home / "topologies").iterdir()
    again = scene.submit_background(topology)
    lose_master(again)
    write_failure(again.folder, "the cluster was away")
    third = scene.submit_background(topology)
    third.wait_until(lambda status: acked(status) > 100)
    assert third.folder.path == folder
    assert scene.lines().count(0) == 1


def test_other_code_under_the_same_name_begins_anew(scene: Scene) -> None:
    lose_master(scene.submit_background(scene.file(FLOW)))
    other = scene.submit_background(scene.file(FLOW + "\n# changed\n"))
    other.wait_until(lambda status: acked(status) > 0)
    eventually(lambda: scene.lines().count(0) == 2)
