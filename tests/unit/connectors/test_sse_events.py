"""Server-sent events by the rules of the HTML standard; its examples are among the cases."""

from __future__ import annotations

import pytest

from topo.connectors.http.sse_events import EventParser, ServerEvent


def events(*chunks: bytes, last_id: str = "", most: int = 1 << 20) -> list[ServerEvent]:
    parser = EventParser(last_id, most)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def message(data: str, last_id: str = "", name: str = "message") -> ServerEvent:
    return ServerEvent(data, name, last_id)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", [message("YHOO\n+2\n10")]),
        (": test stream\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n\n", [
            message("first", "1"), message("second"), message(" third"),
        ]),
        ("data\n\ndata\ndata\n\ndata:", [message(""), message("\n")]),
        ("data:test\n\ndata: test\n\n", [message("test"), message("test")]),
        ("event: add\ndata: 7\nid: a\n\ndata: 8\n\n", [message("7", "a", "add"), message("8", "a")]),
        ("id: 5\n\ndata: x\n\n", [message("x", "5")]),
        ("id: a\0b\ndata: x\n\n", [message("x")]),
        ("id: 5\nid: a\x01b\ndata: x\n\n", [message("x", "5")]),
        ("unknown: 1\nretry: x\ndata: x\n\n", [message("x")]),
        ("event: only\n\ndata: é€😀\n\n", [message("é€😀")]),
        ("\ufeffdata: x\n\n", [message("x")]),
        ("data: unfinished\n", []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_are_read_however_their_bytes_are_cut(text: str, expected: list[ServerEvent], end: str, size: int) -> None:
    data = text.replace("\n", end).encode()
    # A carriage return is the end of its line only when the next byte has come.
    chunks = [data[at : at + size] for at in range(0, len(data), size)] + ([b": "] if end == "\r" else [])
    assert events(*chunks) == expected


def test_an_event_without_an_id_has_that_of_the_connection_before() -> None:
    assert events(b"data: x\n\n", last_id="7") == [message("x", "7")]


def test_the_servers_pause_is_kept() -> None:
    parser = EventParser()
    assert list(parser.feed(b"retry: 2500\n")) == [] and parser.retry_ms == 2500


@pytest.mark.parametrize("text", [b"data: 0123456789\n", b"data: 01234\ndata: 56789\n", b"data: " + b"0123456789" * 100 + b"\n"])
def test_an_event_that_is_too_long_is_cut_and_says_so(text: bytes) -> None:
    chunks = [text[at : at + 7] for at in range(0, len(text), 7)]
    cut, after = events(*chunks, b"\ndata: next\n\n", most=8)
    assert cut.is_cut and cut.data.replace("\n", "").startswith("01234") and len(cut.data) <= 9
    assert after == message("next")


# To join what came at each part would take minutes.
@pytest.mark.timeout(20)
def test_a_long_line_that_comes_in_very_many_parts_is_read_in_time() -> None:
    parts = [b"0123456789abcdef"] * 250_000
    (event,) = events(b"data: ", *parts, b"\n\n", most=4_000_000)
    assert len(event.data) == 4_000_000 and not event.is_cut


def test_the_end_of_a_line_that_is_cut_is_seen_though_its_second_half_comes_later() -> None:
    cut, after = events(b"data: " + b"x" * 100 + b"\r", b"\r", b"data: next\r\r", b": ", most=8)
    assert cut.is_cut and after == message("next")
