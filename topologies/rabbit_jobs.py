"""Jobs of a work queue are done by several tasks. Results leave by an exchange, and jobs that were given up by another queue.

    make rabbitmq                                           # a broker at port 5672, in another terminal
    .venv/bin/python topologies/rabbit_jobs.py 200          # declares queues and exchange, and puts jobs, of which some are bad
    topo run topologies/rabbit_jobs.py                      # does them, until Ctrl-C ends it
    .venv/bin/python topologies/rabbit_jobs.py              # prints how many results and bad jobs there are

Jobs stay in the queue until their result is published. It needs pika.
"""

from __future__ import annotations

import json
import sys

from pika import BasicProperties, BlockingConnection, DeliveryMode, URLParameters

from topo import BasicBolt, BasicCollector, RabbitSink, RabbitSpout, Topology, TopologyBuilder, Tuple

URL = "amqp://guest:guest@127.0.0.1:5672"


class CountWords(BasicBolt):
    """Counts the words of a text. A text without any fails its message."""

    outputs = ("language", "job", "words")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        words = len(tup["text"].split())
        if words == 0:
            raise ValueError(f"job {tup['job']} has no text")
        collector.emit((tup["language"], tup["job"], words))


def put_jobs(url: str, count: int) -> None:
    """Declare the queues and the exchange of the topology, and put jobs. Every tenth job has no text."""
    with BlockingConnection(URLParameters(url)) as connection:
        channel = connection.channel()
        quorum = {"x-queue-type": "quorum"}
        channel.queue_declare("jobs.bad", durable=True, arguments=quorum)
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "jobs.bad"}
        channel.queue_declare("jobs", durable=True, arguments={**quorum, **dead})
        channel.exchange_declare("results", "topic", durable=True)
        channel.queue_declare("results", durable=True, arguments=quorum)
        channel.queue_bind("results", "results", "words.*")
        channel.confirm_delivery()
        for number in range(count):
            text = "" if number % 10 == 9 else "word " * (number % 7 + 1)
            job = {"job": number, "language": ("en", "de")[number % 2], "text": text}
            properties = BasicProperties(message_id=f"job-{number}", delivery_mode=DeliveryMode.Persistent)
            channel.basic_publish("", "jobs", json.dumps(job).encode(), properties)


def counts(url: str) -> dict[str, int]:
    """Return how many messages each queue has."""
    with BlockingConnection(URLParameters(url)) as connection:
        channel = connection.channel()
        names = ("jobs", "results", "jobs.bad")
        return {name: channel.queue_declare(name, passive=True).method.message_count for name in names}


def topology(url: str = URL) -> Topology:
    """Build the topology.

    Args:
        url: of the broker.
    """
    builder = TopologyBuilder("rabbit-jobs").config(delivery="at_least_once", attempts=2)
    jobs = RabbitSpout(url, "jobs", value_deserializer="json", fields=("job", "language", "text"), on_dead="reject")
    builder.set_spout("jobs", jobs)
    builder.set_bolt("count", CountWords(), 2).shuffle_grouping("jobs")
    # An id that is made of the job: who reads the results knows a repeated one by it.
    results = RabbitSink(url, "results", "words.{language}", id=lambda tup: f"words-of-{tup['job']}")
    builder.set_bolt("results", results).shuffle_grouping("count")
    return builder.build()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        put_jobs(URL, int(sys.argv[1]))
    else:
        print(counts(URL))
