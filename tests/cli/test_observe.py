"""`topo tap`, `topo trace`, `topo profile`, `topo log-level` and `topo run --log-format json`, on a topology that runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.drive import PATIENCE_S, TOPO, call, piped
from tests.integration.support import eventually
from topo.master_process.client import AnswerTimeout, Unreachable
from topo.operate.observing import Observation
from topo.operate.traces import Traces
from topo_cli import trace
from topo_cli.profile import gathered, shares, speedscope, summary
from topo_cli.tap import _summary

STACKS = [
    {"task": 3, "index": 0, "frames": ["main", "work", "parse"], "count": 6},
    {"task": 3, "index": 0, "frames": ["main", "work"], "count": 2},
    {"task": 4, "index": 1, "frames": ["main", "work", "work"], "count": 4},
]


def test_shares_count_a_recursive_function_once() -> None:
    assert shares(STACKS) == [("work", 6, 12), ("parse", 6, 6), ("main", 0, 12)]


def test_a_tap_of_less_than_a_second_has_no_rate() -> None:
    answer = {"seen": 150, "looked": 150, "matched": 2, "dropped": 0, "problem": ""}
    assert _summary(answer, 2, 0.27, "") == "2 tuples shown of 150 that passed"
    assert _summary(answer, 2, 1.5, "") == "2 tuples shown of 150 that passed, 100 a second"


def test_a_speedscope_file_has_a_profile_for_each_task() -> None:
    written = speedscope("flow work", STACKS, 100)
    names = [frame["name"] for frame in written["shared"]["frames"]]
    assert names == ["main", "work", "parse"]
    assert [(one["name"], one["samples"], one["weights"]) for one in written["profiles"]] == [
        ("flow work[0]", [[0, 1, 2], [0, 1]], [0.06, 0.02]),
        ("flow work[1]", [[0, 1, 1]], [0.04]),
    ]


def test_a_profile_without_samples_names_the_causes() -> None:
    """A task that is in a call takes up no profile before the call returns."""
    none = summary("work", "flow", {"matched": 0, "seen": 0, "problem": ""})
    assert none.startswith("no samples of work: its workers were idle, or in a call") and "topo errors flow" in none
    some = summary("work", "flow", {"matched": 30, "seen": 60, "problem": "one is missing"})
    assert some == "30 samples of work, 50% of those of its workers; one is missing"


def test_a_profile_whose_file_cannot_be_written_is_refused_before_it_begins(
    capsys: pytest.CaptureFixture[str], topo_home: Path, tmp_path: Path
) -> None:
    refused = call(capsys, "profile", "flow", "work", "-o", tmp_path / "missing" / "flow.json")
    assert refused.code == 2 and "flow.json cannot be written" in refused.err


class Reports:
    """The answers to polls: the message with its verdict, and its tuple later, from another worker."""

    def __init__(self) -> None:
        message = {"kind": "message", "root": "a1", "task": 1, "at": 0.0, "message": 7, "out": [("b2", 2, 0.1)]}
        verdict = {"kind": "end", "root": "a1", "at": 0.4, "outcome": "acked"}
        times = {"arrived": 0.2, "began": 0.3, "ended": 0.4}
        span = {"kind": "span", "root": "a1", "edge": "b2", "task": 2, "outcome": "acked", "out": [], **times}
        self.answers = [[message, verdict], [], [span], [], [], []]

    def poll(self) -> dict[str, Any]:
        return {"rows": self.answers.pop(0), "matched": 1}


def test_a_trace_waits_for_the_last_tuples_of_messages_that_have_a_verdict() -> None:
    traces = Traces({1: ("numbers", 0), 2: ("double", 0)})
    trace.follow(Reports(), traces, 0.0)
    assert [list(found.spans) for found in traces.slowest()] == [["b2"]]


class Lost:
    """The answers to polls until the master is gone."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    def poll(self) -> dict[str, Any]:
        if not self.answers:
            raise Unreachable("the master does not run")
        return self.answers.pop(0)


def test_what_was_traced_is_kept_when_the_master_is_gone() -> None:
    traces = Traces({1: ("numbers", 0), 2: ("double", 0)})
    counts = trace.follow(Lost({"rows": Reports().answers[0], "matched": 1}), traces, 60.0)
    assert (counts["matched"], str(counts["lost"])) == (1, "the master does not run")
    assert len(traces.slowest()) == 1


