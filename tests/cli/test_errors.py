from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.drive import call
from topo.operate.distinct_errors import distinct
from topo.storage.state_folder import StateFolder, append_lines, rotate
from topo.user_errors import MOST_MESSAGES


def row(at_ms: int, kind: str = "ValueError", line: int = 7, message: str = "no", **other: Any) -> dict[str, Any]:
    return {
        "at_ms": at_ms,
        "kind": kind,
        "message": message,
        "component": "split",
        "task": 2,
        "worker": 1,
        "file": "flow.py" if line else "",
        "line": line,
        "count": 1,
        "traceback": f"traceback of {at_ms}",
        **other,
    }


def test_errors_of_one_line_are_counted_together_and_the_latest_comes_last() -> None:
    found = distinct([row(1, count=3), row(2, line=9), row(3, message="another value", count=4)], has_times=True)
    assert [(error["line"], error["count"], error["first_ms"], error["last_ms"]) for error in found] == [
        (9, 1, 2, 2),
        (7, 7, 1, 3),
    ]
    assert (found[1]["message"], found[1]["traceback"]) == ("another value", "traceback of 3")
    assert [error["times"] for error in found] == [[(2, 1)], [(1, 3), (3, 4)]]


def test_the_last_different_messages_of_a_row_are_kept_and_numbers_outside_of_names_make_no_difference() -> None:
    texts = ["file '1.json' has 3 rows", "file '2.json' has 3 rows", "file '1.json' has 4 rows"]
    (found,) = distinct(row(at, message=text) for at, text in enumerate(texts))
    assert (found["count"], found["message"], found["others"]) == (3, texts[2], [texts[1]])


def test_messages_that_differ_each_time_make_one_row_with_a_few_of_them() -> None:
    (found,) = distinct(row(at, message=f"no '{at:x}'") for at in range(1000))
    assert (found["count"], len(found["others"])) == (1000, MOST_MESSAGES - 1)
    assert found["others"][-1] == f"no '{998:x}'"


def test_the_times_of_many_errors_are_those_of_the_latest() -> None:
    (found,) = distinct((row(at) for at in range(1000)), has_times=True)
    assert (found["count"], found["first_ms"], len(found["times"])) == (1000, 0, 200)
    assert found["times"][-1] == (999, 1)


def test_an_error_that_came_again_without_a_traceback_keeps_the_one_before() -> None:
    (found,) = distinct([row(1), row(2, count=5, traceback="")])
    assert (found["count"], found["traceback"]) == (6, "traceback of 1")


def test_errors_without_a_line_of_user_code_are_told_apart_by_their_message() -> None:
    found = distinct(
        [row(1, "WorkerLost", 0, "exit code 3"), row(2, "WorkerLost", 0, "killed"), row(3, "WorkerLost", 0, "killed")]
    )
    assert [(error["message"], error["count"]) for error in found] == [("exit code 3", 1), ("killed", 2)]


def test_errors_that_differ_in_their_numbers_alone_are_one_row() -> None:
    lost = [
        row(at, "WorkerLost", 0, f"exit code 3; it is restarted {when}", component="", task=None, worker=worker)
        for at, when, worker in ((1, "at once", 4), (2, "in 0.4 s", 1), (3, "in 0.8 s", 4))
    ]
    failed = [row(at, "CheckpointFailed", 0, f"checkpoint {at} was given up: no room", worker=None) for at in (41, 42)]

    found = distinct([*lost, *failed])

    assert [(error["kind"], error["count"], error["workers"]) for error in found] == [
        ("WorkerLost", 3, [1, 4]),
        ("CheckpointFailed", 2, []),
    ]
    assert found[0]["message"].endswith("in 0.8 s")


@pytest.fixture
def with_errors(topo_home: Path) -> str:
    folder = StateFolder(topo_home).create("flow")
    append_lines(folder.errors, [json.dumps(entry).encode() for entry in (row(1), row(2, component="count", line=9), row(3))])
    return folder.name


def test_errors_are_shown_with_count_place_and_on_request_the_traceback(
    capsys: pytest.CaptureFixture[str], with_errors: str
) -> None:
    out = call(capsys, "errors", with_errors).out
    assert "2x ValueError: no" in out
    assert "in split" in out and "flow.py:7" in out
    assert "traceback of" not in out and "also:" not in out
    assert "traceback of 3" in call(capsys, "errors", with_errors, "--traceback").out


def test_messages_that_differ_are_shown_below_the_latest(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    folder = StateFolder(topo_home).create("flow")
    rows = [row(at, message=f"file '{at}.json' cannot be read") for at in (1, 2)]
    append_lines(folder.errors, [json.dumps(entry).encode() for entry in rows])
    out = call(capsys, "errors", "flow").out
    assert "2x ValueError: file '2.json' cannot be read" in out and "    also: file '1.json' cannot be read" in out


def test_errors_of_the_file_before_are_counted_too(capsys: pytest.CaptureFixture[str], topo_home: Path, with_errors: str) -> None:
    rotate(StateFolder(topo_home).find(with_errors).errors, 1)
    append_lines(StateFolder(topo_home).find(with_errors).errors, [json.dumps(row(4)).encode()])
    assert "3x ValueError: no" in call(capsys, "errors", with_errors).out


def test_errors_of_one_component_as_json(capsys: pytest.CaptureFixture[str], with_errors: str) -> None:
    (found,) = json.loads(call(capsys, "errors", with_errors, "--component", "count", "--json").out)
    assert (found["component"], found["line"], found["count"]) == ("count", 9, 1)


def test_no_errors_is_said_and_empty_json(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    StateFolder(topo_home).create("calm")
    assert "no errors in calm" in call(capsys, "errors", "calm").err
    assert json.loads(call(capsys, "errors", "calm", "--json").out) == []


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_why_a_letter_was_given_up_is_shown_on_a_narrow_terminal_too(
    capsys: pytest.CaptureFixture[str], topo_home: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    folder = StateFolder(topo_home).create("flow")
    dead_letter = {"at_ms": 1, "component": "lines", "task": 1, "message": 13, "values": ["poison"], "attempts": 3}
    why = "ZeroDivisionError: division by zero (enrichment.py:12, component 'enrich')"
    append_lines(folder.dead_letters, [json.dumps(dead_letter | {"errors": ["a task failed it", why]}).encode()])
    out = call(capsys, "dead-letters", "flow").out
    assert "ZeroDivisionError:" in out and "enrichment.py:12" in out.replace("\n", "") and "'poison'" in out
    assert max(map(len, out.splitlines())) <= columns


def test_dead_letters_are_shown_with_their_last_error(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    folder = StateFolder(topo_home).create("flow")
    dead_letter = {"at_ms": 1, "component": "lines", "task": 1, "message": [3, 40], "values": ["poison"], "attempts": 3}
    append_lines(folder.dead_letters, [json.dumps(dead_letter | {"errors": ["first", "ValueError: no"]}).encode()])
    out = call(capsys, "dead-letters", "flow").out
    assert "'poison'" in out and "[3, 40]" in out and "ValueError: no" in out
    assert json.loads(call(capsys, "dead-letters", "flow", "--json").out)[0]["attempts"] == 3


def test_values_of_a_letter_that_were_kept_in_words_are_shown_so(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    folder = StateFolder(topo_home).create("flow")
    dead_letter = {"at_ms": 1, "component": "lines", "task": 1, "message": 3, "values": "cannot", "attempts": 3, "errors": []}
    append_lines(folder.dead_letters, [json.dumps(dead_letter).encode()])
    assert "cannot" in call(capsys, "dead-letters", "flow").out
