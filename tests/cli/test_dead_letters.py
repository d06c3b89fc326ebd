"""`topo dead-letters replay`: how a master is asked."""

from __future__ import annotations

import json
import os
import tracemalloc
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.drive import call
from tests.submissions import small_plan, store_submission
from topo.dead_letters.records import letter_row
from topo.ids import TaskId
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter
from topo_cli.letter_files import MOST_AT_ONCE, chosen, replayed
from topo_cli.main import main


def test_many_dead_letters_are_asked_for_in_messages_that_a_master_accepts() -> None:
    sizes = []

    def ask(verb: str, deadline_s: float, **arguments: Any) -> dict[str, Any]:
        question = control.encode(control.Request(verb, arguments))
        sizes.append(len(question))
        numbers = control.decode_request(question).arguments["numbers"]
        first = str(numbers[0])
        return {"asked": numbers[2:], "known": {first: "done"}, "refused": {str(numbers[1]): "it is gone"}}

    count = 2 * MOST_AT_ONCE + 10
    answer = replayed(ask, list(range(10**9, 10**9 + count)), 5.0, dry_run=True)
    assert len(sizes) == 3 and max(sizes) <= control.MAX_CONTROL
    assert (len(answer["asked"]), len(answer["known"]), len(answer["refused"])) == (count - 6, 3, 3)


def test_no_dead_letters_are_asked_for_all_the_same() -> None:
    # The master may refuse any replay, such as with exactly_once.
    answer = replayed(lambda *_, **__: {"asked": [], "known": {}, "refused": {}}, [], 5.0, dry_run=False)
    assert answer == {"asked": [], "known": {}, "refused": {}}


def test_of_many_dead_letters_those_that_are_shown_or_chosen_are_kept(
    topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(topo_home).create("words")
    row = {"at_ms": 5, "component": "numbers", "stream": "default", "message": 1, "attempts": 3}
    row |= {"values": ["x" * 5000], "errors": ["KeyError: 'a'"]}
    folder.dead_letters.write_text(f"{json.dumps(row)}\n" * 4000)
    assert call(capsys, "dead-letters", "words", "-n", "1").code == 0

    store_submission(folder, small_plan("words"))
    tracemalloc.start()
    try:
        shown = call(capsys, "dead-letters", "words", "-n", "2")
        numbers = chosen(folder, None, None, "numbers", "KeyError")
        some = chosen(folder, "3998-5000", None, "numbers", "KeyError")
        none = chosen(folder, None, "value == 'y'", None, None)
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), pytest.raises(SystemExit):
            main(["dead-letters", "words", "--json"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "the latest 2 of 4,000" in shown.err
    assert "4000 " in shown.out and "3999 " in shown.out and "3998 " not in shown.out
    assert (numbers, some, none) == ([*range(1, 4001)], [3998, 3999, 4000], [])
    assert peak < 10_000_000


@pytest.mark.parametrize("ids", ["10-3", "1,9-8", "9" * 30])
def test_ids_that_name_no_dead_letters_are_refused(tmp_path: Path, ids: str) -> None:
    with pytest.raises(click.UsageError, match="write numbers and ranges"):
        chosen(TopologyFolder(tmp_path), ids, None, None, None)


def test_dead_letters_of_one_answer_are_listed_as_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = StateFolder(tmp_path).create("flow")
    store_submission(folder, small_plan())
    values = Codec().pack_value((1,))
    rows = [DeadLetter(TaskId(1), number, b"", values, ["no"], 1, stream="default") for number in range(9)]
    folder.dead_letters.write_bytes(b"".join(letter_row(one, "numbers", Codec(), 5) + b"\n" for one in rows))
    assert call(capsys, "dead-letters", "replay", "flow", "--ids", "1-3,5", "--home", tmp_path).code == 0
    again = call(capsys, "dead-letters", "replay", "flow", "--ids", "1-5,8,77", "--home", tmp_path)
    assert again.out.splitlines() == [
        "77: cannot be emitted again: there is no such dead letter",
        "1-3,5: under way already",
        "2 of 7 dead letters are emitted again by the next `topo resume`",
    ]
