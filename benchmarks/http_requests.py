"""Processor time of a request: of WebhookSpout beside a bare server of aiohttp, and of HttpSink beside a bare client.

    python benchmarks/http_requests.py --requests 5000 --rounds 3

A client sends requests, 20 at a time. In one run to a bare server, which decodes the body and answers: its process and that of
the client are "bare". In the other run to a topology of a WebhookSpout and an HttpSink, each in its own process, which sends to
that bare server. The runs alternate; the least of each figure is printed, in microseconds of processor time for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from socket import create_server
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import aiohttp
import psutil
from aiohttp import web

from topo import HttpSink, Topology, TopologyBuilder, WebhookSpout
from topo.testing import LocalCluster

AT_A_TIME = 20
BODY = json.dumps({"id": "o-1", "cents": 500, "text": "x" * 60}).encode()


def topology(port: int, target: str) -> Topology:
    """Requests in, requests out."""
    builder = TopologyBuilder("http-benchmark").config(delivery="at_least_once")
    builder.set_spout("in", WebhookSpout(port, "/in", fields=("id", "cents", "text")))
    builder.set_bolt("out", HttpSink(target, concurrency=AT_A_TIME)).shuffle_grouping("in")
    return builder.build()


def serve(port: int) -> None:
    """Run the bare server."""

    async def take(request: web.Request) -> web.Response:
        json.loads(await request.read())
        return web.Response(text="done\n")

    app = web.Application()
    app.router.add_post("/in", take)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)


def send(url: str, count: int) -> None:
    """Send requests and wait for their answers: the bare client."""

    async def main() -> None:
        left = iter(range(count))
        async with aiohttp.ClientSession() as session:

            async def one_after_the_other() -> None:
                for _ in left:
                    async with session.post(url, data=BODY) as answer:
                        assert answer.status == 200, answer.status
                        await answer.read()

            await asyncio.gather(*(one_after_the_other() for _ in range(AT_A_TIME)))

    asyncio.run(main())


def wait_for(url: str) -> None:
    """Wait until a request is answered with 200."""
    until = time.monotonic() + 60
    while True:
        try:
            urlopen(Request(url, BODY), timeout=30)
            return
        except (URLError, OSError):
            assert time.monotonic() < until, f"{url} does not answer"
            time.sleep(0.05)


def cpu_s(pid: int) -> float:
    """The processor time of a process."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def pid_of(status: dict[str, Any], component: str) -> int:
    number = next(task["worker"] for task in status["tasks"] if task["component"] == component)
    return int(next(worker["pid"] for worker in status["workers"] if worker["worker"] == number))


def measured(url: str, requests: int, **pids: int) -> dict[str, float]:
    """Send requests; return microseconds of each process, and of this one, for each."""
    pids["client"] = psutil.Process().pid
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    begun = time.monotonic()
    send(url, requests)
    seconds = time.monotonic() - begun
    found = {name: (cpu_s(pid) - before[name]) / requests * 1e6 for name, pid in pids.items()}
    return found | {"requests/s": requests / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    bare_port, port = free_port(), free_port()
    bare_url, url = f"http://127.0.0.1:{bare_port}/in", f"http://127.0.0.1:{port}/in"
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(bare_port,))
    server.start()
    assert server.pid is not None
    bare, ours = list[dict[str, float]](), list[dict[str, float]]()
    with tempfile.TemporaryDirectory(prefix="topo-") as home, LocalCluster(Path(home)) as cluster:
        running = cluster.submit(str(Path(__file__).resolve()), parameters={"port": port, "target": bare_url})
        wait_for(bare_url)
        wait_for(url)
        status = running.status()
        for _ in range(given.rounds):
            bare.append(measured(bare_url, given.requests, server=server.pid))
            ours.append(measured(url, given.requests, spout=pid_of(status, "in"), sink=pid_of(status, "out")))
    server.terminate()
    server.join()

    def least(rows: list[dict[str, float]], name: str) -> float:
        return min(row[name] for row in rows)

    print("| | us of processor time a request |\n| --- | ---: |")
    print(f"| bare server | {least(bare, 'server'):.0f} |\n| WebhookSpout, its process | {least(ours, 'spout'):.0f} |")
    print(f"| bare client | {least(bare, 'client'):.0f} |\n| HttpSink, its process | {least(ours, 'sink'):.0f} |")
    rates = [max(row["requests/s"] for row in rows) for rows in (bare, ours)]
    print(f"\nrequests/s: bare {rates[0]:.0f}, through the topology {rates[1]:.0f}")


if __name__ == "__main__":
    main()
