"""Sums by key and ten seconds of event time over ZeroMQ by hand: what the processes carry on this machine without an engine.

    python benchmarks/windowed_pipe.py [--events 1000000] [--batch 256] [--parsers 2] [--sums 2] [--json]

One process for the spout, each parser, each task that sums, and the acker; every event is tracked and acked at once when it is
in its sum. There are no watermarks, results, flow control, time-outs or restarts, so it is the ceiling that
`topo bench windowed-sum` is measured against. Needs pyzmq and msgpack, and not topo.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import tempfile
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import zmq

STOP = [b""]
IDS_AT_ONCE = 8192
PENDING = 50_000
"""Events in flight."""
KEYS = 10_000
DISORDER_MS = 5_000
WINDOW_MS = 10_000
FIRST_MS = 1_700_000_000_000

Socket = zmq.Socket[bytes]
Row = tuple[Any, ...]


def random_ids() -> Iterator[int]:
    """Yield 64-bit numbers, drawn many at a time."""
    while True:
        yield from array("Q", random.randbytes(8 * IDS_AT_ONCE)).tolist()


def ids_of(packed: bytes) -> list[int]:
    column = array("Q")
    column.frombytes(packed)
    return column.tolist()


def packed_ids(ids: Any) -> bytes:
    return array("Q", ids).tobytes()


def receive_now(socket: Socket) -> bytes | None:
    """Return what has come; None when nothing has."""
    try:
        return socket.recv(zmq.NOBLOCK)
    except zmq.Again:
        return None


class Wires:
    """Where everybody listens, and how to get there."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.context: zmq.Context[Socket] = zmq.Context()

    def pull(self, name: str) -> Socket:
        socket = self.context.socket(zmq.PULL)
        socket.bind(f"ipc://{self.folder}/{name}")
        return socket

    def push(self, name: str) -> Socket:
        socket = self.context.socket(zmq.PUSH)
        socket.connect(f"ipc://{self.folder}/{name}")
        return socket


class Target:
    """What waits to go to one task: values, roots and edges."""

    def __init__(self, socket: Socket, batch: int) -> None:
        self.socket, self.batch = socket, batch
        self.pack = msgpack.Packer().pack
        self.values: list[Row] = []
        self.roots: list[int] = []
        self.edges: list[int] = []

    def add(self, values: Row, root: int, edge: int) -> None:
        self.values.append(values)
        self.roots.append(root)
        self.edges.append(edge)
        if len(self.values) >= self.batch:
            self.flush()

    def flush(self) -> None:
        if self.values:
            self.socket.send_multipart([packed_ids(self.roots), packed_ids(self.edges), self.pack(self.values)])
            self.values, self.roots, self.edges = [], [], []


def work(folder: str, name: str, next_names: list[str], batch: int, kind: str) -> None:
    """One task: `parse` emits key, timestamp and value to the task of the key; `sum` adds up."""
    wires = Wires(folder)
    inputs, acker = wires.pull(name), wires.push("acker")
    targets = [Target(wires.push(one), batch) for one in next_names]
    acks: dict[int, int] = {}
    run = parser(targets, acks) if kind == "parse" else summer(acks)

    def flush_acks() -> None:
        if acks:
            acker.send_multipart([packed_ids(acks.keys()), packed_ids(acks.values())])
            acks.clear()

    while True:
        try:
            frames = inputs.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            for target in targets:
                target.flush()
            flush_acks()
            inputs.poll()
            continue
        if frames == STOP:
            return
        run(msgpack.unpackb(frames[2], use_list=False), ids_of(frames[0]), ids_of(frames[1]))
        if len(acks) >= batch:
            flush_acks()


Run = Callable[[list[Row], list[int], list[int]], None]


def parser(targets: list[Target], acks: dict[int, int]) -> Run:
    ids, of_key, loads = random_ids(), dict[str, Target](), json.loads

    def run(rows: list[Row], roots: list[int], edges: list[int]) -> None:
        for (line,), root, edge in zip(rows, roots, edges, strict=True):
            event = loads(line)
            key = event["key"]
            target = of_key.get(key)
            if target is None:
                target = of_key[key] = targets[zlib.crc32(key.encode()) % len(targets)]
            out = next(ids)
            target.add((key, event["ts"], event["value"]), root, out)
            acks[root] = acks.get(root, 0) ^ edge ^ out

    return run


