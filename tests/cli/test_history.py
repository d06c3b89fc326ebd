"""`topo history`: the past of an ended topology, from the lines on disk."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.drive import call
from tests.unit.observability.test_history import overview
from topo.master_process.history_keeper import HistoryKeeper
from topo.storage.state_folder import StateFolder
from topo_cli.history import asked_for, refuse_series, sparkline


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder with a topology that has ended a minute ago, after two minutes."""
    folder = StateFolder(tmp_path / "home").create("past")
    moment, rate = [time.time() - 180.0], [0.0]
    keeper = HistoryKeeper(folder.history, lambda: overview(rate[0]), lambda: moment[0])
    for second in range(120):
        rate[0] = 100.0 if second < 60 else 300.0
        keeper.tick(float(second))
        moment[0] += 1.0
    keeper.close()
    return tmp_path / "home"


def test_rates_of_the_past_are_drawn(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = call(capsys, "history", "past", "--home", home, "--since", "5m", "--step", "10s", "--series", "out")
    assert shown.code == 0
    (line,) = [line for line in shown.out.splitlines() if line.startswith("count")]
    assert line.split()[:5] == ["count", "out", "100", "300", "300"]
    assert "▃▃▃▃▃" in line and "█████" in line
    assert "RUNNING, epoch 1" in shown.out


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_figures_and_the_whole_time_are_shown_on_a_narrow_terminal(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = call(capsys, "history", "past", "--home", home, "--since", "5m", "--series", "out")
    assert max(map(len, shown.out.splitlines())) <= width
    (line,) = [line for line in shown.out.splitlines() if line.startswith("count")]
    assert line.split()[:5] == ["count", "out", "100", "300", "300"]
    assert "▃" in line and "█" in line


def test_json_has_every_series_by_subject(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = call(capsys, "history", "past", "--home", home, "--series", "all", "--json")
    data = json.loads(shown.out)
    assert set(data["series"]) == {"total", "component/count"}
    values = [value for value in data["series"]["component/count"]["out"] if value is not None]
    assert (values[0], values[-1]) == (100.0, 300.0)
    assert len(data["series"]["total"]["acked"]) == data["length"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--component", "cuont"], "past has no component 'cuont' in that time; it has count"),
        (["--series", "speed"], "there is no series 'speed'; there are acked, blocked, busy"),
    ],
)
def test_an_unknown_component_or_series_is_refused_with_the_known_ones(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    shown = call(capsys, "history", "past", "--home", home, *arguments)
    assert shown.code == 2
    assert text in shown.err.replace("\n", " ")


def test_the_known_series_are_named_in_the_order_of_words_and_latencies_as_a_range(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.UsageError) as refused:
        refuse_series({"nope"}, {"took", "2^3", "acked", "2^-10", "2^-9", "in_front"})
    assert str(refused.value) == "there is no series 'nope'; there are acked, in_front, took, and of latencies 2^-10 to 2^3"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], {"subjects": None, "series": ["in", "out", "capacity", "in_front", "p99"]}),
        (["--component", "count"], {"subjects": ["component/count"], "series": ["in", "out", "capacity", "in_front", "p99"]}),
        (["--series", "out, in"], {"subjects": None, "series": ["out", "in"]}),
        (["--series", "all"], {"subjects": None, "series": None}),
    ],
)
def test_a_master_is_asked_for_what_is_shown(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], asked: dict[str, Any]
) -> None:
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert asked_for([given["--component"]] if "--component" in given else [], given.get("--series")) == asked
    shown = call(capsys, "history", "past", "--home", home, *arguments)
    assert (shown.code, "count" in shown.out) == (0, True)


def test_a_time_without_points_is_no_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = call(capsys, "history", "past", "--home", home, "--since", "10s")
    assert (shown.code, shown.out) == (0, "")
    assert "no history of past in the last 10s" in shown.err


def test_a_line_of_figures_has_its_greatest_at_the_top_and_blanks_for_missing_ones() -> None:
    assert sparkline([0.0, 3.5, 7.0, float("nan")]) == "▁▅█ "
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""
