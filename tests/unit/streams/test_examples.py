"""The programs of topologies/streams give what plain Python computes of the same input, whichever component is killed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from topo.testing import CRASH, END, PAUSE, TopologyTest
from topologies.streams import fraud, logins, sessions, top_pages, word_count

MINUTE = 60_000
SEEDS = range(2)


def text(records: Sequence[Any]) -> list[str]:
    return [msgspec.json.encode(record).decode() for record in records]


def run(topology: Any, lines: Sequence[str], kill: str | None, seed: int) -> TopologyTest:
    """Run a program over lines; half way the worker of a component is killed."""
    half = len(lines) // 2
    crash = [CRASH(kill)] if kill is not None else []
    script = [*lines[:half], *crash, *lines[half:], END]
    test = TopologyTest(topology, sources={"lines": script}, seed=seed, checkpoint_interval="10ms")
    test.run()
    test.assert_all_acked()
    assert [error for error in test.errors() if error.kind != "WorkerLost"] == []
    return test


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def clicks(seed: int) -> list[sessions.Click]:
    """Clicks of an hour and a half, in order of time."""
    chance = Random(seed)
    times = sorted(chance.randrange(90 * MINUTE) for _ in range(60))
    return [sessions.Click(chance.choice("abc"), f"/{chance.randrange(14)}", at) for at in times]


@pytest.mark.parametrize("kill", [None, "lines", "lines-steps", "count"])
def test_word_count_equals_a_counter(kill: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["The sea, the", "open sea", "SEA and sky", "sky"] * 5
    run(word_count.topology, lines, kill, 0)
    printed = [eval(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(printed) == sorted(Counter(" ".join(lines).lower().split()).items())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill", [None, "lines-steps", "visits", "out"])
def test_sessions_equal_gaps_in_the_clicks(kill: str | None, seed: int, tmp_path: Path) -> None:
    given = clicks(seed)
    wanted: dict[str, list[list[int]]] = defaultdict(list)
    for click in given:
        visits = wanted[click.user]
        if visits and click.at - visits[-1][-1] <= 30 * MINUTE:
            visits[-1].append(click.at)
        else:
            visits.append([click.at])
    expected = [(user, v[0], v[-1] + 30 * MINUTE, len(v)) for user, visits in wanted.items() for v in visits]

    program = partial(sessions.topology, "clicks.jsonl", str(tmp_path / "visits"), str(tmp_path / "late"))
    run(program, text(given), kill, seed)

    assert sorted(tuple(row.values()) for row in rows(tmp_path / "visits")) == sorted(expected)
    assert rows(tmp_path / "late") == []


def test_late_clicks_go_to_their_file(tmp_path: Path) -> None:
    early, late = text([sessions.Click("a", "/", 10 * 60 * MINUTE), sessions.Click("b", "/late", 0)])
    program = partial(sessions.topology, "clicks.jsonl", str(tmp_path / "visits"), str(tmp_path / "late"))
    run(program, [early, PAUSE("1s"), late], None, 0)
    assert [row["url"] for row in rows(tmp_path / "late")] == ["/late"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill", [None, "fraud", "out"])
def test_fraud_equals_a_scan_of_the_payments(kill: str | None, seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    times = sorted({chance.randrange(20 * MINUTE) for _ in range(80)})
    given = [fraud.Payment(chance.choice("xyz"), chance.choice([50, 20_00, 900_00]), at) for at in times]
    last: dict[str, fraud.Payment] = {}
    expected = []
    for payment in given:
        before = last.get(payment.card)
        if before is not None and before.cents < 1_00 and payment.cents > 500_00 and payment.at < before.at + MINUTE:
            expected.append({"card": payment.card, "at": payment.at})
        last[payment.card] = payment

    run(partial(fraud.topology, "payments.jsonl", str(tmp_path / "alerts")), text(given), kill, seed)

    found = sorted(rows(tmp_path / "alerts"), key=lambda row: row["at"])
    assert expected
    assert found == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_top_pages_equal_the_counts_of_each_window(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    given = [top_pages.Click(click.user, click.url, click.at) for click in clicks(seed)]
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for click in given:
        first = click.at - click.at % MINUTE + MINUTE
        for end in range(first, first + 10 * MINUTE, MINUTE):
            counts[end][click.url] += 1

    run(partial(top_pages.topology, "clicks.jsonl"), text(given), None, seed)

    printed: dict[int, list[int]] = defaultdict(list)
    for end, url, count in (eval(line) for line in capsys.readouterr().out.splitlines()):
        assert counts[end][url] == count
        printed[end].append(count)
    assert printed == {end: sorted(found.values(), reverse=True)[:10] for end, found in counts.items()}


@pytest.mark.parametrize("kill", [None, "lines-steps"])
def test_a_login_after_three_failures_is_reported(kill: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    given = [logins.Login("ann", False, at * 1_000) for at in (0, 10, 20)]
    given += [logins.Login("bob", False, 21_000), logins.Login("ann", True, 30_000), logins.Login("bob", True, 31_000)]
    given += [logins.Login("ann", False, 32_000), logins.Login("ann", True, 33_000)]
    run(partial(logins.topology, "logins.jsonl"), text(given), kill, 0)
    assert capsys.readouterr().out.splitlines() == ["ann: 3 failures, then a login"]
