"""What the web page costs, and how quick it is, beside its goals: one command, about half an hour on a quiet machine.

    python -m benchmarks.page                                    ten alternating pairs of each, of ten seconds a side
    python -m benchmarks.page --only trace --pairs 3 --seconds 5 the parts whose names contain a word
    python -m benchmarks.page --minutes 60 --out today.json      with an hour of the heap of one tab

A word count runs as fast as it can; in each pair a side is observed and the other is not, in turns, and the figure is the median
ratio of their rates. The browser is on the same machine and takes its share of it, so "tabs" has both: three tabs, and three
WebSockets that take what tabs take, as of browsers elsewhere. Needs the extras `ui` and `browser`, and Chromium: make browser.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, NamedTuple

import psutil

from benchmarks import hooks, overview
from benchmarks import page_topology as topology
from topo.launch.local_cluster import LocalCluster
from topo.launch.running import RunningTopology
from topo.operate.observing import observe
from topo_cli import workloads
from topo_cli.measurement import MEGABYTE, Counts

HEARTBEAT_S = 1.2
SETTLE_S = 2.0
PATIENCE_MS = 60_000
TABS = 3
RUNS = 5
COMPONENTS = 30
GRAPH = """async (components) => {
    const of = (name) => import(document.querySelector('script[src]').src.replace('main.js', name));
    const { Graph } = await of('graph.js'), { html } = await of('html.js'), { render } = await import('preact');
    const rows = [{ component: 'source', kind: 'spout', parallelism: 1 }], edges = [];
    for (let at = 1; at < components; at += 1) {
        const source = rows[at <= 20 ? 0 : at - 20].component, target = `row${at % 20}-step${at}`;
        rows.push({ component: target, kind: 'bolt', parallelism: 2, capacity: 0.5, in_per_s: 10 });
        edges.push({ source, target, per_s: 5, in_front: 1, full: 0 });
    }
    const place = document.createElement('div');
    document.body.append(place);
    const began = performance.now();
    render(html`<${Graph} name="x" components=${rows} edges=${edges} hot=${new Map()} />`, place);
    place.getBoundingClientRect();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - began;
}"""


HIDE = """() => {
    Object.defineProperty(document, "hidden", { get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


class Row(NamedTuple):
    """A figure and its goal: at least it, or with `is_most` at most."""

    name: str
    value: float
    goal: float
    is_most: bool = True

    @property
    def is_reached(self) -> bool:
        return self.value <= self.goal if self.is_most else self.value >= self.goal


class Bench:
    """Topologies, the server of their page, and one Chromium."""

    def __init__(self, home: Path, stack: ExitStack, pairs: int, seconds: float) -> None:
        from playwright.sync_api import sync_playwright

        self.pairs, self.seconds, self._stack = pairs, seconds, stack
        self._cluster = stack.enter_context(LocalCluster(home))
        command = [sys.executable, "-m", "topo_cli", "ui", "--home", str(home), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        assert server.stdout is not None
        self.address, _, self.token = server.stdout.readline().strip().partition("#token=")
        self.server = psutil.Process(server.pid)
        playwright = stack.enter_context(sync_playwright())
        path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        self.browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        stack.callback(self.browser.close)

    @contextmanager
    def running(self, module: Any, function: str, **parameters: Any) -> Iterator[RunningTopology]:
        running = self._cluster.submit(f"{Path(module.__file__).absolute()}:{function}", parameters=parameters)
        running.wait_until(lambda status: status["totals"]["acked"] > 0, 60.0)
        yield running
        running.kill()
        running.wait()

    @contextmanager
    def tabs(self, name: str, number: int, *, is_one_window: bool = False) -> Iterator[list[Any]]:
        """Open tabs on a topology; each shows its graph. All but the last of one window are hidden then."""
        context = self.browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        pages: list[Any] = []
        for _ in range(number):
            if pages and is_one_window:
                # The browser has no window: it shows every tab, and does not hide one behind another.
                pages[-1].evaluate(HIDE)
            pages.append(context.new_page())
            pages[-1].goto(f"{self.address}t/{name}#token={self.token}")
            pages[-1].locator(".graph .node").first.wait_for()
        yield pages
        context.close()

    @contextmanager
    def viewers(self, name: str, number: int) -> Iterator[None]:
        """Open WebSockets on a topology, and take what tabs are sent."""
        from websockets.sync.client import connect

        origin: Any = self.address.rstrip("/")
        is_over = Event()

        def view() -> None:
            with connect(f"{self.address.replace('http', 'ws')}api/live", origin=origin, proxy=None) as socket:
                socket.send(json.dumps({"token": self.token}))
                socket.send(json.dumps({"look": name}))
                while not is_over.is_set():
                    json.loads(socket.recv(10))

        with _threads([view] * number, is_over):
            yield

    def ratio(self, load: RunningTopology, observed: Callable[[], Any]) -> float:
        """Return the median ratio of the rate while observed to that while not."""
        found = []
        for number in range(self.pairs):
            rates = {}
            for is_observed in (True, False) if number % 2 else (False, True):
                with observed() if is_observed else nullcontext():
                    time.sleep(SETTLE_S)
                    rates[is_observed] = _rate(load, self.seconds)
            found.append(rates[True] / rates[False])
        return median(found)

    def server_cpu(self) -> float:
        """Return the share of a core that the server of the page takes."""
        time.sleep(SETTLE_S)
        before, began = self.server.cpu_times(), time.monotonic()
        time.sleep(self.seconds)
        after = self.server.cpu_times()
        return (after.user + after.system - before.user - before.system) / (time.monotonic() - began)


@contextmanager
def _threads(targets: list[Callable[[], None]], is_over: Event) -> Iterator[None]:
    threads = [Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    yield
    is_over.set()
    for thread in threads:
        thread.join()


@contextmanager
def observing(load: RunningTopology, kind: str, component: str, **spec: Any) -> Iterator[None]:
    """Observe a topology, and take the rows each second, as the page does."""
    is_over, taken = Event(), []
    with observe(load.folder, kind, component, for_s=600.0, **spec) as seen:

        def take() -> None:
            while not is_over.wait(1.0):
                taken.append(seen.poll())

        with _threads([take], is_over):
            yield
    # Else the figure would be that of an observation of nothing.
    assert taken and taken[-1]["matched"] > 0, taken


def _rate(load: RunningTopology, seconds: float) -> float:
    """Return the messages a second of a time: from heartbeat to heartbeat of the spout."""
    counts, since = Counts(), time.monotonic()
    while (now := time.monotonic()) < since + seconds + HEARTBEAT_S:
        status = load.status()
        counts.add(status, now)
        time.sleep(0.25)
    tasks = [task["task"] for task in status["tasks"] if task["component"] == "spout"]
    return counts.growth(tasks, "acked", since, since + seconds + HEARTBEAT_S).per_second


def _cost(bench: Bench, name: str, goal: float, observed: Callable[[Bench, RunningTopology], Any]) -> Iterator[Row]:
    with bench.running(workloads, "word_count", splits=1, counts=1) as load:
        yield Row(name, bench.ratio(load, lambda: observed(bench, load)), goal, is_most=False)


def tabs(bench: Bench) -> Iterator[Row]:
    name = "rate with three tabs of a window, Chromium on this machine; to without"
    yield from _cost(bench, name, 0.99, lambda bench, load: bench.tabs(load.name, TABS, is_one_window=True))
    name = "rate with three windows, Chromium on this machine; to without"
    yield from _cost(bench, name, 0.99, lambda bench, load: bench.tabs(load.name, TABS))
    name = "rate with three tabs elsewhere; to without"
    yield from _cost(bench, name, 0.99, lambda bench, load: bench.viewers(load.name, TABS))


def tap(bench: Bench) -> Iterator[Row]:
    yield from _cost(bench, "rate with a tap, 10/s; to without", 0.99, lambda _, load: observing(load, "tap", "split", rate=10))


def trace(_: Bench) -> Iterator[Row]:
    found = hooks.measure_trace(hooks.TRACE_PAIRS, hooks.LINES)
    yield Row("processor time of tasks with a trace; to without", found["ratio"], 1.005)


def profile(bench: Bench) -> Iterator[Row]:
    name = "rate with a profile of split, 100 Hz; to without"
    yield from _cost(bench, name, 0.99, lambda _, load: observing(load, "profile", "split", rate=100))


def unobserved(bench: Bench) -> Iterator[Row]:
    found = hooks.measure(bench.pairs, hooks.LINES)
    yield Row("processor time with the hooks of observations; to without", found["ratio"], 1.003)


def overviews(_: Bench) -> Iterator[Row]:
    found = overview.measure(400, 40)
    yield Row("overview of 400 tasks, ms", found["overview_ms"], 2.0)
    yield Row("overview of 400 tasks, kB", found["overview_bytes"] / 1000, 20.0)
    # One a second, however many tabs there are.
    yield Row("master of 400 tasks, page open, % of a core more", found["overview_ms"] / 10, 3.0)


def server(bench: Bench) -> Iterator[Row]:
    with bench.running(topology, "many", components=COMPONENTS) as running:
        shares = {}
        for number in (1, 1 + TABS):
            with bench.tabs(running.name, number):
                shares[number] = 100 * bench.server_cpu()
        yield Row(f"server, {COMPONENTS} components and one tab, % of a core", shares[1], 2.0)
        yield Row("server, each further tab, % of a core", (shares[1 + TABS] - shares[1]) / TABS, 0.3)
        yield Row("server, memory, MB", bench.server.memory_info().rss / MEGABYTE, 80.0)


def quick(bench: Bench) -> Iterator[Row]:
    with bench.running(topology, "many", components=COMPONENTS) as running:
        opened = []
        for _ in range(RUNS):
            began = time.monotonic()
            with bench.tabs(running.name, 1):
                opened.append(time.monotonic() - began)
        yield Row("goto to live graph, s", median(opened), 1.0)
        seen = []
        with bench.tabs(running.name, 1) as (tab,):
            for _ in range(RUNS):
                for order, word in ((running.deactivate, "INACTIVE"), (running.activate, "RUNNING")):
                    began = time.monotonic()
                    order()
                    tab.locator(".state .word", has_text=word).wait_for()
                    seen.append(time.monotonic() - began)
            drawn = [float(tab.evaluate(GRAPH, 100)) / 1000 for _ in range(RUNS)]
        yield Row("event to pixel, s, the slowest", max(seen), 2.5)
        yield Row("graph of 100 components, s", median(drawn), 0.3)


def heap(bench: Bench, minutes: float) -> Iterator[Row]:
    def used(session: Any) -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"]) / MEGABYTE

    with bench.running(topology, "many", components=COMPONENTS) as running, bench.tabs(running.name, 1) as (tab,):
        session = tab.context.new_cdp_session(tab)
        # The charts of the first minutes fill.
        tab.wait_for_timeout(1000 * 60 * min(6.0, minutes / 2))
        before = used(session)
        tab.wait_for_timeout(1000 * 60 * minutes)
        yield Row(f"growth of a tab's heap in {minutes:g} min, MB", used(session) - before, 5.0)


PARTS: Mapping[str, Callable[[Bench], Iterator[Row]]] = {
    "tabs": tabs, "tap": tap, "trace": trace, "profile": profile, "hooks": unobserved, "overview": overviews,
    "server": server, "quick": quick,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each side of a pair (%(default)s)")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long to watch the heap of a tab; 0: not at all")
    parser.add_argument("--only", default="", help=f"the parts whose names contain this: {', '.join(PARTS)}, heap")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to store the figures")
    options = parser.parse_args()
    parts = dict(PARTS)
    if options.minutes:
        parts["heap"] = lambda bench: heap(bench, options.minutes)
    rows: list[Row] = []
    with TemporaryDirectory(prefix="topo-page-", ignore_cleanup_errors=True) as home, ExitStack() as stack:
        bench = Bench(Path(home), stack, options.pairs, options.seconds)
        for name, part in parts.items():
            if options.only in name:
                print(name, file=sys.stderr)
                rows += part(bench)
    found = [{**row._asdict(), "value": round(row.value, 4), "is_reached": row.is_reached} for row in rows]
    if options.out is not None:
        options.out.write_text(json.dumps({"cores": psutil.cpu_count(), "pairs": options.pairs, "rows": found}, indent=2) + "\n")
    if options.json:
        print(json.dumps(found))
        return
    for row in rows:
        goal = f"{'<=' if row.is_most else '>='} {row.goal:g}"
        print(f"{row.name:62}{row.value:>10,.4g}{goal:>12}  {'ok' if row.is_reached else 'not'}")


if __name__ == "__main__":
    main()
