"""The programs of topologies/streams give what plain Python computes of the same input, whichever component is killed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import streams_programs as plain
from tests.streams_programs import MINUTE, rows, text
from topo.streams import Windowed
from topo.testing import CRASH, END, PAUSE, TopologyTest
from topologies.streams import cdc, fraud, logins, once, paid_orders, sessions, top_pages, word_count

SEEDS = range(2)
PROGRAMS = Path(sessions.__file__).parent
LINES = {
    "word_count": 5, "sessions": 8, "fraud": 17, "enrich": 8, "paid_orders": 8, "top_pages": 6, "once": 5, "cdc": 7, "logins": 14,
    "delays": 6,
}  # fmt: skip
"""How many lines that say something a program may have."""


def values(file: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows(file))


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


@pytest.mark.parametrize("program", sorted(LINES))
def test_a_program_has_no_more_lines_than_it_needs(program: str) -> None:
    source = (PROGRAMS / f"{program}.py").read_text()
    left_out = set()
    for node in ast.parse(source).body:
        is_record = isinstance(node, ast.ClassDef) and ast.unparse(node.bases[0]) == "msgspec.Struct"
        if is_record or isinstance(node, ast.Import | ast.ImportFrom | ast.Expr):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    counted = [line for number, line in lines if number not in left_out and any(map(str.isalnum, line.partition("#")[0]))]
    assert len(counted) <= LINES[program], counted


def test_each_program_is_counted() -> None:
    assert sorted(LINES) == sorted(file.stem for file in PROGRAMS.glob("*.py"))


@pytest.mark.parametrize("kill", [None, "lines", "count"])
def test_word_count_equals_a_counter(kill: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    lines = plain.words(0, 20)
    run(word_count.topology, lines, kill, 0)
    printed = [eval(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(printed) == plain.word_counts(lines)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill", [None, "lines", "visits", "out"])
def test_sessions_equal_gaps_in_the_clicks(kill: str | None, seed: int, tmp_path: Path) -> None:
    given = plain.clicks(seed)
    program = partial(sessions.topology, "clicks.jsonl", str(tmp_path / "visits"), str(tmp_path / "late"))
    run(program, text(given), kill, seed)

    assert values(tmp_path / "visits") == plain.visits(given)
    assert rows(tmp_path / "late") == []


def test_late_clicks_go_to_their_file(tmp_path: Path) -> None:
    early, late = text([sessions.Click("a", "/", 10 * 60 * MINUTE), sessions.Click("b", "/late", 0)])
    program = partial(sessions.topology, "clicks.jsonl", str(tmp_path / "visits"), str(tmp_path / "late"))
    run(program, [early, PAUSE("1s"), late], None, 0)
    assert [row["url"] for row in rows(tmp_path / "late")] == ["/late"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill", [None, "fraud", "out"])
def test_fraud_equals_a_scan_of_the_payments(kill: str | None, seed: int, tmp_path: Path) -> None:
    given = plain.card_payments(seed)
    run(partial(fraud.topology, "payments.jsonl", str(tmp_path / "alerts")), text(given), kill, seed)

    assert plain.alerts(given)
    assert values(tmp_path / "alerts") == plain.alerts(given)


@pytest.mark.parametrize("seed", SEEDS)
def test_top_pages_equal_the_counts_of_each_window(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    given = plain.clicks(seed)
    run(partial(top_pages.topology, "clicks.jsonl"), text(given), None, seed)

    printed = [eval(line, {"Windowed": Windowed}) for line in capsys.readouterr().out.splitlines()]
    plain.check_top_pages([(w.end, [(url, each.value) for url, each in w.value]) for w in printed], given)


@pytest.mark.parametrize("kill", [None, "lines"])
def test_a_login_after_three_failures_is_reported(kill: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    given = [logins.Login("ann", False, at * 1_000) for at in (0, 10, 20)]
    given += [logins.Login("bob", False, 21_000), logins.Login("ann", True, 30_000), logins.Login("bob", True, 31_000)]
    given += [logins.Login("ann", False, 32_000), logins.Login("ann", True, 33_000)]
    run(partial(logins.topology, "logins.jsonl"), text(given), kill, 0)
    assert capsys.readouterr().out.splitlines() == plain.breaches(given) == ["ann: 3 failures, then a login"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill", [None, "paid", "out"])
def test_paid_orders_equal_a_scan_of_the_payments(kill: str | None, seed: int, tmp_path: Path) -> None:
    orders, payments = plain.orders_and_payments(seed)
    crash = [CRASH(kill)] if kill is not None else []
    script = {"orders": [*text(orders[:15]), *crash, *text(orders[15:]), END], "payments": [*text(payments), END]}
    program = partial(paid_orders.topology, "orders.jsonl", "payments.jsonl", str(tmp_path / "paid"))
    test = TopologyTest(program, sources=script, seed=seed, checkpoint_interval="10ms")
    test.run()
    assert values(tmp_path / "paid") == plain.paid(orders, payments)


@pytest.mark.parametrize("kill", [None, "users"])
def test_clicks_have_the_name_of_their_moment(kill: str | None, tmp_path: Path) -> None:
    crash = [CRASH(kill)] if kill is not None else []
    changes = [*text([cdc.User("u", "Ann"), cdc.User("v", "Bob"), cdc.User("v", "", "d")]), PAUSE("1s"), *crash]
    changes += [*text([cdc.User("u", "Eve")]), END]
    clicks = [
        PAUSE("500ms"),
        *text([cdc.Click("u", "/1"), cdc.Click("v", "/2")]),
        PAUSE("2s"),
        *text([cdc.Click("u", "/3")]),
        END,
    ]
    program = partial(cdc.topology, "users.jsonl", "clicks.jsonl", str(tmp_path / "named"))
    test = TopologyTest(program, sources={"changes": changes, "clicks": clicks}, checkpoint_interval="10ms")
    test.run()
    assert sorted((row["url"], row["name"]) for row in rows(tmp_path / "named")) == [("/1", "Ann"), ("/2", "?"), ("/3", "Eve")]


@pytest.mark.parametrize("kill", [None, "lines", "once"])
def test_each_payment_comes_once(kill: str | None, tmp_path: Path) -> None:
    given = plain.repeated_payments(0)
    run(partial(once.topology, "payments.jsonl", str(tmp_path / "once")), text(given), kill, 0)
    assert values(tmp_path / "once") == plain.first_payments(given)
