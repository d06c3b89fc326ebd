"""Whether a client has a broker: by the errors that it reports, and by small requests of the reader."""

from __future__ import annotations

import pytest

from topo import TaskContext
from topo.connectors.kafka.connection import PROBE_S, TRIES, BrokerConnection
from topo.testing import ManualClock

kafka = pytest.importorskip("confluent_kafka")


class Reader:
    """The part of a reader that has the connection; `answers` is whether a broker answers its requests."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.answers, self.broken = True, False
        self.asked = 0
        self.reports: list[str] = []
        self.context = TaskContext("flow", "in", 1, clock=self.clock)
        report = lambda error: self.reports.append(str(error))  # noqa: E731
        self.connection = BrokerConnection({"bootstrap.servers": "b:1"}, self.context, report, self._ask)

    def _ask(self, topic: str) -> None:
        self.asked += 1
        if self.broken:
            raise OSError("the client cannot ask")
        if not self.answers:
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))

    def pass_time(self, tries: int) -> None:
        for _ in range(2 * tries):
            self.clock.advance(f"{PROBE_S / 2}s")
            self.connection.look("orders")

    def client_reports(self, *names: str) -> None:
        for name in names:
            self.connection.failed(kafka.KafkaError(getattr(kafka.KafkaError, name)))
        self.connection.look("orders")

    @property
    def gauge(self) -> float:
        return self.context.metrics.gauge("connected").value


def test_a_loss_that_the_client_reports_and_the_return_are_reported_once_each() -> None:
    reader = Reader()
    reader.answers = False
    reader.client_reports("_ALL_BROKERS_DOWN", "_TRANSPORT", "_ALL_BROKERS_DOWN")
    assert reader.gauge == 0
    reader.pass_time(20)
    reader.answers = True
    reader.pass_time(2)
    assert reader.gauge == 1
    assert ["no broker of bootstrap_servers" in one for one in reader.reports] == [True, False]
    assert reader.reports[1].endswith("answers: reading continues")


def test_a_loss_that_the_client_does_not_report_is_found_when_requests_are_not_answered() -> None:
    reader = Reader()
    reader.answers = False
    reader.client_reports("_TRANSPORT")
    reader.pass_time(TRIES - 1)
    assert reader.reports == [] and reader.gauge == 1
    reader.pass_time(TRIES)
    assert ["no broker of bootstrap_servers" in one for one in reader.reports] == [True] and reader.gauge == 0
    reader.answers = True
    reader.pass_time(2)
    assert reader.reports[1].endswith("answers: reading continues") and reader.gauge == 1


def test_an_error_of_one_broker_of_several_is_no_loss() -> None:
    reader = Reader()
    for _ in range(3):
        reader.client_reports(*["_TRANSPORT"] * 50)
        reader.pass_time(2)
    assert reader.reports == [] and reader.gauge == 1 and 0 < reader.asked <= 6
    asked = reader.asked
    reader.pass_time(50)
    assert reader.asked == asked, "nothing is asked while nothing is reported"


def test_a_request_that_is_late_is_no_loss() -> None:
    reader = Reader()
    reader.answers = False
    reader.client_reports("_TRANSPORT")
    reader.pass_time(TRIES - 1)
    reader.answers = True
    reader.pass_time(2)
    reader.answers = False
    reader.client_reports("_TRANSPORT")
    reader.pass_time(TRIES - 1)
    assert reader.reports == [] and reader.gauge == 1


def test_a_request_that_cannot_be_made_is_made_again_and_is_no_answer() -> None:
    reader = Reader()
    reader.client_reports("_ALL_BROKERS_DOWN")
    reader.broken = True
    reader.pass_time(3)
    assert reader.asked >= 2 and reader.gauge == 0
    reader.broken = False
    reader.pass_time(2)
    assert reader.gauge == 1 and "reading continues" in reader.reports[-1]


@pytest.mark.parametrize("name", ["_AUTHENTICATION", "_SSL"])
def test_a_broker_of_several_that_refuses_the_login_is_reported_once_and_is_no_loss(name: str) -> None:
    reader = Reader()
    for _ in range(5):
        reader.client_reports(name, "_TRANSPORT")
        reader.pass_time(10)
    (report,) = reader.reports
    assert report.startswith("a broker of several cannot be read: ") and ("login" in report or "ssl. settings" in report)
    assert reader.gauge == 1


@pytest.mark.parametrize("names", [("_AUTHENTICATION", "_ALL_BROKERS_DOWN"), ("_AUTHENTICATION",)])
def test_a_login_that_all_brokers_refuse_is_a_loss_with_that_reason(names: tuple[str, ...]) -> None:
    reader = Reader()
    reader.answers = False
    for _ in range(3):
        reader.client_reports(*names)
        reader.pass_time(10)
    assert reader.gauge == 0
    reader.answers = True
    reader.pass_time(2)
    lost, back = reader.reports
    assert lost.startswith("nothing can be read: ") and "refuses the login" in lost
    assert back.endswith("answers: reading continues")
    assert reader.gauge == 1
