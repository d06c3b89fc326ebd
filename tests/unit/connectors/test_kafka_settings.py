"""Settings of Kafka's clients: those that are refused, errors with their fixes, and no secret in any of them."""

from __future__ import annotations

import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from topo import KafkaSpout
from topo.connectors.kafka.settings import cause_of, checked_config, explained, servers_of
from topo.errors import ConfigError, NotFoundError, RightMissingError, TopoEnvironmentError

SETTINGS = {"bootstrap.servers": "b:9092", "sasl.username": "ann", "sasl.password": "planted"}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is not imported before a task opens the spout."""
    client = ModuleType("confluent_kafka")
    client.__spec__ = ModuleSpec("confluent_kafka", None)
    monkeypatch.setitem(sys.modules, "confluent_kafka", client)


def test_brokers_are_one_text_or_several() -> None:
    assert servers_of("a:1") == "a:1" and servers_of(("a:1", "b:2")) == "a:1,b:2"
    for wrong in ("", (), (" ",), (1,), None):
        with pytest.raises(ConfigError, match="bootstrap_servers="):
            servers_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["http://b:9092", "b:1,kafka://me:planted@b:2", ["b:1", "http://b"]])
def test_a_url_is_no_address(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="must have addresses, such as 'localhost:9092', and no URL") as caught:
        servers_of(wrong)
    assert "planted" not in str(caught.value)
    assert servers_of("SASL_SSL://b:9092, b:9093") == "SASL_SSL://b:9092, b:9093"


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (("_RESOLVE", "_ALL_BROKERS_DOWN"), "in the words of _RESOLVE"),
        (("_TRANSPORT", "_ALL_BROKERS_DOWN"), "in the words of _TRANSPORT"),
        (("_TRANSPORT", "_AUTHENTICATION", "_TRANSPORT"), "in the words of _AUTHENTICATION"),
        (("_ALL_BROKERS_DOWN",), "in the words of _TIMED_OUT"),
        ((), "in the words of _TIMED_OUT"),
    ],
)
def test_a_request_without_an_answer_has_the_reason_that_the_client_reported(reported: tuple[str, ...], reason: str) -> None:
    def error(name: str) -> Any:
        return SimpleNamespace(name=lambda: name, str=lambda: f"in the words of {name}")

    assert cause_of(error("_TIMED_OUT"), [error(name) for name in reported]).str() == reason


def _away(_config: str) -> Any:
    raise RuntimeError("the identity provider is away")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (_away, "raised RuntimeError: the identity provider is away"),
        (lambda _config: "token", "raised TypeError: it returned a str; return (token, when it expires), in seconds since 1970"),
        (lambda _config: ("token", time.time() - 60), "raised ValueError: its token expired 60 s ago"),
        (lambda _config: ("token", time.time() * 1000), "raised ValueError: its token never expires"),
    ],
)
def test_a_token_that_a_function_does_not_give_is_the_reason(call: Any, reason: str) -> None:
    settings = checked_config("KafkaSpout", {"oauth_cb": call}, {})
    with pytest.raises((RuntimeError, TypeError, ValueError)) as raised:
        settings["oauth_cb"]("")
    for name in ("SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "_ALL_BROKERS_DOWN", "_TIMED_OUT"):
        error = SimpleNamespace(name=lambda name=name: name, str=lambda: "no token")
        shown = explained(error, "nothing can be read", settings)
        assert f"nothing can be read: oauth_cb of config= {reason}" in str(shown)
        # Its line is reported.
        assert shown.__cause__ is raised.value


def test_a_token_after_a_failure_is_passed_on_and_ends_it() -> None:
    given = [("token", time.time() + 60, "ann", {"scope": "all"})]
    settings = checked_config("KafkaSpout", {"oauth_cb": lambda _config: given[0]}, {})
    settings["oauth_cb"].failure = RuntimeError("before")
    assert settings["oauth_cb"]("") is given[0]
    error = SimpleNamespace(name=lambda: "_TIMED_OUT", str=lambda: "late")
    assert "oauth_cb" not in str(explained(error, "nothing can be read", settings))


def test_a_setting_that_breaks_a_promise_is_refused_by_name_and_reason() -> None:
    with pytest.raises(ConfigError, match=r"KafkaSpout: config= must not have 'x\.y': topo does it"):
        checked_config("KafkaSpout", {"x.y": 1}, {"x.y": "topo does it"})
    with pytest.raises(ConfigError, match="give it as bootstrap_servers="):
        checked_config("KafkaSink", {"bootstrap.servers": "b:1"}, {})
    assert checked_config("KafkaSpout", {"fetch.min.bytes": 10}, {}) == {"fetch.min.bytes": 10}


@pytest.mark.parametrize("given", [{"socket.timeout.ms": "10s"}, {"message.max.bytes": "2000 kB"}])
def test_a_number_with_a_unit_is_refused_by_name(given: dict[str, Any]) -> None:
    # The client would take "10s" for 10.
    with pytest.raises(ConfigError, match=f"KafkaSink: config= has {next(iter(given))!r}: .*; it must be a number"):
        checked_config("KafkaSink", given, {})
    assert checked_config("KafkaSink", {"socket.timeout.ms": "10000"}, {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({5: "x"}, r"the name 5; names of settings are text$"),
        ({"sasl.password": None}, r"'sasl.password' as NoneType; it must be a text, a number, True or False$"),
        ({"sasl.password": b"planted"}, r"'sasl.password' as bytes; it must be a text, a number, True or False$"),
        ({"debug": ["broker", "topic"]}, r"'debug' as list; it must be a text"),
        ({"security_protocol": "ssl"}, r"'security_protocol', and librdkafka's names have dots: 'security.protocol'$"),
        ({"oauth_cb": "token"}, r"'oauth_cb' as str; it must be a function$"),
    ],
)
def test_a_setting_that_no_client_takes_is_refused_without_one(given: dict[Any, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^KafkaSink: config= has {message}"):
        checked_config("KafkaSink", given, {})


def test_settings_that_the_client_takes_are_passed_on() -> None:
    given = {
        "ssl.ca.location": Path("ca.pem"),
        "linger.ms": 0.5,
        "enable.ssl.certificate.verification": True,
        "throttle_cb": len,
        "log_level": 4,
    }
    assert checked_config("KafkaSink", given, {}) == given


@pytest.mark.parametrize(
    ("name", "kind", "fix"),
    [
        ("_TRANSPORT", TopoEnvironmentError, "no broker of bootstrap_servers='b:9092' answers; start it"),
        ("_AUTHENTICATION", TopoEnvironmentError, "refuses the login; correct security.protocol"),
        ("UNKNOWN_TOPIC_OR_PART", NotFoundError, "do not have it; create it"),
        ("TOPIC_AUTHORIZATION_FAILED", RightMissingError, "Describe and Read"),
        ("_INVALID_ARG", ConfigError, "correct config="),
        ("SOMETHING_ELSE", TopoEnvironmentError, "for 'planted', in the words of the broker"),
    ],
)
def test_an_error_names_the_fix_and_no_secret(name: str, kind: type[Exception], fix: str) -> None:
    given = SimpleNamespace(name=lambda: name, str=lambda: "for 'planted', in the words of the broker")
    error = explained(given, "nothing can be read", SETTINGS)
    assert type(error) is kind and str(error).startswith("nothing can be read: ") and "planted" not in str(error)
    assert fix.replace("planted", "***") in str(error)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topics": None}, "topics=, a name or several, or those of pattern="),
        ({"pattern": "x"}, "topics=, a name or several, or those of pattern="),
        ({"topics": None, "pattern": "("}, "no regular expression"),
        ({"topics": ()}, "name of a topic"),
        ({"topics": ("a", "a")}, "has a name twice"),
        ({"topics": ""}, "topics='' cannot be a topic; a name has A-Z"),
        ({"topics": ("a", "an order")}, "topics='an order' cannot be a topic; a name has A-Z"),
        ({"topics": "orders-*"}, "topics='orders-.' cannot be a topic; .*; give a regular expression as pattern="),
        ({"topics": "a,b"}, "topics='a,b' cannot be a topic; .*; give several as a tuple of names"),
        ({"group_id": ""}, "group_id=''"),
        ({"start": "committed"}, "needs group_id="),
        ({"start": "latset"}, "start='latset' must be 'earliest', 'latest', 'committed'"),
        ({"stop": "earliest"}, "stop='earliest' must be 'latest'"),
        ({"on_lost": "drop"}, "on_lost='drop'"),
        ({"on_bad_record": "skip"}, "on_bad_record='skip'"),
        ({"batch": 0}, "batch=0"),
        ({"discovery_interval": None}, "discovery_interval=None"),
        ({"value_deserializer": "avro"}, "value_deserializer='avro' needs a registry; give Avro"),
        ({"key_deserializer": "protobuf"}, "key_deserializer='protobuf' needs a registry; give Protobuf"),
        ({"config": {"enable.auto.commit": True}}, "topo commits the offsets"),
        ({"config": {"group.id": "g"}}, "group_id="),
        ({"config": {"auto.offset.reset": "latest"}}, "start= names where reading begins"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KafkaSpout(**{"topics": "orders", "bootstrap_servers": "b:9092", **given})


def test_a_planted_password_is_in_no_repr() -> None:
    spout = KafkaSpout("orders", bootstrap_servers="b:9092", config={"sasl.password": "planted"})
    assert "planted" not in repr(spout) and "planted" not in str(spout)
