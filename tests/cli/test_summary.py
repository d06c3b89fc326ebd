from __future__ import annotations

from typing import Any

from topo_cli.summary import notes, summary_text


def status(**changes: Any) -> dict[str, Any]:
    names = ("emitted", "acked", "failed", "replayed", "timed_out", "dead_lettered", "finally_failed", "refused")
    totals = dict.fromkeys(names, 0) | {"executed": 900, "complete_latency_s": {"p50": 0.001, "p99": 0.02}}
    return {
        "topology": "flow",
        "uptime_s": 3.0,
        "restarts": 0,
        "unreported": 0,
        "outcome": {"kind": "done", "reason": "every message was processed", "exit_code": 0},
        "totals": totals | changes.pop("totals", {}),
        "components": [
            {"component": "lines", "kind": "spout", "counters": {}},
            {"component": "count", "kind": "bolt", "counters": {"late_dropped": changes.pop("late_dropped", 0)}},
            {"component": "__acker", "kind": "acker", "counters": {}},
        ],
        "tasks": [{"task": 1, "component": "lines"}, {"task": 2, "component": "count"}, {"task": 3, "component": "__acker"}],
        "workers": [{"worker": 0, "tasks": [1], "losses": 0}, {"worker": 1, "tasks": [2, 3], "losses": 0}],
        **changes,
    }


def test_the_summary_tells_what_became_of_the_messages_and_how_fast() -> None:
    text = summary_text(status(totals={"emitted": 1200, "acked": 300, "dead_lettered": 2}, restarts=4), 1).plain
    lines = {line[:16].strip(): line[16:].strip() for line in text.splitlines()[1:]}
    assert text.startswith("flow ended after 3s: every message was processed")
    assert (lines["emitted"], lines["acked"], lines["dead-lettered"], lines["restarts"]) == ("1,200", "300", "2", "4")
    assert lines["mean rates"] == "100 messages acked/s, 300 tuples executed/s"
    assert lines["acked within"] == "p50 1ms, p99 20ms"


def test_the_summary_counts_the_tuples_that_are_lost_where_nothing_is_tracked() -> None:
    """Its `failed` counts messages, of which none fails then."""
    components = [
        {"component": "lines", "kind": "spout", "counters": {"failed": 0, "unsent": 1}},
        {"component": "publish", "kind": "bolt", "counters": {"failed": 1200, "unsent": 0}},
        {"component": "count", "kind": "bolt", "counters": {"failed": 0}},
    ]
    assert "\n  tuples lost     1,201: 1 of lines, 1,200 of publish\n" in summary_text(status(components=components), 0).plain
    assert "tuples lost" not in summary_text(status(), 0).plain


def test_a_run_that_lost_nothing_has_no_notes() -> None:
    assert notes(status()) == []


def test_the_summary_says_whose_attributes_died_and_that_tuples_may_have_come_twice() -> None:
    """Promise of the README: The attributes of a bolt die with its process, as in Storm, unless it is a StatefulBolt. The summary
    reports such a loss.
    """
    workers = [{"worker": 0, "tasks": [1], "losses": 1}, {"worker": 1, "tasks": [2, 3], "losses": 2}]
    lost, again = notes(status(workers=workers, totals={"emitted": 1, "replayed": 1}))
    assert "count (2x)" in lost and "lines" not in lost and "acker" not in lost
    assert "started again from zero" in lost
    assert again.startswith("Replayed: 1 message;")


def test_the_summary_names_windows_that_dropped_late_records() -> None:
    (dropped,) = notes(status(late_dropped=1234))
    assert dropped.startswith("Dropped, as too late for their windows: 1,234 of count. More disorder")


def test_bolts_whose_prepare_raised_before_any_message_have_lost_no_attributes() -> None:
    assert notes(status(workers=[{"worker": 1, "tasks": [2], "losses": 3}], totals={"emitted": 0})) == []


def test_the_summary_names_ended_processes_whose_counts_are_incomplete() -> None:
    (one,) = notes(status(unreported=1))
    assert one.startswith("The counts of 1 ended process are incomplete: those after the last heartbeat are missing")
    assert notes(status(unreported=2))[0].startswith("The counts of 2 ended processes are incomplete")


def test_with_checkpoints_it_says_from_where_the_topology_went_on() -> None:
    workers = [{"worker": 0, "tasks": [1], "losses": 0}, {"worker": 1, "tasks": [2, 3], "losses": 1}]
    (restored,) = notes(status(workers=workers, checkpoints={"restores": 2}))
    assert restored.startswith("Continued from a checkpoint 2 times;")
    (again,) = notes(status(workers=workers, totals={"emitted": 5}, checkpoints={"restores": 0}))
    assert again.startswith("Started again from the beginning, because there was no checkpoint yet;")
    assert notes(status(checkpoints={"restores": 0})) == []
    assert notes(status(workers=workers, checkpoints={"restores": 0})) == [], "it has never begun"
