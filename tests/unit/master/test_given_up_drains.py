"""Drains for a savepoint that cannot be written: the topology continues, unless somebody wants its end without one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.master.playbook import LINES, SINK, Play, messages_in, running
from tests.unit.master.test_master_checkpoints import plan, published, stored, taken
from topo.checkpoint.store_messages import SavepointStored
from topo.ids import Epoch
from topo.master.commands import MasterCommand, RecordError
from topo.master.events import DeactivateAsked, DrainAsked, KillAsked
from topo.observability.status import describe
from topo.wire.control import Activate, BeginCheckpoint, Close, Probe, SnapshotFailed


def sent(commands: list[MasterCommand], kind: type) -> list[Any]:
    return [message for _, message in messages_in(commands) if isinstance(message, kind)]


def copying(play: Play, *places: str) -> None:
    """Bring drains with savepoints to the moment at which these are copied."""
    for place in places:
        play.do(DrainAsked(30.0, place))
    for number in (1, 2):
        play.answer_probe(number, ended=False)
    taken(play, 1)
    stored(play, 1)
    published(play, 1)


def test_a_topology_whose_savepoint_of_the_end_cannot_be_written_continues() -> None:
    play = running(plan())
    copying(play, "/save")
    commands = play.do(SavepointStored("/save", "no space left on device"))
    assert sent(commands, Activate) and not sent(commands, Close)
    rows = [command.message for command in commands if isinstance(command, RecordError)]
    assert rows == ["the savepoint in /save was not written: no space left on device"]
    status = describe(play.master, play.now)
    assert (status["status"], status["checkpoints"]["savepoints"][0]["state"]) == ("RUNNING", "failed")
    # Checkpoints continue, and so do further drains.
    assert sent(play.until(play.now + 11.0), BeginCheckpoint) == [BeginCheckpoint(Epoch(1), 2)]


def test_one_that_was_paused_before_its_drain_stays_paused() -> None:
    play = running(plan())
    play.do(DeactivateAsked())
    copying(play, "/save")
    assert not sent(play.do(SavepointStored("/save", "no space")), Activate)
    assert describe(play.master, play.now)["status"] == "INACTIVE"


def test_one_that_continues_ends_when_its_input_has_ended() -> None:
    """Ends that tasks had reported before, or during the drain, are still known."""
    play = running(plan())
    for task in (LINES, SINK):
        play.quiet(task)
    copying(play, "/save")
    play.do(SavepointStored("/save", "no space"))
    number = sent(play.until(play.now + 0.1), Probe)[0].number
    for further in (0, 1):
        commands = play.answer_probe(number + further)
    assert sent(commands, BeginCheckpoint)
    taken(play, 2)
    stored(play, 2)
    assert sent(published(play, 2), Close) == [Close(Epoch(1), drain=False)] * len(play.plan.workers)


@pytest.mark.parametrize("why", ["", "no space"])
def test_one_that_is_not_drained_in_time_continues_without_its_savepoint(why: str) -> None:
    play = running(plan())
    play.do(DrainAsked(5.0, "/save"))
    for number in (1, 2):
        play.answer_probe(number, ended=False)
    if why:
        play.receives(1, SnapshotFailed(SINK, play.epoch, 1, why))
    commands = play.until(play.now + 5.0)
    assert sent(commands, Activate) and not sent(commands, Close)
    savepoint = describe(play.master, play.now)["checkpoints"]["savepoints"][0]
    assert savepoint["state"] == "failed" and savepoint["why"].startswith("not drained in time, which `--wait` or `--deadline`")
    assert savepoint["why"].endswith(why)


def test_one_that_was_ended_without_a_savepoint_too_ends() -> None:
    play = running(plan())
    play.do(DrainAsked(30.0))
    copying(play, "/save")
    commands = play.do(SavepointStored("/save", "no space"))
    assert sent(commands, Close) and not sent(commands, Activate)


def test_one_of_two_savepoints_is_enough_for_the_end() -> None:
    play = running(plan())
    copying(play, "/save", "/other")
    assert not sent(play.do(SavepointStored("/save", "no space")), Activate)
    assert sent(play.do(SavepointStored("/other")), Close)


@pytest.mark.parametrize(
    ("last", "stays_ended"),
    [(None, False), (KillAsked(), True), (DrainAsked(9.0), True), (DrainAsked(9.0, "/save"), True)],
)
def test_the_end_stays_ended_when_one_asks_for_it_who_does_not_start_the_topology_again(last: Any, stays_ended: bool) -> None:
    play = running(plan())
    play.do(DrainAsked(9.0, "/rebalance", restarts=True))
    if last is not None:
        play.do(last)
    assert play.master.ending.stays_ended is stays_ended
