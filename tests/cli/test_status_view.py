from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from topo_cli.exits import Exit
from topo_cli.run import _print_summary
from topo_cli.screen import PlainScreen
from topo_cli.status_view import event_time_table, messages, status_view


def row(component: str, kind: str = "bolt", **given: Any) -> dict[str, Any]:
    figures = {"executed_per_s": 0.0, "emitted_per_s": 0.0, "capacity": 0.0, "busy": 0.0, "backpressured": 0.0}
    user: dict[str, Any] = {"counters": {}, "gauges": {}, "histograms": {}}
    empty: dict[str, Any] = {"counters": {}, "levels": {}, "event_time": None, "latencies_s": {}, "user": user}
    return {"component": component, "kind": kind, "parallelism": 1, **figures, **empty, **given}


def status(*rows: dict[str, Any]) -> dict[str, Any]:
    totals = {"emitted": 0, "acked": 0, "emitted_per_s": 0.0, "acked_per_s": 0.0, "pending": 0, "complete_latency_s": None}
    totals |= dict.fromkeys(("failed", "timed_out", "replayed", "dead_lettered", "finally_failed", "refused"), 0)
    about = {"topology": "sums", "status": "RUNNING", "uptime_s": 1.0, "restarts": 0, "reason": "", "ended_ms": None}
    return {**about, "totals": totals, "components": list(rows), "tasks": [], "workers": []}


def shown(console_width: int, given: dict[str, Any]) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=console_width)
    console.print(status_view(console, given))
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return [line.split() for line in lines]


WINDOWS = row(
    "sum",
    counters={"late": 1200, "late_dropped": 7},
    levels={"open_windows": 42.0, "timers": 43.0, "state_entries": 44.0},
    event_time={"watermark_ms": 5, "lag_s": 12.5, "held_back_by": "parse[1]"},
)


def test_the_spouts_messages_have_rates_while_it_goes_on() -> None:
    given = status(row("source", "spout"))
    given["totals"] |= {"emitted": 5000, "emitted_per_s": 1000.0, "acked": 4000}
    assert shown(200, given)[1] == ["emitted", "5,000", "(1,000/s)", "acked", "4,000", "(0/s)", "pending", "0"]
    assert shown(200, given | {"status": "FINISHED"})[1] == ["emitted", "5,000", "acked", "4,000", "pending", "0"]


def test_status_counts_messages_that_no_attempt_follows() -> None:
    given = status(row("source", "spout"))
    given["totals"] |= {"emitted": 5000, "acked": 4960, "pending": 9, "finally_failed": 31, "refused": 2}
    assert shown(200, given)[1][-7:] == ["pending", "9", "finally", "failed", "31", "refused", "2"]


def test_errors_are_counted_beside_the_messages() -> None:
    """A source that raises at each attempt fails no message: nothing else shows that it does."""
    given = status(row("source", "spout"))
    given["components"][0]["counters"] |= {"errors": 36}
    assert shown(200, given)[1][-4:] == ["pending", "0", "errors", "36"]


def test_a_topology_of_windows_shows_its_event_time() -> None:
    calls = row("look-up", levels={"async_in_flight": 9.0})
    lines = shown(200, status(row("source", "spout"), WINDOWS, calls))
    head = next(line for line in lines if line[:3] == ["component", "watermark", "lag"])
    assert head[3:] == ["held", "back", "by", "late", "dropped", "windows", "timers", "in", "flight", "state"]
    at = lines.index(head)
    assert lines[at + 1] == ["sum", "12.5s", "parse[1]", "1,200", "7", "42", "43", "44"]
    assert lines[at + 2] == ["look-up", "9"]
    assert len(lines) == at + 3, "the spout has no event time"


