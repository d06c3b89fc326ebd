"""A message of four parts beside one of the same bytes joined, over ipc, from one process to another.

python -m benchmarks.parts [--runs 3] [--messages 100000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from typing import Any

import zmq


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def receive(folder: str, messages: int, answers: Any) -> None:
    """Receive all messages; answer with the processor time."""
    socket: zmq.Socket[bytes] = zmq.Context().socket(zmq.PULL)
    socket.bind(f"ipc://{folder}/messages")
    answers.put(0.0)
    socket.recv_multipart()
    before = cpu_s()
    for _ in range(messages):
        socket.recv_multipart()
    answers.put(cpu_s() - before)


def send(parts: list[bytes], messages: int) -> tuple[float, float]:
    """Return the microseconds of processor time, both processes together, and those that pass, for each message."""
    answers: Any = multiprocessing.Queue()
    with tempfile.TemporaryDirectory() as folder:
        process = multiprocessing.Process(target=receive, args=(folder, messages, answers))
        process.start()
        answers.get()
        socket: zmq.Socket[bytes] = zmq.Context().socket(zmq.PUSH)
        socket.connect(f"ipc://{folder}/messages")
        socket.send_multipart(parts)
        time.sleep(0.2)
        before, began = cpu_s(), time.perf_counter()
        for _ in range(messages):
            socket.send_multipart(parts)
        used_s = answers.get() + cpu_s() - before
        passed_s = time.perf_counter() - began
        process.join()
    return used_s / messages * 1e6, passed_s / messages * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100_000)
    options = parser.parse_args()
    for size in (64, 4096):
        column = os.urandom(size)
        for _ in range(options.runs):
            four = send([b"h" * 24, column, column, 2 * column], options.messages)
            one = send([b"h" * 24 + 4 * column], options.messages)
            print(f"{4 * size + 24:6} bytes: four parts {four[0]:.1f} us ({four[1]:.1f} pass), one {one[0]:.1f} ({one[1]:.1f})")


if __name__ == "__main__":
    main()
