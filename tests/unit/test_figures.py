"""The command that reruns all figures: commands in turn, ratios within a round, verdicts, an earlier run."""

from __future__ import annotations

import shlex

import pytest

from benchmarks import figures
from benchmarks.figures import ROWS, Row, measure, ratio, report, value


def printing(text: str) -> str:
    return f"echo {shlex.quote(text)}"


def test_each_row_needs_commands_that_there_are_and_no_two_have_a_name() -> None:
    assert {name for row in ROWS for name in row.needs} == set(figures.COMMANDS)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_a_command_that_fails_leaves_out_its_rows_with_the_reason() -> None:
    commands = {"fast": printing('{"rate": 30}'), "slow": printing('{"rate": 12}'), "broken": "sh -c 'echo no peer >&2; exit 1'"}
    rows = [
        Row("ratio", ("fast", "slow"), 2.0, ratio("fast", "slow", "rate")),
        Row("lost", ("broken",), 1.0, value("broken", "rate")),
    ]
    values, left_out = measure(rows, 2, commands)
    assert values == {"ratio": [2.5, 2.5]}
    assert left_out == {"lost": "no peer"}


@pytest.mark.parametrize(
    ("goal", "is_most", "before", "is_reached"),
    [
        (2.0, False, None, True),
        (3.0, False, None, False),
        (3.0, True, None, True),
        (None, False, 2.6, False),
        (None, False, None, None),
    ],
)
def test_a_row_is_the_median_of_its_rounds_beside_its_goal(
    goal: float | None, is_most: bool, before: float | None, is_reached: bool | None
) -> None:
    row = Row("figure", ("one",), goal, value("one", "rate"), is_most)
    (line,) = report([row], {"figure": [2.5, 9.0, 1.0]}, {} if before is None else {"figure": before})
    assert (line["value"], line["is_reached"], line["before"]) == (2.5, is_reached, before)
