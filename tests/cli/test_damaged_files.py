"""Files of the state folder that hold valid JSON of another shape: commands name the file and the way out, with no traceback."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.drive import call
from topo.errors import TopoEnvironmentError
from topo.launch.cluster import run_foreground
from topo.launch.request import RunRequest
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.ui.reading import past
from topo_cli.exits import Exit

ERROR = {"at_ms": 1, "kind": "E", "message": "", "component": "c", "task": 1, "worker": 0, "file": "", "line": 0}
ERROR |= {"count": 1, "traceback": ""}
DEAD_LETTER = {"at_ms": 1, "component": "c", "message": 1, "values": [1], "attempts": 1, "errors": []}
REPLAY = {"at_ms": 1, "dead_letter": 1, "state": "done", "why": ""}


@pytest.fixture
def ended(flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopologyFolder:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    run_foreground(RunRequest(topology=str(flow), foreground=True))
    return StateFolder(tmp_path / "home").find("flow")


def variants(whole: dict[str, Any]) -> list[Any]:
    """Return objects without a key, or with another value of it; the message and the values of a dead letter may be any."""
    fewer = [{name: value for name, value in whole.items() if name != key} for key in whole]
    return [{}, *fewer, *({**whole, key: {"x": [None]}} for key in whole if key not in ("message", "values"))]


def test_a_summary_of_another_shape_is_reported_as_damaged(ended: TopologyFolder, capsys: pytest.CaptureFixture[str]) -> None:
    needed = ("topology", "status", "reason", "outcome", "uptime_s", "ended_ms", "totals", "components", "tasks", "workers")
    summary = json.loads(ended.summary.read_bytes())
    assert summary["totals"]["complete_latency_s"], "an object"
    for found in ([], None, "x", 3, *variants({key: summary[key] for key in needed})):
        ended.summary.write_text(json.dumps(found))
        result = call(capsys, "status", "flow")
        assert (result.code, result.out) == (Exit.FAILED, "")
        assert f"{ended.summary} is damaged" in result.err and "remove it, and `topo resume flow`" in result.err
        assert "LOST" in call(capsys, "list").out


@pytest.mark.parametrize("file", ["lock", "errors.jsonl", "dead_letters.jsonl", "history.jsonl"])
def test_a_file_that_cannot_be_read_is_named_and_other_topologies_are_listed(
    file: str, topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed, other = (StateFolder(topo_home).create(name) for name in ("closed", "other"))
    # What root is refused, too.
    (closed.path / file).symlink_to(file)
    listed = json.loads(call(capsys, "list", "--json").out)
    assert [(row["topology"], row["status"]) for row in listed] == [
        (closed.name, "UNKNOWN" if file == "lock" else "LOST"),
        (other.name, "LOST"),
    ]
    command = {"lock": "status", "errors.jsonl": "errors", "dead_letters.jsonl": "dead-letters", "history.jsonl": "history"}
    result = call(capsys, command[file], "closed")
    assert (result.code, result.out) == (Exit.FAILED, "")
    assert f"Error: cannot read {closed.path / file}: Too many levels of symbolic links" in result.err


def replaced(whole: Any, place: tuple[str | int, ...], part: Any) -> Any:
    """Return a copy of nested objects and lists with another part in a place."""
    if not place:
        return part
    copy = whole.copy()
    copy[place[0]] = replaced(whole[place[0]], place[1:], part)
    return copy


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (("totals",), ("timed_out", "replayed", "dead_lettered", "finally_failed", "refused", "complete_latency_s")),
        (("totals", "complete_latency_s"), ("p50", "p99")),
        (("components", 0), ("component", "kind", "parallelism", "counters", "levels", "event_time", "latencies_s", "user")),
        (("components", 0, "counters"), ("emitted",)),
        (("components", 0, "user"), ("counters", "gauges", "histograms")),
        (("tasks", 0), ("task", "component", "index", "worker", "counters", "levels", "event_time", "latencies_s")),
        (("workers", 0), ("worker", "state", "pid", "tasks", "losses", "lost_why")),
        ((), ("restarts", "checkpoints")),
    ],
)
def test_an_object_of_another_shape_within_a_summary_is_reported_as_damaged(
    place: tuple[str | int, ...], names: tuple[str, ...], ended: TopologyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads(ended.summary.read_bytes())
    for name in names:
        ended.summary.write_text(json.dumps(replaced(summary, (*place, name), {"x": [None]})))
        for command in (("status", "flow", "--tasks"), ("checkpoints", "flow"), ("graph", "flow"), ("list",)):
            result = call(capsys, *command)
            assert result.code == (Exit.FAILED if command[0] == "status" else Exit.DONE)
            if command[0] == "status":
                assert result.out == "" and f"{ended.summary} is damaged" in result.err
    ended.summary.write_text(json.dumps(summary))
    assert call(capsys, "status", "flow", "--tasks").code == Exit.DONE


@pytest.mark.parametrize(
    ("command", "file", "row"),
    [("errors", "errors", ERROR), ("dead-letters", "dead_letters", DEAD_LETTER), ("dead-letters", "replays", REPLAY)],
)
def test_a_row_of_another_shape_is_named_by_its_line(
    command: str, file: str, row: dict[str, Any], ended: TopologyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path: Path = getattr(ended, file)
    path.write_text(json.dumps(row) + "\n")
    assert call(capsys, command, "flow").code == Exit.DONE
    for other in variants(row):
        path.write_text("\n".join(map(json.dumps, (row, other, row))))
        result = call(capsys, command, "flow")
        assert (result.code, result.out) == (Exit.FAILED, "")
        assert f"{path} is damaged in line 2" in result.err and "correct it, or remove the file" in result.err


def test_an_action_of_another_shape_is_named_by_its_line(ended: TopologyFolder) -> None:
    row = {"at_ms": int(time.time() * 1000), "action": "deactivate", "exit": 0}
    ended.operator.write_text(json.dumps(row) + "\n")
    assert "deactivate by an operator" in [mark["text"] for mark in past(ended, {})["marks"]]
    for other in ({}, {"at_ms": 1}, {"action": "kill"}, {**row, "at_ms": "x"}, {**row, "action": 3}):
        ended.operator.write_text("\n".join(map(json.dumps, (row, other))))
        with pytest.raises(TopoEnvironmentError, match=f"{ended.operator} is damaged in line 2 .*correct it, or remove the file"):
            past(ended, {})


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "3", '{"pid": [1]}', '{"pid": 1, "client_endpoint": "nowhere"}', '{"pid": PID, "client_endpoint": "tcp://x"}'],
)
def test_a_damaged_record_of_a_running_master_is_named_with_the_way_out(
    text: str, ended: TopologyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with ended.lock():
        ended.master.write_text(text.replace("PID", str(os.getpid())))
        result = call(capsys, "status", "flow")
    assert result.code == Exit.UNREACHABLE
    assert f"{ended.master} is damaged" in result.err
    assert f"`kill {os.getpid()}` lets messages in flight finish and ends it, and `topo resume flow`" in result.err
