"""`topo dead-letters replay`: how a master is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from topo.storage.state_folder import TopologyFolder
from topo.wire import control
from topo_cli.letter_files import MOST_AT_ONCE, chosen, replayed


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


@pytest.mark.parametrize("ids", ["10-3", "1,9-8", "9" * 30])
def test_ids_that_name_no_dead_letters_are_refused(tmp_path: Path, ids: str) -> None:
    with pytest.raises(click.UsageError, match="write numbers and ranges"):
        chosen(TopologyFolder(tmp_path), ids, None, None, None)