@pytest.mark.parametrize("word", ["FINISHED", "KILLED", "FAILED"])
def test_a_rate_is_told_as_long_as_the_topology_lives(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = status(row("source", "spout"))
    given["totals"] |= {"acked": 10, "acked_per_s": 5.0}
    for line, shown_text in ((given, "acked 10 (5.0/s)"), (given | {"status": word}, "acked 10")):
        PlainScreen(quiet=False).progress(line)
        assert f", {shown_text}, pending" in capsys.readouterr().err
        assert messages(line)[1] == shown_text


@pytest.mark.parametrize(("dead_letters", "named"), [(0, False), (2, True)])
def test_dead_letters_are_pointed_to_when_there_are_any(
    dead_letters: int, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    given = status(row("source", "spout")) | {
        "dead_letters": dead_letters,
        "outcome": {"kind": "finally failed", "reason": "it is so", "dead_letters": dead_letters},
    }
    given["totals"] |= {"finally_failed": 1, "executed": 1}
    _print_summary(given, Exit.FAILED, as_json=False, has_advice=True)
    shown_text = capsys.readouterr().err
    assert "next: topo errors sums, " in shown_text and shown_text.endswith("topo logs sums\n")
    assert ("topo dead-letters sums" in shown_text) is named


def test_before_the_first_watermark_the_lag_is_none_yet() -> None:
    lines = shown(200, status(row("parse", event_time={"watermark_ms": None, "lag_s": None, "held_back_by": "source[0]"})))
    assert lines[-1] == ["parse", "none", "yet", "source[0]"]


def test_a_narrow_terminal_keeps_the_lag_and_who_is_to_blame() -> None:
    head = next(line for line in shown(50, status(WINDOWS)) if line[:3] == ["component", "watermark", "lag"])
    assert head[3:6] == ["held", "back", "by"] and "state" not in head


def test_tasks_are_shown_one_by_one_when_asked_for() -> None:
    console = Console(file=io.StringIO(), width=200)
    given = status() | {"tasks": [WINDOWS | {"task": 4, "index": 1}]}
    console.print(event_time_table(console, given, tasks=True))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "4 sum[1]" in text and "12.5s" in text


def test_the_wait_before_a_bolt_is_in_the_table_and_stays_longer_than_the_frames() -> None:
    slow = row("slow", levels={"queue": 12.0, "queue_s": 1.25})
    given = status(row("source", "spout"), slow, row("unbounded", levels={"queue": 3.0}))
    wide = shown(200, given)
    head = next(line for line in wide if line[:1] == ["component"])
    assert head[-2:] == ["queue", "wait"]
    rows = {line[0]: line[-2:] for line in wide if line[:1] in (["source"], ["slow"], ["unbounded"])}
    assert (rows["slow"], rows["unbounded"][-1], rows["source"][-1]) == (["12", "1.25s"], "3", "0")
    narrow = next(line for line in shown(90, given) if line[:1] == ["component"])
    assert "wait" in narrow and "queue" not in narrow


def test_a_topology_without_event_time_shows_nothing_of_it() -> None:
    plain = status(row("source", "spout"), row("count"))
    assert event_time_table(Console(file=io.StringIO()), plain) is None
    assert not any("watermark" in line for line in shown(200, plain))


def test_the_workers_that_topo_has_packed_are_named_and_others_are_not() -> None:
    packing = "64 tasks in 16 workers (the default on this machine)"
    assert " ".join(shown(200, status(row("source", "spout")) | {"packing": packing})[1]) == packing
    assert shown(200, status(row("source", "spout")) | {"packing": ""}) == shown(200, status(row("source", "spout")))


def test_operators_of_a_program_of_streams_stand_with_their_component() -> None:
    fused = row("count", operators=["count at words.py:7", "map at words.py:8"])
    lines = shown(200, status(row("source", "spout", operators=["from_files at words.py:6"]), fused))
    at = lines.index(["component", "operators"])
    assert lines[at + 1 :] == [
        ["source", "from_files", "at", "words.py:6"],
        ["count", "count", "at", "words.py:7,", "map", "at", "words.py:8"],
    ]
    assert ["component", "operators"] not in shown(200, status(row("source", "spout", operators=[])))


def test_workers_on_several_hosts_are_shown_with_their_hosts() -> None:
    given = status(row("source", "spout"))
    alike = {"state": "LIVE", "tasks": [1], "losses": 2, "lost_why": "gone"}
    given["workers"] = [{"worker": 0, "host": "alpha", "pid": 31, **alike}, {"worker": 1, "host": "", "pid": 0, **alike}]
    assert ["0", "live", "31", "1", "2", "gone"] in shown(200, given)
    given["workers"].append({"worker": 2, "host": "beta", "pid": 31, **alike})
    assert ["0", "live", "alpha", "31", "1", "2", "gone"] in shown(200, given)
