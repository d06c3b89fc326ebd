"""What a request to a webhook has to be."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import Any

import pytest

from topo.connectors.http.requests import (
    RefusedBodyError,
    check_reach,
    given_headers,
    given_id,
    is_loopback,
    is_signed,
    shown_headers,
    shown_url,
    signature_of,
    unpacked,
    without_queries,
)
from topo.errors import ConfigError


def test_the_signature_is_that_of_the_usual_senders() -> None:
    # The example of GitHub's documentation of webhooks.
    secret, body = b"It's a Secret to Everybody", b"Hello, World!"
    expected = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert signature_of(secret, body) == expected
    assert is_signed(secret, body, f"sha256={expected}") and is_signed(secret, body, expected.upper())


@pytest.mark.parametrize("given", [None, "", "sha256=", "sha256=00", "0" * 64, "sha1=757107ea", "schlüssel", "\ud800"])
def test_another_signature_is_refused(given: str | None) -> None:
    assert not is_signed(b"secret", b"body", given)


def test_a_signature_of_another_body_or_secret_is_refused() -> None:
    assert not is_signed(b"secret", b"body", signature_of(b"secret", b"body "))
    assert not is_signed(b"secret", b"body", signature_of(b"Secret", b"body"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_needs_no_secret(host: str) -> None:
    assert is_loopback(host)
    check_reach(host, None, allow_unsigned=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])
def test_beyond_loopback_a_secret_is_needed_or_the_users_word(host: str) -> None:
    with pytest.raises(ConfigError, match="allow_unsigned"):
        check_reach(host, None, allow_unsigned=False)
    check_reach(host, "secret", allow_unsigned=False)
    check_reach(host, None, allow_unsigned=True)


def test_credentials_are_no_part_of_a_tuple() -> None:
    given = {"X-A": "1", "Authorization": "Bearer planted", "COOKIE": "planted", "X-Signature": "planted", "X-B": "2"}
    assert shown_headers(given, "x-signature") == {"x-a": "1", "x-b": "2"}


def test_queries_are_in_no_text() -> None:
    url = "wss://h/feed?sig=planted&x=1"
    assert shown_url(url) == "wss://h/feed" and shown_url("http://u:planted@h/?q#planted") == "http://u:***@h/"
    text = without_queries(url, f"403, url='{url}' from http://h/other?k=planted, in /feed?sig=planted")
    assert "planted" not in text and "wss://h/feed" in text and "http://h/other" in text


def test_ids_of_senders_have_a_length() -> None:
    assert given_id(None) is None and given_id(" a1 ") == "a1" and given_id("x" * 255) == "x" * 255
    for wrong in ("", "  ", "x" * 256):
        with pytest.raises(ValueError, match="1 to 255 characters"):
            given_id(wrong)


def test_a_header_without_a_value_is_refused_by_its_name() -> None:
    headers: dict[str, Any] = {"Authorization": None, "X-Shard": 7}
    with pytest.raises(ConfigError, match="headers= has None for 'Authorization'"):
        given_headers("HttpSink", "http://h", headers)
    assert given_headers("HttpSink", "http://h", {**headers, "Authorization": "x"}) == {"Authorization": "x", "X-Shard": "7"}
    assert given_headers("HttpSink", "http://h", None) == {}


def test_a_header_with_a_line_end_is_refused_without_its_value() -> None:
    with pytest.raises(ConfigError, match="'Authorization'; a value that was read from a file needs") as refused:
        given_headers("HttpSink", "http://h", {"Authorization": "Bearer planted\n", "X-Shard": "a\tb"})
    assert "planted" not in str(refused.value) and "X-Shard" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://u:planted@h/{n}", "wss://u@h/feed", "http://:planted@h"])
def test_a_request_has_one_login(url: str) -> None:
    with pytest.raises(ConfigError, match=r"has a user, and headers= has Authorization.*; leave the user out") as refused:
        given_headers("HttpSink", url, {"authorization": "Bearer planted"})
    assert "planted" not in str(refused.value)
    assert given_headers("HttpSink", url, {"X-Shard": "7"}) == {"X-Shard": "7"}


PACKED = gzip.compress(b"hello " * 1000, mtime=0)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"hello " * 1000, ""),
        (b"hello " * 1000, "identity"),
        (PACKED, "gzip"),
        (PACKED, " X-GZIP"),
        (gzip.compress(b"hello " * 400, mtime=0) + gzip.compress(b"hello " * 600, mtime=0), "gzip"),
        (zlib.compress(b"hello " * 1000), "deflate"),
        (zlib.compress(b"hello " * 1000)[2:-4], "deflate"),
    ],
)
def test_a_compressed_body_is_unpacked(body: bytes, encoding: str) -> None:
    assert unpacked(body, encoding, 6000) == b"hello " * 1000


def test_an_empty_body_is_empty_whatever_its_encoding() -> None:
    assert unpacked(b"", "gzip", 10) == b""


@pytest.mark.parametrize(
    ("body", "encoding", "status", "reason"),
    [
        (gzip.compress(b"hello " * 1000 + b"!", mtime=0), "gzip", 413, "more than 6000 bytes"),
        (PACKED[:-1], "gzip", 400, "cut off"),
        (PACKED[:20], "gzip", 400, "cut off"),
        (PACKED[:-8] + b"\0" * 8, "gzip", 400, "no gzip"),
        (PACKED + b"more", "gzip", 400, "no gzip"),
        (b"hello", "gzip", 400, "no gzip"),
        (b"hello", "deflate", 400, "no deflate"),
        (PACKED, "br", 415, "'br' is not unpacked; send gzip"),
        (PACKED, "gzip, gzip", 415, "not unpacked"),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_refused(body: bytes, encoding: str, status: int, reason: str) -> None:
    with pytest.raises(RefusedBodyError, match=reason) as refusal:
        unpacked(body, encoding, 6000)
    assert refusal.value.status == status


def test_no_more_of_a_body_is_unpacked_than_may_be() -> None:
    bomb = gzip.compress(bytes(50 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(RefusedBodyError):
            unpacked(bomb, "gzip", 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