def summer(acks: dict[int, int]) -> Run:
    sums: dict[tuple[str, int], int] = {}

    def run(rows: list[Row], roots: list[int], edges: list[int]) -> None:
        for (key, timestamp, value), root, edge in zip(rows, roots, edges, strict=True):
            window = (key, timestamp - timestamp % WINDOW_MS)
            sums[window] = sums.get(window, 0) + value
            acks[root] = acks.get(root, 0) ^ edge

    return run


def ack(folder: str, batch: int) -> None:
    """The acker: XOR by root, and to the spout what has become zero."""
    wires = Wires(folder)
    inputs, spout = wires.pull("acker"), wires.push("done")
    open_roots: dict[int, int] = {}
    done: list[int] = []
    while True:
        try:
            frames = inputs.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            if done:
                spout.send(packed_ids(done))
                done = []
            inputs.poll()
            continue
        if frames == STOP:
            return
        for root, value in zip(ids_of(frames[0]), ids_of(frames[1]), strict=True):
            left = value ^ open_roots.pop(root, 0)
            if left:
                open_roots[root] = left
            else:
                done.append(root)
        if len(done) >= batch:
            spout.send(packed_ids(done))
            done = []


def emit(folder: str, parsers: list[str], count: int, batch: int) -> float:
    """The spout; return the seconds from the first event to the last ack."""
    wires = Wires(folder)
    done, acker = wires.pull("done"), wires.push("acker")
    targets = [Target(wires.push(name), batch) for name in parsers]
    draw, ids = random.Random(1).randrange, random_ids()
    lines = [(f'{{"key": "k{draw(KEYS)}", "ts": ', draw(DISORDER_MS), f', "value": {draw(100)}}}') for _ in range(50_000)]
    time.sleep(1)
    began = time.perf_counter()
    number = acked = 0
    while acked < count:
        if number < count and number - acked < PENDING:
            roots, edges = [], []
            for _ in range(batch):
                begin, late, end = lines[number % len(lines)]
                root, edge = next(ids), next(ids)
                line = f"{begin}{FIRST_MS + number // 10 - late}{end}"
                targets[number % len(targets)].add((line,), root, edge)
                roots.append(root)
                edges.append(edge)
                number += 1
            acker.send_multipart([packed_ids(roots), packed_ids(edges)])
        else:
            for target in targets:
                target.flush()
            done.poll()
        while (news := receive_now(done)) is not None:
            acked += len(ids_of(news))
    seconds = time.perf_counter() - began
    for socket in (acker, *(target.socket for target in targets)):
        socket.send_multipart(STOP)
    return seconds


def main() -> None:
    """Run it and print events a second and CPU time for each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--batch", type=int, default=256)
    options.add_argument("--parsers", type=int, default=2)
    options.add_argument("--sums", type=int, default=2)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    count = -(-given.events // given.batch) * given.batch
    parsers, sums = ([f"{name}{index}" for index in range(n)] for name, n in (("parse", given.parsers), ("sum", given.sums)))
    with tempfile.TemporaryDirectory() as folder:
        start = multiprocessing.get_context("fork").Process
        workers = [start(target=work, args=(folder, name, sums, given.batch, "parse")) for name in parsers]
        last = [start(target=work, args=(folder, name, [], given.batch, "sum")) for name in sums]
        workers.append(start(target=ack, args=(folder, given.batch)))
        for worker in (*workers, *last):
            worker.start()
        seconds = emit(folder, parsers, count, given.batch)
        wires = Wires(folder)
        for name in sums:
            wires.push(name).send_multipart(STOP)
        for worker in (*workers, *last):
            worker.join(10)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in usage)
    result = {"events_per_second": round(count / seconds), "cpu_us_per_event": round(cpu / count * 1e6, 2), "events": count}
    print(
        json.dumps(result)
        if given.json
        else f"{result['events_per_second']:,} events/s, {result['cpu_us_per_event']} us CPU each"
    )


if __name__ == "__main__":
    main()
