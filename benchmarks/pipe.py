"""Word count over ZeroMQ by hand: what the sockets, msgpack and XOR tracking carry on this machine without an engine.

    python benchmarks/pipe.py [--sentences 400000] [--batch 512] [--splits 1] [--counts 1] [--untracked] [--json]

One process for the spout, each split, each count, and the acker. It has no flow control, time-outs, restarts, streams or
errors, so it is the ceiling that `topo bench word-count` is measured against. Needs pyzmq and msgpack, and not topo.

Tracked, the clock stops when the spout has heard that every sentence is done; untracked, when every word has been counted.
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
PENDING = 20_000
"""Sentences in flight."""

Socket = zmq.Socket[bytes]


def random_ids() -> Iterator[int]:
    """Yield 64-bit numbers, drawn many at a time."""
    while True:
        yield from array("Q", random.randbytes(8 * IDS_AT_ONCE)).tolist()


def words_of(packed: bytes) -> list[int]:
    column = array("Q")
    column.frombytes(packed)
    return column.tolist()


class Wiring:
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


class Columns:
    """Rows on their way to one process: a column of roots, one of edges, and the values."""

    def __init__(self, socket: Socket, batch: int) -> None:
        self.socket = socket
        self.batch = batch
        self.values: list[tuple[str]] = []
        self.roots: list[int] = []
        self.edges: list[int] = []
        self._pack = msgpack.Packer().pack

    def flush(self) -> None:
        if self.values:
            columns = [array("Q", self.roots).tobytes(), array("Q", self.edges).tobytes(), self._pack(self.values)]
            self.socket.send_multipart(columns)
            self.values, self.roots, self.edges = [], [], []


class Acks:
    """Values owed to the acker, one for each root."""

    def __init__(self, socket: Socket, batch: int) -> None:
        self.socket = socket
        self.batch = batch
        self.owed: dict[int, int] = {}

    def flush(self) -> None:
        if self.owed:
            self.socket.send_multipart([array("Q", self.owed).tobytes(), array("Q", self.owed.values()).tobytes()])
            self.owed = {}


def batches(inbox: Socket, buffers: list[Any]) -> Iterator[list[bytes]]:
    """Yield what arrives until told to stop; while nothing does, let out what is buffered and sleep."""
    while True:
        try:
            parts = inbox.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            for buffer in buffers:
                buffer.flush()
            inbox.poll()
            continue
        if parts == STOP:
            return
        yield parts


class Tuple:
    """What user code is given."""

    __slots__ = ("edge", "owed", "root", "values")

    def __init__(self, values: tuple[str], root: int, edge: int) -> None:
        self.values = values
        self.root = root
        self.edge = edge
        self.owed = edge


class Collector:
    """What user code emits with, anchored on the tuple in hand."""

    def __init__(self, targets: list[Columns], is_tracked: bool) -> None:
        self.in_hand: Tuple
        self._targets = targets
        self._is_tracked = is_tracked
        self._ids = random_ids()
        self._route: dict[str, Columns] = {}

    def emit(self, values: tuple[str]) -> None:
        key = values[0]
        target = self._route.get(key)
        if target is None:
            target = self._route[key] = self._targets[zlib.crc32(key.encode()) % len(self._targets)]
        target.values.append(values)
        if self._is_tracked:
            edge = next(self._ids)
            tup = self.in_hand
            tup.owed ^= edge
            target.roots.append(tup.root)
            target.edges.append(edge)
        if len(target.values) >= target.batch:
            target.flush()


Execute = Callable[[Tuple, Collector], None]


def bolt(
    wiring: Wiring, inbox: Socket, execute: Execute, targets: list[Columns], batch: int, is_tracked: bool, used: Any
) -> None:
    """Run `execute` on every tuple that arrives, and tell what became of it."""
    acks = Acks(wiring.push("acker"), batch)
    untracked_done = wiring.push("verdicts") if not targets and not is_tracked else None
    collector = Collector(targets, is_tracked)
    used.start()
    for roots, edges, values in batches(inbox, [*targets, acks]):
        rows = msgpack.unpackb(values, use_list=False)
        if is_tracked:
            for row, root, edge in zip(rows, words_of(roots), words_of(edges), strict=True):
                tup = collector.in_hand = Tuple(row, root, edge)
                execute(tup, collector)
                owed = acks.owed
                owed[root] = owed.get(root, 0) ^ tup.owed
            if len(acks.owed) >= batch:
                acks.flush()
        else:
            for row in rows:
                tup = collector.in_hand = Tuple(row, 0, 0)
                execute(tup, collector)
            if untracked_done is not None:
                untracked_done.send(array("Q", [len(rows)]).tobytes())
    used.stop()


def split(folder: str, task: int, counts: int, batch: int, is_tracked: bool, used: Any) -> None:
    wiring = Wiring(folder)
    inbox = wiring.pull(f"split{task}")
    targets = [Columns(wiring.push(f"count{number}"), batch) for number in range(counts)]

    def execute(tup: Tuple, collector: Collector) -> None:
        emit = collector.emit
        for word in tup.values[0].split():
            emit((word,))

    bolt(wiring, inbox, execute, targets, batch, is_tracked, used)


def count(folder: str, task: int, batch: int, is_tracked: bool, used: Any) -> None:
    wiring = Wiring(folder)
    counted: dict[str, int] = {}

    def execute(tup: Tuple, _collector: Collector) -> None:
        word = tup.values[0]
        counted[word] = counted.get(word, 0) + 1

    bolt(wiring, wiring.pull(f"count{task}"), execute, [], batch, is_tracked, used)


def acker(folder: str, batch: int, used: Any) -> None:
    wiring = Wiring(folder)
    inbox, verdicts = wiring.pull("acker"), wiring.push("verdicts")
    open_trees: dict[int, int] = {}
    complete = array("Q")

    class Verdicts:
        def flush(self) -> None:
            if complete:
                verdicts.send(complete.tobytes())
                del complete[:]

    verdict = Verdicts()
    used.start()
    for roots, values in batches(inbox, [verdict]):
        for root, value in zip(words_of(roots), words_of(values), strict=True):
            value ^= open_trees.pop(root, 0)
            if value:
                open_trees[root] = value
            else:
                complete.append(root)
        if len(complete) >= batch:
            verdict.flush()
    used.stop()


def spout(folder: str, arguments: argparse.Namespace, started: Any) -> float:
    """Emit every sentence; return how long it took until the last one was done."""
    is_tracked, batch, total = not arguments.untracked, arguments.batch, arguments.sentences
    wiring = Wiring(folder)
    verdicts = wiring.pull("verdicts")
    targets = [Columns(wiring.push(f"split{number}"), batch) for number in range(arguments.splits)]
    to_acker = wiring.push("acker")
    ids, lines = random_ids(), sentences()
    pending: dict[int, int] = {}
    emitted = done = 0
    goal = total if is_tracked else 10 * total
    started.wait()
    began = time.perf_counter()
    while done < goal:
        in_flight = len(pending) if is_tracked else emitted - done // 10
        if emitted < total and in_flight < PENDING:
            roots, owed = [], []
            for number in range(emitted, min(emitted + batch, total)):
                target = targets[number % len(targets)]
                target.values.append((lines[number % len(lines)],))
                if is_tracked:
                    root, edge = next(ids), next(ids)
                    pending[root] = number
                    target.roots.append(root)
                    target.edges.append(edge)
                    roots.append(root)
                    owed.append(edge)
                if len(target.values) >= batch // 4:
                    target.flush()
            emitted = min(emitted + batch, total)
            for target in targets:
                target.flush()
            if is_tracked:
                to_acker.send_multipart([array("Q", roots).tobytes(), array("Q", owed).tobytes()])
            may_wait = False
        else:
            may_wait = True
        try:
            while True:
                column = words_of(verdicts.recv(0 if may_wait else zmq.NOBLOCK))
                may_wait = False
                if is_tracked:
                    for root in column:
                        del pending[root]
                    done += len(column)
                else:
                    done += sum(column)
        except zmq.Again:
            pass
    took = time.perf_counter() - began
    for target in targets:
        target.socket.send_multipart(STOP)
    to_acker.send_multipart(STOP)
    for number in range(arguments.counts):
        wiring.push(f"count{number}").send_multipart(STOP)
    return took


def sentences() -> list[str]:
    """Return 2,000 sentences of ten words, the same each time."""
    chance = random.Random(1)
    vocabulary = [f"w{number}" for number in range(50_000)]
    return [" ".join(vocabulary[min(int(chance.paretovariate(0.8)), 49_999)] for _ in range(10)) for _ in range(2_000)]


class CpuTime:
    """CPU seconds of the processes together, of the time that counts."""

    def __init__(self, processes: int) -> None:
        self.total = multiprocessing.Value("d", 0.0)
        self.started = multiprocessing.Barrier(processes)
        self._before = 0.0

    def start(self) -> None:
        self.started.wait()
        self._before = _cpu_s()

    def stop(self) -> None:
        with self.total.get_lock():
            self.total.value += _cpu_s() - self._before


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--counts", type=int, default=1)
    parser.add_argument("--untracked", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    multiprocessing.set_start_method("fork")
    with tempfile.TemporaryDirectory() as folder:
        rest = (arguments.batch, not arguments.untracked)
        used = CpuTime(arguments.splits + arguments.counts + 2)
        processes = [
            multiprocessing.Process(target=split, args=(folder, number, arguments.counts, *rest, used))
            for number in range(arguments.splits)
        ]
        processes += [
            multiprocessing.Process(target=count, args=(folder, number, *rest, used)) for number in range(arguments.counts)
        ]
        processes.append(multiprocessing.Process(target=acker, args=(folder, arguments.batch, used)))
        for process in processes:
            process.start()
        took = spout(folder, arguments, used.started)
        with used.total.get_lock():
            used.total.value += _cpu_s()
        for process in processes:
            process.join()
    words = 10 * arguments.sentences
    result = {
        "words_per_second": round(words / took, 1),
        "acked_per_second": round(arguments.sentences / took, 1),
        "seconds": round(took, 3),
        "cpu_seconds": round(used.total.value, 2),
        "cpu_us_per_word": round(used.total.value / words * 1e6, 3),
        "tracked": not arguments.untracked,
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"{result['words_per_second']:,.0f} words/s, {result['cpu_us_per_word']:.2f} us of CPU a word")


if __name__ == "__main__":
    main()
