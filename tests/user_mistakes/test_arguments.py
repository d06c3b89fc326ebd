"""Arguments of ready-made components with a wrong type: the error names the argument and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from topo import (
    ConfigError,
    FilesSink,
    FilesSpout,
    IterableSpout,
    JsonLinesSink,
    MemoryPartitions,
    MemorySpout,
    PrintBolt,
    TextFileSpout,
    TopologyBuilder,
    UserError,
    WindowBolt,
    aggregates,
    windows,
)
from topo.testing import StreamTest, TopologyTest, run_bolt

NOT_WHOLE: tuple[Any, ...] = ("5", None, [5], True, 1.5, float("nan"))
NO_TEXTS: tuple[Any, ...] = (5, 1.5, True, b"x", object(), [1])
NO_TEXT: tuple[Any, ...] = (5, ["x"], b"x", True)
NO_OPTIONS: tuple[Any, ...] = (5, "x", ["a"], True)
TAKERS: list[tuple[Callable[..., Any], str, tuple[Any, ...]]] = [
    (lambda **given: TextFileSpout(".", **given), "repeat", NOT_WHOLE),
    (lambda **given: TextFileSpout(".", **given), "pattern", (*NO_TEXT, None)),
    (lambda **given: TextFileSpout(".", **given), "exclude", (*NO_TEXTS, None)),
    (lambda **given: TextFileSpout(".", **given), "encoding", NO_TEXT),
    (lambda **given: TextFileSpout(".", **given), "errors", (*NO_TEXT, None)),
    (lambda **given: FilesSpout(".", **given), "pattern", (*NO_TEXT, None)),
    (lambda **given: FilesSpout(".", **given), "encoding", (*NO_TEXT, None)),
    (lambda **given: FilesSpout(".", **given), "storage_options", NO_OPTIONS),
    (lambda **given: FilesSpout(".", format="csv", **given), "fields", NO_TEXTS),
    (lambda **given: FilesSink(".", **given), "fields", NO_TEXTS),
    (lambda **given: FilesSink(".", **given), "partition_by", (*NO_TEXTS, None)),
    (lambda **given: FilesSink(".", **given), "roll_rows", NOT_WHOLE),
    (lambda **given: FilesSink(".", **given), "storage_options", NO_OPTIONS),
    (lambda **given: JsonLinesSink("out.jsonl", **given), "max_batch", tuple(one for one in NOT_WHOLE if one is not None)),
    (lambda **given: IterableSpout([1], **given), "fields", (*NO_TEXTS, None)),
    (lambda **given: MemorySpout(MemoryPartitions(), **given), "fields", (*NO_TEXTS, None)),
    (MemoryPartitions, "partitions", NO_OPTIONS),
    (PrintBolt, "separator", NO_TEXT),
    (lambda **given: window_bolt(**given), "key", NO_TEXTS),
    (lambda **given: window_bolt(**given), "late_stream", NO_TEXT),
    (lambda **given: window_bolt(**given), "result_fields", NO_TEXTS),
]


def window_bolt(**given: Any) -> WindowBolt:
    return WindowBolt(
        **{"key": "user", "window": windows.TumblingEventTimeWindows.of("1s"), "aggregate": aggregates.Count(), **given}
    )


@pytest.mark.parametrize(
    ("make", "argument", "given"), [(make, argument, given) for make, argument, wrong in TAKERS for given in wrong]
)
def test_an_argument_has_a_wrong_type(make: Callable[..., Any], argument: str, given: Any) -> None:
    """A number for a text, a text for a number, no sequence for names, and the like."""
    with pytest.raises(ConfigError) as caught:
        make(**{argument: given})
    kind = type(given).__name__
    # Options may have passwords.
    shown = f"{argument}= (a {kind})" if argument == "storage_options" else f"{argument}={given!r:.60} ({kind})"
    found = re.sub(r"^(TextFileSpout|FilesSpout|FilesSink|JsonLinesSink): ", "", str(caught.value))
    assert found.startswith((f"{shown} must be ", f"{shown.removesuffix(' (str)')} must be "))


def test_partitions_of_no_records() -> None:
    """A partition whose records are one number."""
    with pytest.raises(ConfigError, match=r"must have lists of records, such as \{'a': \[5\]\}"):
        MemoryPartitions({"a": 5})  # type: ignore[dict-item]


def numbers() -> TopologyTest:
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", IterableSpout([1]))
    return TopologyTest(builder.build())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: StreamTest(seed=[1, 2]),
            r"seed=[1, 2] must be a number, such as seed=7; StreamTest.every_seed(...) takes several",
        ),
        (
            lambda: TopologyTest(TopologyBuilder("x"), seed={}),  # type: ignore[arg-type]
            "seed={} must be a number, such as seed=7; StreamTest.every_seed(...) takes several",
        ),
        (
            lambda: numbers().assert_emitted("numbers", 5),
            "assert_emitted was given 5 as the tuples; give a list of them, such as [5]",
        ),
        (lambda: run_bolt(PrintBolt(), 5), "run_bolt was given 5 as the inputs; give a list of them, such as [(1,), (2,)]"),
        (lambda: run_bolt(5, []), "run_bolt takes a Bolt, BasicBolt, BatchBolt or ColumnBolt; got int: give a bolt"),
    ],
)
def test_the_test_kit_is_given_something_else(call: Callable[[], Any], message: str) -> None:
    """Seeds in place of one, a number in place of a list of tuples, no bolt."""
    with pytest.raises(UserError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("call", ["fields_grouping", "partial_key_grouping"])
def test_fields_of_a_grouping_are_given_one_by_one(call: str) -> None:
    """The user gives the fields as a list, as other libraries want them."""
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", IterableSpout([1]))
    getattr(builder.set_bolt("print", PrintBolt()), call)("numbers", ["value"])
    with pytest.raises(UserError, match=rf"{call} was given \['value'\]; give it the names of the fields one by one"):
        builder.build()
