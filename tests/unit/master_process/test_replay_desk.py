"""What a new master makes of dead letters that were being emitted again."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.submissions import small_plan, submission
from topo.dead_letters.records import letter_row
from topo.dead_letters.replays import DONE, FAILED, UNDER_WAY, latest_replays
from topo.errors import TopoEnvironmentError
from topo.master.events import MasterEvent, ReplayAsked
from topo.master_process.job import Job
from topo.master_process.recorder import Recorder, replay_rows
from topo.master_process.replay_desk import ReplayDesk, ask_for_resume
from topo.storage.state_folder import StateFolder, TopologyIsRunning, append_lines, json_lines
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter

Answer = TypeVar("Answer")


def ended(work: Generator[None, None, Answer]) -> Answer:
    """Return what work that is done in slices returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


def test_dead_letters_that_the_new_program_cannot_emit_have_failed(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("flow")
    job, asked = Job(folder, submission(folder, small_plan())), list[MasterEvent]()
    recorder = Recorder(job, {}, "", lambda: 0.0)
    packed = Codec().pack_value((1,))
    found = DeadLetter(task=1, id=1, position=packed, values=packed, errors=["no"], attempts=3, stream="default")
    append_lines(folder.dead_letters, [letter_row(found, component, Codec(), 5) for component in ("numbers", "gone")])
    recorder.append_replays(replay_rows([(1, UNDER_WAY, ""), (2, UNDER_WAY, ""), (3, UNDER_WAY, "")]))

    desk = ReplayDesk(folder, job.plan, recorder.append_replays, asked.append)
    ended(desk.resume(recorder.store_replays))
    assert [
        (event.component, [one.number for one in event.dead_letters]) for event in asked if isinstance(event, ReplayAsked)
    ] == [("numbers", [1])]
    latest = latest_replays(json_lines(folder.replays))
    assert latest[1]["state"] == UNDER_WAY
    assert (latest[2]["state"], latest[2]["why"]) == (FAILED, "the topology has no component 'gone' any more")
    assert (latest[3]["state"], latest[3]["why"]) == (FAILED, "there is no such dead letter")
    # It may be asked for again, when the component is back.
    assert ended(desk.answer([2])) == {
        "asked": [],
        "known": {},
        "refused": {"2": "the topology has no component 'gone' any more"},
    }


def test_a_request_waits_for_the_next_resume(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("flow")
    job, asked = Job(folder, submission(folder, small_plan())), list[MasterEvent]()
    job.submitted.save(folder)
    packed = Codec().pack_value((1,))
    found = DeadLetter(task=1, id=1, position=packed, values=packed, errors=["no"], attempts=3, stream="default")
    append_lines(folder.dead_letters, [letter_row(found, "numbers", Codec(), 5)])

    assert ask_for_resume(folder, [1, 2], dry_run=True)["asked"] == [1]
    assert ask_for_resume(folder, [1, 2]) == {"asked": [1], "known": {}, "refused": {"2": "there is no such dead letter"}}
    assert ask_for_resume(folder, [1])["known"] == {"1": UNDER_WAY}
    recorder = Recorder(job, {}, "", lambda: 0.0)
    ended(ReplayDesk(folder, job.plan, recorder.append_replays, asked.append).resume(recorder.store_replays))
    assert [len(event.dead_letters) for event in asked if isinstance(event, ReplayAsked)] == [1]


def test_no_request_is_noted_behind_the_back_of_a_master(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("flow")
    submission(folder, small_plan()).save(folder)
    with folder.lock(), pytest.raises(TopologyIsRunning):
        ask_for_resume(folder, [1])


def test_results_that_the_disk_has_no_room_for_are_written_later_in_order(tmp_path: Path) -> None:
    folder, now = StateFolder(tmp_path).create("flow"), [0.0]
    recorder = Recorder(Job(folder, submission(folder, small_plan())), {}, "", lambda: now[0])
    # Nothing can be appended to a folder.
    folder.replays.mkdir()
    recorder.store_replays({1: None, 2: "no"})
    now[0] += 10
    recorder.save_again(now[0])
    with pytest.raises(TopoEnvironmentError):
        recorder.append_replays(replay_rows([(3, UNDER_WAY, "")]))
    folder.replays.rmdir()
    recorder.append_replays(replay_rows([(2, UNDER_WAY, "")]))
    assert {number: row["state"] for number, row in latest_replays(json_lines(folder.replays)).items()} == {1: DONE, 2: UNDER_WAY}

    folder.replays.unlink()
    folder.replays.mkdir()
    recorder.store_replays({2: None})
    folder.replays.rmdir()
    recorder.save_again(now[0])
    assert not folder.replays.exists(), "it is not tried all the time"
    now[0] += 10
    recorder.save_again(now[0])
    recorder.save_again(now[0])
    assert [(row["dead_letter"], row["state"]) for row in json_lines(folder.replays)] == [(2, DONE)]
