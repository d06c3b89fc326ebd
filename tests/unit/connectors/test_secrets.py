"""Secrets of connectors stand in nothing that is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topo import ConfigError, MqttSink, RabbitSink, RedisStreamSink
from topo.connectors.secrets import masked, masked_settings, secrets_of, without

PLANTED = "pl4nted"
SHOWN = (
    "RedisSink(key='user:{user}')",
    "redis://host:6379/0",
    "nats://host:4222, nats://other:4222",
    "https://host:8443/a:b@c",
    "grouped by key=user",
    "ws://host/a@b",
)


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{PLANTED}@host:6379/0",
        f"redis://:abc/{PLANTED}/@host:6379/0",
        f"redis://topo:a@b/{PLANTED}@host:6379/0",
        f"https://topo:abc/{PLANTED}@host/x",
        f"nats://{PLANTED}@host:4222",
        f"tls://ab/{PLANTED}@host:4222",
        f"wss://{PLANTED}@host:4222",
        f"nats://a:{PLANTED}@b,nats://c:{PLANTED}@d",
        f"postgresql://topo:{PLANTED}@host/db?sslmode=require",
        f"amqp://topo:{PLANTED}@@host/",
        f"postgresql://topo@host/db?password={PLANTED}&sslmode=require",
        f"host=db password={PLANTED} user=topo",
        f"host=db password='{PLANTED} x' user=topo",
        f'cannot connect with {{"sasl.password": "{PLANTED}"}}',
        f"sasl.oauthbearer.client.secret={PLANTED}",
        f"{{'api_token': '{PLANTED}'}}",
        f"api_key={PLANTED}",
        f"{{'X-Api-Key': '{PLANTED}'}}",
        f"http://host/x?apikey={PLANTED}&n=1",
        f"http://host/x?n=1&key={PLANTED}",
        f"ssl.private.key='{PLANTED}'",
    ],
)
def test_a_text_is_masked(text: str) -> None:
    shown = masked(text)

    assert PLANTED not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text", ["kafka:9092", "http://host:80/a@b", "host=db user=topo", "a token was refused", "10:20:30 a@b", *SHOWN]
)
def test_a_text_without_secrets_is_shown_as_it_is(text: str) -> None:
    assert masked(text) == text


def test_settings_are_masked_by_their_names() -> None:
    settings = {
        "sasl.username": "topo",
        "sasl.password": PLANTED,
        "ssl.key.pem": PLANTED,
        "aws_secret_access_key": PLANTED,
        "key": PLANTED,
        "proxy": f"http://u:{PLANTED}@proxy",
        "linger.ms": 5,
        "key.serializer": "text",
    }

    shown = masked_settings(settings)

    assert PLANTED not in repr(shown)
    assert {name: shown[name] for name in ("sasl.username", "linger.ms", "key.serializer")} == {
        "sasl.username": "topo", "linger.ms": 5, "key.serializer": "text"
    }  # fmt: skip
    assert set(secrets_of(settings)) == {PLANTED}


@pytest.mark.parametrize("sign", "/?#[")
@pytest.mark.parametrize(
    ("client", "read"),
    [
        ("redis", lambda address: RedisStreamSink(f"redis://{address}", "s")._server.connect()),
        ("pika", lambda address: RabbitSink(f"amqp://{address}", "e", "k")),
        ("paho", lambda address: MqttSink(f"mqtt://{address}", "t")),
    ],
)
def test_a_password_with_a_sign_of_urls_is_in_no_error_of_their_parsers(
    sign: str, client: str, read: Callable[[str], object]
) -> None:
    pytest.importorskip(client)
    with pytest.raises(ConfigError) as refused:
        read(f"user:{PLANTED}{sign}rest@host:1")
    assert PLANTED not in str(refused.value) and ("# as %23" in str(refused.value) or sign == "[")


def test_urls_of_several_servers_are_masked_one_by_one() -> None:
    assert masked("nats://a:x@b:4222, nats://t0ken@d:4222") == "nats://a:***@b:4222, nats://***@d:4222"
    assert masked("nats://a:x@b,nats://c:y@d") == "nats://a:***@b,nats://c:***@d"
    assert set(secrets_of({"0": "nats://t0ken@host", "1": "redis://:a/b@host"})) == {"t0ken", "a/b"}


def test_an_error_of_a_client_has_no_secret() -> None:
    assert without((PLANTED, "pl4"), f"refused {PLANTED!r} of redis://x:other@host") == "refused '***' of redis://x:***@host"
