"""Which dead letters a master sends to tasks, and which rows can be emitted again."""

from __future__ import annotations

import json
from typing import Any

from topo.dead_letters.records import letter_row, letter_to_replay
from topo.dead_letters.replays import MOST_UNDER_WAY, TELL_S, LetterReplays, latest_replays, times_asked
from topo.ids import TaskId
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter, LetterToReplay


def dead_letter(number: int) -> LetterToReplay:
    return LetterToReplay(number, "default", None, b"")


def row(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"task": 1, "id": 1, "position": Codec().pack_value(3), "values": Codec().pack_value((b"\x00", 2))}
    found = DeadLetter(**(facts | {"errors": ["no"], "attempts": 3} | changes))
    decoded: dict[str, Any] = json.loads(letter_row(found, "numbers", Codec(), 5))
    return decoded


def test_tasks_are_told_again_until_there_is_a_result() -> None:
    replays = LetterReplays({"a": [TaskId(4), TaskId(5)]})
    assert (replays.next_deadline(), replays.due(0.0)) == (None, [])
    replays.ask("a", [dead_letter(2), dead_letter(3)])
    first = replays.due(10.0)
    assert {message.task: [one.number for one in message.dead_letters] for message in first} == {4: [2], 5: [3]}
    assert replays.due(10.1) == [] and replays.next_deadline() == 10.0 + TELL_S
    assert replays.due(10.0 + TELL_S) == first

    assert replays.finished([2, 2, 77]) == [2]
    assert (len(replays), [message.task for message in replays.due(10.0 + TELL_S)]) == (1, [5])
    replays.finished([3])
    assert replays.next_deadline() is None


def test_only_so_many_are_with_the_tasks_at_a_time() -> None:
    replays = LetterReplays({"a": [TaskId(4)]})
    replays.ask("a", map(dead_letter, range(1, MOST_UNDER_WAY + 6)))
    (message,) = replays.due(0.0)
    assert len(message.dead_letters) == MOST_UNDER_WAY
    replays.finished(range(1, MOST_UNDER_WAY + 1))
    (message,) = replays.due(0.0)
    assert [one.number for one in message.dead_letters] == list(range(MOST_UNDER_WAY + 1, MOST_UNDER_WAY + 6))


def test_a_row_gives_back_the_values_as_they_were() -> None:
    found = letter_to_replay(9, row(stream="default", stamp=70))
    assert isinstance(found, LetterToReplay)
    assert (found.number, found.stream, found.stamp) == (9, "default", 70)
    assert tuple(Codec().unpack_value(found.values)) == (b"\x00", 2)


def test_a_row_without_values_that_can_be_emitted_gives_the_reason() -> None:
    assert letter_to_replay(1, row(stream="default", fixed="its values cannot be carried")) == "its values cannot be carried"
    assert letter_to_replay(1, row()) == "with delivery=exactly_once a checkpoint has passed it"
    assert "earlier release" in str(letter_to_replay(1, {"values": [1]}))


def test_the_last_change_of_a_letter_counts() -> None:
    rows = [{"dead_letter": 1, "state": "under way"}, {"dead_letter": 1, "state": "done"}, {"torn": 1}]
    assert latest_replays(rows) == {1: rows[1]}


def test_how_often_a_letter_was_asked_for_is_known_from_the_file() -> None:
    rows = [{"dead_letter": 1, "state": state} for state in ("under way", "failed", "under way")]
    assert times_asked([*rows, {"torn": 1}]) == {1: 2}
