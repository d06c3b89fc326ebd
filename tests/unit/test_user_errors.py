from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from string import ascii_letters
from typing import Any

import pytest

from topo.user_errors import (
    MAX_DISTINCT,
    MAX_MESSAGE,
    MAX_TEXTS,
    MAX_TRACEBACK,
    MOST_MESSAGES,
    SILENCE_S,
    CaughtError,
    ErrorBook,
    PrintedErrors,
    blame,
    describe,
    kind_and_message,
    message_of,
    place_of,
)


def caught(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno + 1


def broken(text: str = "no") -> None:
    raise ValueError(text)


def reads_json() -> None:
    json.loads("{")


def chained() -> None:
    try:
        broken()
    except ValueError as error:
        exec("raise RuntimeError('engine') from error", {"__name__": "topo.task.x", "error": error})


def test_an_error_is_placed_where_the_user_raised_it() -> None:
    assert place_of(caught(broken)) == (__file__, line_of(broken))


def test_an_error_of_the_library_is_placed_where_the_user_called_it() -> None:
    assert place_of(caught(reads_json)) == (__file__, line_of(reads_json))


def test_an_error_without_any_user_code_has_the_place_in_the_library() -> None:
    error = caught(reads_json)
    assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next
    file, line = place_of(error)
    assert "json" in file and line > 0


def test_a_file_of_the_build_of_compiled_code_is_no_place() -> None:
    pack = "import msgpack; msgpack.Packer().pack(object())"
    error = caught(partial(exec, pack, {"__name__": "topo.checkpoint"}))
    assert error.__traceback__ is not None
    assert place_of(error.with_traceback(error.__traceback__.tb_next)) == ("", 0)


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert place_of(ValueError("x")) == ("", 0)


def test_an_error_of_the_engine_is_placed_where_its_cause_was_raised() -> None:
    error = caught(chained)
    error.__traceback__ = None
    assert place_of(error) == (__file__, line_of(broken))


def test_an_error_of_what_a_function_returned_is_placed_where_the_function_begins() -> None:
    error = ValueError("x")
    blame(error, reads_json)
    assert place_of(error) == (__file__, reads_json.__code__.co_firstlineno)


def test_an_error_that_the_user_raised_is_placed_there_whatever_is_blamed() -> None:
    error = caught(broken)
    blame(error, reads_json)
    assert place_of(error) == (__file__, line_of(broken))


def test_what_has_no_code_of_its_own_cannot_be_blamed() -> None:
    error = ValueError("x")
    blame(error, partial(broken))
    assert place_of(error) == ("", 0)


def test_a_description_has_kind_message_place_and_traceback() -> None:
    found = describe(caught(broken))
    assert (found.kind, found.message, found.file, found.line, found.count) == ("ValueError", "no", __file__, line_of(broken), 1)
    assert found.trace.startswith("Traceback") and found.trace.endswith("ValueError: no\n")


def test_long_messages_and_tracebacks_are_cut() -> None:
    found = describe(caught(lambda: broken("x" * 100_000)))
    assert len(found.message) == MAX_MESSAGE
    assert len(found.trace) < MAX_TRACEBACK + 100
    assert "characters left out" in found.trace


def test_an_exception_is_named_in_one_line_with_its_text_if_it_has_one() -> None:
    assert kind_and_message(ValueError("odd")) == "ValueError: odd"
    assert kind_and_message(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_an_exception_whose_text_cannot_be_made_is_described_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("again")

    assert describe(Mute()).message == "(its text cannot be read: RuntimeError)"


class Reports(list[CaughtError]):
    """What an error book has reported."""

    def counts(self) -> list[tuple[str, int]]:
        return [(error.message, error.count) for error in self]


@pytest.fixture
def reports() -> Reports:
    return Reports()


def test_a_new_error_is_reported_at_once(reports: Reports) -> None:
    ErrorBook(reports.append).record(caught(broken), 10.0)
    assert reports.counts() == [("no", 1)]


def test_errors_alike_are_counted_and_reported_together_after_a_second(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    for step in range(5):
        book.record(caught(lambda: broken("other text, same place")), 10.0 + step / 10)
    assert book.next_deadline == 11.0
    book.flush(10.9)
    assert len(reports) == 1
    book.flush(11.0)
    assert [count for _, count in reports.counts()] == [1, 4]
    assert book.next_deadline is None


def test_errors_without_a_place_are_alike_when_their_texts_differ_only_in_numbers(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    for text in ("no broker answers", "topic 1 is missing", "no broker answers", "topic 2 is missing", "reading continues"):
        book.record(ValueError(text), 10.0)
    assert reports.counts() == [("no broker answers", 1), ("topic 1 is missing", 1), ("reading continues", 1)]
    book.flush(11.0)
    assert reports.counts()[3:] == [("no broker answers", 1), ("topic 2 is missing", 1)]


def test_an_error_that_comes_back_later_waits_for_the_next_flush(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    book.record(caught(broken), 10.0)
    book.record(caught(broken), 50.0)
    assert len(reports) == 1
    book.flush(50.0)
    assert reports.counts() == [("no", 1), ("no", 1)]


def test_at_the_end_all_that_is_held_is_reported(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    for _ in range(3):
        book.record(caught(broken), 10.0)
    book.flush(10.0, all_of_them=True)
    assert reports.counts() == [("no", 1), ("no", 2)]


def test_errors_of_very_many_places_are_counted_without_keeping_each(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    functions: dict[str, Any] = {}
    for number in range(3 * MAX_DISTINCT):
        exec("\n" * number + "def fail(): raise KeyError('x')", functions)
        book.record(caught(functions["fail"]), 10.0)
    assert len(reports) == MAX_DISTINCT
    book.flush(11.0)
    assert sum(error.count for error in reports) == 3 * MAX_DISTINCT
    assert len(reports) == 2 * MAX_DISTINCT


def test_an_error_alike_is_not_described_again(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    book = ErrorBook(reports.append)
    book.record(caught(broken), 10.0)
    book.record(caught(broken), 10.0)
    described: list[BaseException] = []
    monkeypatch.setattr("topo.user_errors.describe", lambda error, place=None: described.append(error))
    for _ in range(100):
        book.record(caught(broken), 10.0)
    assert described == []


def test_an_error_that_goes_on_is_reported_ever_more_seldom_and_every_one_is_counted(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    reported: list[int] = []
    for second in range(600):
        before = len(reports)
        book.record(caught(broken), float(second))
        book.flush(float(second))
        reported += [second] if len(reports) > before else []
    book.flush(600.0, all_of_them=True)
    assert reported[:8] == [0, 1, 3, 7, 15, 31, 63, 123]
    assert [later - earlier for earlier, later in pairwise(reported[7:])] == [60] * 7
    assert sum(error.count for error in reports) == 600


def test_only_the_first_report_has_the_traceback_until_there_was_a_long_silence(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    for now in (10.0, 10.5):
        book.record(caught(broken), now)
    book.flush(11.0)
    book.record(caught(broken), 11.0 + SILENCE_S)
    assert [bool(error.trace) for error in reports] == [True, False, True]
    book.record(caught(broken), 12.0 + SILENCE_S)
    assert book.next_deadline == 12.0 + SILENCE_S, "it starts again with the first interval"


def test_errors_without_a_place_that_differ_by_names_leave_room_for_others(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    for name in ascii_letters:
        book.record(OSError(f"file {name} is gone"), 10.0)
    assert len(reports) == MAX_TEXTS + 1
    book.record(caught(broken), 10.0)
    assert len(reports) == MAX_TEXTS + 2
    book.flush(20.0)
    assert sum(report.count for report in reports) == len(ascii_letters) + 1
    book.record(OSError("the server answers"), 20.0 + SILENCE_S)
    assert reports[-1].message == "the server answers"


def test_errors_of_a_ready_made_component_differ_by_the_names_in_their_texts(reports: Reports) -> None:
    book = ErrorBook(reports.append, ("flow.py", 4))
    for text in ("file '1.json' is damaged at 3", "file '2.json' is damaged at 3", "file '1.json' is damaged at 7"):
        book.record(OSError(text), 10.0)
    assert [(report.message[:13], report.line) for report in reports] == [("file '1.json'", 4), ("file '2.json'", 4)]
    for number in range(1000):
        book.record(OSError(f"file '{number}.json' is damaged"), 10.0)
    assert len(reports) == MAX_TEXTS + 1
    book.flush(20.0)
    assert sum(report.count for report in reports) == 1003 and len(reports) < 40


def test_of_the_errors_of_a_line_the_first_that_differ_are_printed() -> None:
    printed = PrintedErrors()
    texts = [f"file '{number // 2}.json'" for number in range(1000)]
    shown = [text for text in texts if printed.is_new("files", "OSError", "flow.py", 4, text)]
    assert shown == [f"file '{number}.json'" for number in range(MOST_MESSAGES)]


def test_places_that_have_been_silent_make_room_for_others(reports: Reports) -> None:
    book = ErrorBook(reports.append)
    functions: dict[str, Any] = {}
    for number in range(MAX_DISTINCT):
        exec("\n" * number + "def fail(): raise KeyError('x')", functions)
        book.record(caught(functions["fail"]), 10.0)
    book.record(caught(broken), 10.0 + SILENCE_S)
    assert len(reports) == MAX_DISTINCT + 1


def test_half_characters_of_a_message_are_escaped_so_that_it_can_be_sent_and_stored() -> None:
    assert message_of(OSError("no file caf\udce9")) == "no file caf\\udce9"
