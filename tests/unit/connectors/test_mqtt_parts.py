"""What an MQTT broker sends twice, and where it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from topo import Tuple
from topo.api.tuples import Origin
from topo.connectors.mqtt.deliveries import SessionMessages, digest_of
from topo.connectors.mqtt.settings import broker_address, topic_of
from topo.errors import ConfigError, UserError

A, B = digest_of("t", b"a"), digest_of("t", b"b")


def arrive(deliveries: SessionMessages, mid: int, digest: bytes, position: int, connection: int = 1, again: bool = False) -> bool:
    found = deliveries.arrive(mid, digest, connection, is_duplicate=again)
    if found is not None:
        found.position = position
    return found is not None


def test_what_is_done_is_acked_in_the_order_of_arrival() -> None:
    deliveries = SessionMessages()
    for position, mid in ((1, 7), (2, 5), (3, 6)):
        assert arrive(deliveries, mid, A, position)
    assert deliveries.complete(2, 1) == [7, 5] and deliveries.complete(2, 1) == [] and deliveries.complete(9, 1) == [6]
    assert len(deliveries) == 0


def test_a_duplicate_of_an_open_message_is_that_message() -> None:
    deliveries = SessionMessages()
    arrive(deliveries, 7, A, 1)
    assert not arrive(deliveries, 7, A, 0, connection=2, again=True)
    assert deliveries.complete(1, 2) == [7], "it is acked on the connection that has brought it last"


def test_a_duplicate_of_a_done_message_is_acked_at_once() -> None:
    deliveries = SessionMessages()
    arrive(deliveries, 7, A, 1)
    assert deliveries.complete(1, 2) == [], "no connection takes the ack of another one"
    assert not arrive(deliveries, 7, A, 0, connection=2, again=True)
    assert deliveries.is_done(7, A) and not deliveries.is_done(7, A)


def test_a_number_that_is_used_again_is_another_message() -> None:
    deliveries = SessionMessages()
    arrive(deliveries, 7, A, 1)
    deliveries.complete(1, 2)
    assert arrive(deliveries, 7, A, 2, connection=2), "not marked as a duplicate"
    assert not deliveries.is_done(7, A)
    assert arrive(deliveries, 7, B, 3, connection=2, again=True), "another content"
    assert deliveries.complete(3, 2) == [7, 7]


def test_messages_of_a_lost_session_are_never_acked() -> None:
    deliveries = SessionMessages()
    arrive(deliveries, 7, A, 1)
    arrive(deliveries, 8, A, 2)
    deliveries.complete(1, 2)
    deliveries.forget_connection()
    assert deliveries.complete(2, 2) == [] and not deliveries.is_done(7, A) and not deliveries.is_done(8, A)
    assert arrive(deliveries, 7, A, 3, connection=2, again=True) and arrive(deliveries, 8, A, 4, connection=2, again=True)
    assert deliveries.complete(4, 2) == [7, 8]


def test_a_message_without_a_position_is_not_done() -> None:
    deliveries = SessionMessages()
    deliveries.arrive(7, A, 1, is_duplicate=False)
    assert deliveries.complete(5, 1) == []


def test_digests_tell_topics_and_payloads_apart() -> None:
    assert len({digest_of("a", b"bc"), digest_of("ab", b"c"), digest_of("a", b"b"), digest_of("", b"abc")}) == 4


def test_a_broker_is_named_by_a_url_whose_password_is_not_shown() -> None:
    found = broker_address("mqtts://me:p%40planted@example.org")
    assert (found.host, found.port, found.tls is not None, found.user, found.password) == (
        "example.org",
        8883,
        True,
        "me",
        "p@planted",
    )
    assert "planted" not in repr(found)
    assert broker_address("mqtt://h:1").tls is None and broker_address("mqtts://h", {"ca_certs": "ca"}).tls == {"ca_certs": "ca"}
    assert broker_address("mqtt://h:1").port == 1 and broker_address("mqtt+unix:///run/m").host == "/run/m"


@pytest.mark.parametrize("url", ["example.org", "http://x", "mqtt://", "mqtt://x/y", "mqtt://x:y", "mqtt+unix://"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url="):
        broker_address(url)


@pytest.mark.parametrize(
    ("url", "tls", "problem"),
    [
        ("mqtt://h", {"ca_certs": "ca.pem"}, "tls= is for a URL with mqtts"),
        ("mqtts://h", {"cafile": "ca.pem"}, "tls has cafile='ca.pem'; it takes ca_certs, certfile"),
        ("mqtts://h", {"ca_certs": 1}, "tls has ca_certs=1"),
        ("mqtts://h", {"keyfile": "key.pem"}, "no certfile"),
    ],
)
def test_certificates_that_are_of_no_use_are_refused(url: str, tls: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        broker_address(url, tls)


def tup(**values: Any) -> Tuple:
    return Tuple(tuple(values.values()), Origin("rows", 1, fields=tuple(values)))


def test_fields_in_a_topic_are_its_levels() -> None:
    assert topic_of("plant/{n}/{room}")(tup(n=7, room="a b")) == "plant/7/a b"
    # Braces that are meant stand twice, beside fields and without any.
    assert [topic_of(given)(tup(n=7)) for given in ("{{x}}/{n}", "{{x}}/7")] == ["{x}/7"] * 2
    for wrong in ("a/b", "", "+", "#"):
        with pytest.raises(UserError, match="no level of a topic"):
            topic_of("x/{room}")(tup(room=wrong))
    with pytest.raises(UserError, match="is None, which is no level"):
        topic_of("x/{room}")(tup(room=None))
    with pytest.raises(UserError, match="no field 'room'"):
        topic_of("x/{room}")(tup(n=1))


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "{", "{}", "{a.b}", "{a!r}", "{a:3}"])
def test_a_topic_that_cannot_be_published_to_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match="topic="):
        topic_of(topic)
