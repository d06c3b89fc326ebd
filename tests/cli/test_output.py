from __future__ import annotations

import io
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from tests.cli.drive import Terminal, call
from topo.storage.state_folder import StateFolder
from topo_cli.output import (
    ago,
    clock_time,
    json_text,
    make_console,
    now_ms,
    plural,
    print_json,
    print_json_rows,
    rate,
    seconds,
    talk,
)
from topo_cli.tables import TableColumn, fitted_table


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (None, "-"),
        (0.0, "0s"),
        (0.00000089, "890ns"),
        (0.0000123, "12.3us"),
        (0.0045, "4.5ms"),
        (1.25, "1.25s"),
        (59.96, "60s"),
        (200, "3m20s"),
        (18120, "5h02m"),
        (3 * 86400 + 4 * 3600, "3d04h"),
    ],
)
def test_durations_have_three_digits_and_the_unit_that_fits(duration_s: float | None, text: str) -> None:
    assert seconds(duration_s) == text


def test_rates_keep_a_digit_behind_the_point_only_when_small() -> None:
    assert [rate(0), rate(1.84), rate(1234.5)] == ["0", "1.8", "1,234"]


def test_texts_of_user_code_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\tnext\nline é"
    console = make_console()
    console.print(Text(bad, style="bold"))
    console.print(
        fitted_table(console, [bad], [TableColumn("why", lambda row: row, is_text=True), TableColumn("n", lambda _row: "1")])
    )
    talk(bad)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "\\x1b[31mred\\x1b]0;title" in text and "\\x9b2J" in text and "line é" in text
        assert not set(text) & set("\x1b\x07\r\x9b")


@pytest.mark.parametrize("rows", [[], [{}], [{"a": [1, {"b": "x\ny é"}], "c": []}, {"nan": float("nan")}, 5]])
def test_rows_are_printed_one_at_a_time_as_they_are_together(capsys: pytest.CaptureFixture[str], rows: list[object]) -> None:
    print_json(rows)
    together = capsys.readouterr().out
    print_json_rows(iter(rows))
    assert capsys.readouterr().out == together


def test_numbers_that_json_does_not_have_are_null() -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    gauges = {"ratio": float("nan"), "limit": float("inf"), "count": 3, "name": "é"}
    text = json_text({"gauges": gauges})
    assert json.loads(text, parse_constant=refuse) == {"gauges": {"ratio": None, "limit": None, "count": 3, "name": "é"}}
    assert "é" in text and "\n" not in text and "\n" in json_text({"gauges": gauges}, indent=2)


def test_numbers_of_things_and_times_ago() -> None:
    assert [plural(1, "restart"), plural(1200, "message")] == ["1 restart", "1,200 messages"]
    assert ago(1_000, 61_000) == "1m00s ago"
    assert ago(None, 61_000) == "-"


def printed(width: int, columns: list[TableColumn]) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(fitted_table(console, [{"name": "count[0]", "tasks": 3, "why": "[red] is no colour"}], columns))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


COLUMNS = [
    TableColumn("name", lambda row: row["name"], 3, is_text=True),
    TableColumn("tasks", lambda row: str(row["tasks"]), 1),
    TableColumn("why", lambda row: row["why"], 2, is_text=True),
]


def test_a_table_leaves_out_whole_columns_where_there_is_no_room() -> None:
    assert "tasks" in printed(60, COLUMNS)
    narrow = printed(30, COLUMNS)
    assert "tasks" not in narrow
    assert "count[0]" in narrow and "[red] is no colour" in narrow


def test_a_wide_column_that_is_left_out_leaves_its_room_to_others() -> None:
    wide = TableColumn("drawn", lambda _row: "#" * 40, 2, is_text=True)
    narrow = printed(40, [*COLUMNS[:2], wide, TableColumn("last", lambda _row: "17", 4)])
    assert "drawn" not in narrow and "tasks" in narrow
    assert [narrow.index(title) for title in ("name", "tasks", "last")] == sorted(map(narrow.index, ("name", "tasks", "last")))


def test_a_table_keeps_two_columns_however_narrow_it_is() -> None:
    narrow = printed(12, COLUMNS)
    assert "why" in narrow and "tasks" not in narrow


def test_columns_of_zero_are_no_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    make_console().print(Text("all of it"))
    assert capsys.readouterr().out == "all of it\n"
    with Terminal("doctor", COLUMNS="0") as terminal:
        terminal.wait_for("package")


def test_a_moment_of_another_day_has_its_date() -> None:
    now = now_ms()
    assert len(clock_time(now)) == len("18:02:14.235") and clock_time(now)[-4:] == f".{now % 1000:03}"
    assert re.fullmatch(r"2026-11-2[01] \d\d:\d\d:14\.235", clock_time(1_795_197_734_235))


def test_times_of_logs_are_local_as_those_of_errors_are(
    capsys: pytest.CaptureFixture[str], topo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StateFolder(topo_home).create("flow")
    moment = datetime(2026, 11, 28, 18, 2, 14, 235_000, UTC)
    row = {"time": "2026-11-28T18:02:14.235Z", "level": "INFO", "worker": 0, "message": "one"}
    (folder.logs / "worker-0.log").write_text(json.dumps(row) + "\n" + json.dumps(row | {"time": "then"}) + "\n")
    error = {
        "count": 1,
        "component": "",
        "task": None,
        "worker": 0,
        "kind": "Lost",
        "message": "two",
        "file": "",
        "line": 0,
        "traceback": "",
    }
    folder.errors.write_text(json.dumps(error | {"at_ms": int(moment.timestamp() * 1000)}) + "\n")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        logs, errors = call(capsys, "logs", "flow"), call(capsys, "errors", "flow")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "13:02:14.235 worker 0         INFO one" in logs.out and "then worker 0 " in logs.out
    assert "13:02:14.235" in errors.out
