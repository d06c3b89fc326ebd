"""A paced pipe over ZeroMQ by hand: the latency and the processor time of four processes without an engine.

    python -m benchmarks.relay --rate 1000 [--seconds 5] [--acks-every-ms 10] [--json]

A spout emits records on a schedule through two hops, one process each, and an acker completes them by XOR: the job of
`topo bench pipe --rate`. It has no flow control, timeouts, restarts or errors. The spout sends all records that are due in one
message, at most one in 0.25 ms, and each process sends its ids once in `--acks-every-ms`: no more messages than topo sends.
Latency counts from the moment at which a record was due to its arrival at the last hop. Needs pyzmq and msgpack, and not topo.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from array import array
from typing import Any

import msgpack

from benchmarks.pipe import Acks, CpuTime, Wiring, random_ids, words_of

REST_S = 0.00025
WARM_UP_S = 1.0
END: list[Any] = []


class TimedAcks:
    """The ids of one process on their way to the acker, sent together."""

    def __init__(self, wiring: Wiring, every_s: float) -> None:
        self._acks = Acks(wiring.push("acker"), 0)
        self._every_s = every_s
        self._flush_at = 0.0

    def add(self, rows: list[list[Any]], ids: list[int]) -> None:
        owed = self._acks.owed
        for (root, *_), value in zip(rows, ids, strict=True):
            owed[root] = owed.get(root, 0) ^ value
        now = time.perf_counter()
        if now >= self._flush_at:
            self._acks.flush()
            self._flush_at = now + self._every_s

    def end(self) -> None:
        self._acks.flush()


def hop(folder: str, every_s: float, used: CpuTime) -> None:
    """Send each message on with other edge ids."""
    wiring = Wiring(folder)
    inbox, target, acks, ids = wiring.pull("hop"), wiring.push("sink"), TimedAcks(wiring, every_s), random_ids()
    used.start()
    while rows := msgpack.unpackb(inbox.recv()):
        edges = [next(ids) for _ in rows]
        target.send(msgpack.packb([[root, new, due] for (root, _, due), new in zip(rows, edges, strict=True)]))
        acks.add(rows, [old ^ new for (_, old, _), new in zip(rows, edges, strict=True)])
    used.stop()
    acks.end()
    target.send(msgpack.packb(END))


def sink(folder: str, every_s: float, started: float, used: CpuTime, latencies: Any) -> None:
    """Take the latency of each record."""
    wiring = Wiring(folder)
    inbox, acks, taken = wiring.pull("sink"), TimedAcks(wiring, every_s), array("d")
    used.start()
    while rows := msgpack.unpackb(inbox.recv()):
        now = time.perf_counter()
        taken.extend([now - due for _, _, due in rows if due >= started + WARM_UP_S])
        acks.add(rows, [edge for _, edge, _ in rows])
    used.stop()
    acks.end()
    latencies.send(taken.tobytes())


def acker(folder: str, records: int, used: CpuTime) -> None:
    """Send the roots that are complete to the spout, until all are."""
    wiring = Wiring(folder)
    inbox, verdicts = wiring.pull("acker"), wiring.push("verdicts")
    trees: dict[int, int] = {}
    used.start()
    while records:
        complete = array("Q")
        roots, values = inbox.recv_multipart()
        for root, value in zip(words_of(roots), words_of(values), strict=True):
            if value := value ^ trees.pop(root, 0):
                trees[root] = value
            else:
                complete.append(root)
        if complete:
            records -= len(complete)
            verdicts.send(complete.tobytes())
    used.stop()


def spout(folder: str, rate: float, records: int, every_s: float, used: CpuTime) -> None:
    """Emit each record when it is due; return when all are complete."""
    wiring = Wiring(folder)
    verdicts, target, acks, ids = wiring.pull("verdicts"), wiring.push("hop"), TimedAcks(wiring, every_s), random_ids()
    pending: dict[int, float] = {}
    used.start()
    started, emitted = time.perf_counter(), 0
    while emitted < records:
        now = time.perf_counter()
        due = min(records, int((now - started) * rate) + 1)
        if due == emitted:
            time.sleep(max(REST_S, started + emitted / rate - now))
            continue
        rows: list[list[Any]] = [[next(ids), next(ids), started + number / rate] for number in range(emitted, due)]
        pending.update((root, at) for root, _, at in rows)
        target.send(msgpack.packb(rows))
        acks.add(rows, [edge for _, edge, _ in rows])
        emitted = due
        while verdicts.poll(0):
            for root in words_of(verdicts.recv()):
                del pending[root]
    used.stop()
    acks.end()
    target.send(msgpack.packb(END))
    while pending:
        for root in words_of(verdicts.recv()):
            del pending[root]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1_000.0, help="records a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="after a second of warm-up (%(default)s)")
    parser.add_argument("--acks-every-ms", type=float, default=10.0, help="how often a process sends its ids (%(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    multiprocessing.set_start_method("fork")
    records, every_s = int(options.rate * (options.seconds + WARM_UP_S)), options.acks_every_ms / 1000
    receive, send = multiprocessing.Pipe(duplex=False)
    used = CpuTime(4)
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            multiprocessing.Process(target=hop, args=(folder, every_s, used)),
            multiprocessing.Process(target=sink, args=(folder, every_s, time.perf_counter(), used, send)),
            multiprocessing.Process(target=acker, args=(folder, records, used)),
        ]
        for process in processes:
            process.start()
        spout(folder, options.rate, records, every_s, used)
        taken = array("d")
        taken.frombytes(receive.recv())
        for process in processes:
            process.join()
    ordered, ranks = sorted(taken), {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    result: dict[str, Any] = {
        "latency_ms": {name: round(1000 * ordered[int(share * len(ordered))], 3) for name, share in ranks.items()},
        "records": len(taken),
        "cpu_ms_per_record": round(1000 * used.total.value / records, 4),
    }
    if options.json:
        print(json.dumps(result))
    else:
        latencies = ", ".join(f"{name} {value} ms" for name, value in result["latency_ms"].items())
        print(f"{latencies}; {result['cpu_ms_per_record']} ms of CPU a record")


if __name__ == "__main__":
    main()