def test_what_was_sampled_is_kept_when_the_master_is_gone() -> None:
    answer = gathered(Lost({"stacks": STACKS}), 60.0)  # type: ignore[arg-type]
    assert (answer["stacks"], str(answer["lost"])) == (STACKS, "the master does not run")


class Stalled:
    """A master that is stopped, as by `kill -STOP`."""

    def request(self, *_: object, **arguments: object) -> object:
        raise AnswerTimeout("it does not answer")


def test_an_observation_knows_that_nobody_answers() -> None:
    """To end it would take as long again."""
    seen = Observation(Stalled(), {"id": 1, "term": 1}, 10.0)  # type: ignore[arg-type]
    with pytest.raises(AnswerTimeout):
        seen.poll()
    assert seen.is_lost


@pytest.fixture
def running(flow: Path, topo_home: Path) -> Iterator[str]:
    piped("submit", flow, "-p", "items=1000000", "-p", "pause=0.002", "--workers", "2", "--wait")
    yield "flow"
    piped("kill", "flow", "--yes")


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_topology_is_watched_from_the_terminal(running: str, tmp_path: Path) -> None:
    tap = piped("tap", running, "double", "-n", "2", "--where", "value % 3 == 0")
    assert tap.code == 0
    assert all("double[0]  value=" in line for line in tap.out.splitlines())
    assert len(tap.out.splitlines()) == 2
    assert "2 tuples shown of " in tap.err and " looked at matched" in tap.err

    rows = [json.loads(line) for line in piped("tap", running, "show", "--in", "--json", "-n", "1").out.splitlines()]
    assert [(row["stream"], list(row["fields"])) for row in rows] == [("double:default", ["value"])]

    refused = piped("tap", running, "double", "--where", "length > 1")
    assert (refused.code, refused.err) == (2, "Error: double has no field 'length'; it has value\n")

    trace = piped("trace", running, "--rate", "20/s", "--for", "2s", "--slowest", "3")
    assert trace.code == 0
    assert "numbers[0] " in trace.out and ": acked after " in trace.out
    assert "  double[0] " in trace.out and "    show[0] " in trace.out and "█" in trace.out
    assert "where the time went, mean of 3 messages:" in trace.out
    assert "messages traced of " in trace.err and "the 3 slowest shown" in trace.err
    found = json.loads(piped("trace", running, "--rate", "20", "--for", "1s", "--json").out)
    assert {span["component"] for span in found["messages"][0]["spans"]} == {"double", "show"}
    assert sum(part["us"] for part in found["messages"][0]["path"]) == found["messages"][0]["took_us"]
    refused = piped("trace", running, "--rate", "many")
    assert refused.code == 2 and "'many' is no number of messages a second" in refused.err

    path = tmp_path / "double.speedscope.json"
    profile = piped("profile", running, "double", "--seconds", "1", "-o", path)
    assert profile.code == 0
    frames = [frame["name"] for frame in json.loads(path.read_text())["shared"]["frames"]]
    assert any(name.startswith("Double.execute (") for name in frames), frames
    assert "Double.execute (" in piped("profile", running, "double", "--dump").out

    assert "all loggers: DEBUG, for " in piped("log-level", running, "debug", "--for", "30s").out
    assert json.loads(piped("log-level", running, "--json").out)[0]["level"] == "DEBUG"
    assert piped("log-level", running, "loud").code == 2


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_tap_ends_with_ctrl_c_and_with_the_topology(running: str) -> None:
    tap = subprocess.Popen([*TOPO, "tap", running, "double"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert tap.stdout is not None
    assert "double[0]" in tap.stdout.readline()
    tap.send_signal(signal.SIGINT)
    _, summary = tap.communicate(timeout=PATIENCE_S)
    assert tap.returncode == 0
    assert "tuples shown of" in summary or "tuple shown of" in summary

    again = subprocess.Popen([*TOPO, "tap", running, "double"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert again.stdout is not None
    again.stdout.readline()
    piped("kill", running, "--yes")
    _, summary = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 3 and "is not running" in summary


@pytest.mark.integration
@pytest.mark.timeout(300)
def profile_until_interrupted(name: str) -> tuple[dict[str, Any], str]:
    """Interrupt a profile that has announced itself; return its samples and its summary."""
    profile = subprocess.Popen(
        [*TOPO, "profile", name, "double", "--seconds", "600", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert profile.stderr is not None
    assert profile.stderr.readline() == "profiling double of flow for 600 s; Ctrl-C ends it early\n"
    profile.send_signal(signal.SIGINT)
    out, summary = profile.communicate(timeout=PATIENCE_S)
    assert profile.returncode == 0, summary
    return json.loads(out), summary


def test_ctrl_c_ends_a_profile_with_what_was_sampled(running: str) -> None:
    # On a busy machine the worker may take no sample in so short a time.
    found = next(found for _ in range(10) if (found := profile_until_interrupted(running))[0]["stacks"])
    assert " samples of double, " in found[1]


COLUMNS = """
import time

from topo import ColumnBolt, Spout, TopologyBuilder


class Numbers(Spout):
    outputs = ("number",)

    def open(self, context, collector):
        self.collector, self.number = collector, 0

    def next_tuple(self):
        time.sleep(0.001)
        self.number += 1
        self.collector.emit((self.number,), message_id=self.number)


class Double(ColumnBolt):
    outputs = ("double", "name")

    def execute_batch(self, batch, collector):
        numbers = [2 * number for number in batch["number"]]
        collector.emit_batch({"double": numbers, "name": [f"n{number}" for number in numbers]})


class End(ColumnBolt):
    outputs = ()

    def execute_batch(self, batch, collector):
        pass


builder = TopologyBuilder("columns")
builder.set_spout("numbers", Numbers())
builder.set_bolt("double", Double()).shuffle_grouping("numbers")
builder.set_bolt("end", End()).shuffle_grouping("double")
topology = builder.build()
"""


def status_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(piped("status", name, "--json").out)
    return found


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("command", "shown", "summary"),
    [
        (("trace", "flow", "--rate", "50/s", "--for", "60s"), "acked after", "messages traced of"),
        (("profile", "flow", "double", "--seconds", "60"), "function", "samples of double"),
        (("tap", "flow", "double"), "double[0]", "shown of"),
    ],
)
def test_a_master_that_is_killed_meanwhile_leaves_what_was_seen(
    running: str, command: tuple[str, ...], shown: str, summary: str
) -> None:
    """A trace of a minute was lost with the master."""
    watching = subprocess.Popen([*TOPO, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun_with = status_of(running)["totals"]["acked"]
    eventually(lambda: status_of(running)["totals"]["acked"] > begun_with + 2000, what="messages that are observed")
    status = status_of(running)
    os.kill(status["master"]["pid"], signal.SIGKILL)
    out, err = watching.communicate(timeout=PATIENCE_S)
    for worker in status["workers"]:
        os.kill(worker["pid"], signal.SIGKILL)
    assert watching.returncode == 3
    assert shown in out and summary in err
    assert err.splitlines()[-1].startswith("Error: the master of 'flow' does not run and left no summary; ")
    assert err.endswith("`topo resume flow` continues it\n")


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_batches_of_columns_are_tapped_as_rows(topo_home: Path, tmp_path: Path) -> None:
    path = tmp_path / "columns.py"
    path.write_text(COLUMNS)
    piped("submit", path, "--wait")
    try:
        for arguments in (("double",), ("end", "--in")):
            tap = piped("tap", "columns", *arguments, "--json", "-n", "3", "--where", "double % 4 == 0")
            fields = [json.loads(line)["fields"] for line in tap.out.splitlines()]
            assert len(fields) == 3, tap.err
            assert all(row["double"] % 4 == 0 and row["name"] == f"n{row['double']}" for row in fields)
    finally:
        piped("kill", "columns", "--yes")


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_run_with_a_log_in_json_has_nothing_else_on_stderr(flow: Path) -> None:
    result = piped("run", flow, "--log-format", "json")
    rows = [json.loads(line) for line in result.err.splitlines()]
    assert sorted(result.out.partition("\n\n")[0].splitlines()) == ["value 0", "value 2", "value 4"]
    assert {row["topology"] for row in rows} == {"flow"}
    assert {"time", "level", "logger", "message", "epoch", "worker", "task", "component"} <= set.intersection(*map(set, rows))
    assert {"topo.run", "topo.worker"} <= {row["logger"] for row in rows}
