"""Traces: rows in any order become trees, and the time of a message is shared out without a rest."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from topo.operate.traces import Traces, rows_of
from topo_cli.waterfall import bar

TASKS = {1: ("lines", 0), 2: ("split", 1), 3: ("count", 0), 4: ("__acker", 0)}
ROOT = "4000000000000001"


def row(kind: str, task: int, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "root": ROOT, "task": task, **fields}


def span(edge: str, task: int, arrived: int, began: int, ended: int, out: list[Any] | None = None) -> dict[str, Any]:
    return row("span", task, edge=edge, arrived=arrived, began=began, ended=ended, outcome="acked", out=out or [])


ROWS = [
    row("message", 1, at=1000, message="m", out=[["aa", 2, 1000]]),
    span("aa", 2, 1100, 1300, 1350, [["bb", 3, 1340], ["cc", 3, 1340]]),
    span("bb", 3, 1400, 1405, 1500),
    span("cc", 3, 1400, 1900, 1950),
    row("end", 1, at=2100, outcome="acked"),
]


def test_rows_in_any_order_make_the_same_trace() -> None:
    shown = []
    for rows in permutations(ROWS):
        traces = Traces(TASKS)
        traces.take(rows)
        shown.append(traces.shown(traces.slowest(1)[0]))
    assert all(one == shown[0] for one in shown)
    assert [one["parents"] for one in shown[0]["spans"]] == [[""], ["aa"], ["aa"]]
    assert [one["on_path"] for one in shown[0]["spans"]] == [True, False, True]
    assert (shown[0]["took_us"], shown[0]["message"], shown[0]["unseen"]) == (1100, "m", [])


def test_the_parts_of_the_time_add_up() -> None:
    traces = Traces(TASKS)
    traces.take(ROWS)
    (trace,) = traces.all()
    assert trace.breakdown() == [
        (2, "on the way", 100),
        (2, "in front", 200),
        (2, "executing", 40),
        (3, "on the way", 60),
        (3, "in front", 500),
        (3, "executing", 50),
        (1, "acks", 150),
    ]
    where = traces.where([trace, trace])
    assert [(one["component"], sum(one["us"].values())) for one in where] == [("count", 1220), ("split", 680), ("", 300)]
    assert sum(sum(one["us"].values()) for one in where) == 2 * trace.took


def test_a_tuple_that_is_not_reported_is_shown_and_a_message_without_verdict_is_open() -> None:
    traces = Traces(TASKS)
    traces.take(ROWS[:3])
    assert traces.open == 1 and traces.slowest(5) == []
    shown = traces.shown(traces.all()[0])
    assert shown["unseen"] == [{"id": "cc", "parents": ["aa"], "component": "count", "index": 0, "sent_us": 1340}]
    assert shown["took_us"] is None
    # A message that began before the trace has no first row.
    other = Traces(TASKS)
    other.take([ROWS[-1]])
    assert other.all() == [] and other.slowest(5) == []


def test_clocks_that_differ_give_no_negative_time() -> None:
    traces = Traces(TASKS)
    traces.take([ROWS[0], span("aa", 2, 900, 950, 1350), ROWS[-1]])
    (trace,) = traces.all()
    assert all(us >= 0 for _, _, us in trace.breakdown())
    assert sum(us for _, _, us in trace.breakdown()) == trace.took


def test_a_waterfall_shows_the_phases_and_keeps_the_tuples_that_decide() -> None:
    traces = Traces(TASKS)
    many = [[f"{number:02x}", 3, 1340] for number in range(0x10, 0x70)]
    traces.take([*ROWS[:1], span("aa", 2, 1100, 1300, 1350, [*many, ["cc", 3, 1340]]), *ROWS[3:]])
    traces.take([span(edge, 3, 1400, 1405, 1410) for edge, _, _ in many])
    message = traces.shown(traces.slowest(1)[0])
    rows, left_out = rows_of(message, 40)
    assert len(rows) == 40 and left_out == 96 + 2 - 40
    assert [(one["depth"], one["id"]) for one in rows if one["on_path"]] == [(1, "aa"), (2, "cc")]
    last = next(one for one in rows if one["id"] == "cc")
    assert bar(message, last, 22) == "      ··░░░░░░░░░░██  "
    assert len(bar(message, rows[1], 10)) == 10


def test_a_chain_of_any_length_is_a_tree() -> None:
    traces = Traces(TASKS)
    traces.take([row("message", 1, at=1000, message="m", out=[["1", 2, 1000]]), ROWS[-1]])
    traces.take([span(str(at), 2, 1000 + at, 1000 + at, 1000 + at, [[str(at + 1), 2, 1000 + at]]) for at in range(1, 3000)])
    rows, left_out = rows_of(traces.shown(traces.all()[0]), 10)
    assert (len(rows), left_out, rows[-1]["depth"]) == (10, 2990, 10)


def message_of(number: int, took: int, fan_out: int = 9) -> list[dict[str, Any]]:
    """Return the rows of a message with some tuples."""
    own = {"root": f"{number:016x}"}
    edges = [f"{number}-{place}" for place in range(fan_out)]
    rows = [row("message", 1, at=number, message=None, out=[[edge, 2, number] for edge in edges])]
    rows += [span(edge, 2, number, number, number + took) for edge in edges]
    return [one | own for one in [*rows, row("end", 1, at=number + took, outcome="acked")]]


def test_the_slowest_of_many_messages_are_kept_and_the_others_counted() -> None:
    traces, most = Traces(TASKS, most=1000), 0
    for number in range(2000):
        traces.take(message_of(number, took=7919 * number % 2000))
        most = max(most, sum(len(one.spans) for one in traces.all()))
    assert 400 < most <= 1000 and traces.dropped == 0
    assert [one.took for one in traces.slowest(5)] == [1999, 1998, 1997, 1996, 1995]
    assert traces.forgotten + len(traces.all()) == 2000


def test_messages_without_a_verdict_take_no_more_room_than_there_is() -> None:
    traces = Traces(TASKS, most=100)
    for number in range(20):
        traces.take(message_of(number, took=number)[:-1])
    assert [one.at for one in traces.all()] == [0, 1, 2, 3, 4] and traces.open == 5
    assert traces.forgotten == 0 and traces.dropped >= 15
    traces.take([message_of(3, took=3)[-1]])
    traces.take(message_of(30, took=1))
    assert [one.at for one in traces.all()] == [0, 1, 2, 4, 30] and traces.forgotten == 1


def test_tuples_that_a_worker_has_not_reported_are_counted() -> None:
    traces = Traces(TASKS)
    traces.take([ROWS[0] | {"more": 7}])
    assert traces.dropped == 7


def test_a_message_is_settled_when_the_rows_behind_its_verdict_have_come() -> None:
    traces = Traces(TASKS)
    assert traces.settled([*ROWS[:2], *ROWS[-1:]]) == []
    (trace,) = traces.settled(ROWS[2:4])
    assert set(trace.spans) == {"aa", "bb", "cc"}
    assert traces.settled([]) == [] and traces.all() == []
