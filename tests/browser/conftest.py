"""A page beside two real topologies, in one Chromium; and tabs of it in which any console message fails the test."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra browser: make browser")
pytest.importorskip("starlette", reason="needs the extra ui")

TOPO = [sys.executable, "-m", "topo_cli"]
PATIENCE_S = 120
CHROMIUM = shutil.which("chromium-headless-shell")
SOURCE = """
import itertools, time
from topo import BasicBolt, IterableSpout, Spout, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows

def readings():
    for number in itertools.count(1):
        time.sleep(0.005)
        yield number, number % 3, int(time.time() * 1000) - (90_000 if number % 40 == 0 else 0)

class Parse(BasicBolt):
    outputs = ("value", "key", "at_ms")
    def execute(self, tup, collector):
        if tup["value"] % 50 == 0:
            raise ValueError("<img src=x onerror=alert(1)>")
        time.sleep(0.002)
        collector.emit(tup.values)

class Odd(Spout):
    outputs = ("value",)
    def open(self, context, collector):
        self.collector, self.number = collector, 0
    def next_tuple(self):
        self.number += 1
        self.collector.emit((self.number,), message_id=f"<img src=x onerror=alert({self.number})>")
        self.collector.nothing_before(0.2)

class Behind(Spout):
    outputs = ("at_ms",)
    def open(self, context, collector):
        self.collector = collector
    def next_tuple(self):
        self.collector.emit((int(time.time() * 1000) - 30_000,))
        self.collector.nothing_before(0.2)

class Twice(BasicBolt):
    outputs = ("value",)
    def execute(self, tup, collector):
        collector.emit((tup["value"],))
        collector.emit((-tup["value"],))

class End(BasicBolt):
    outputs = ()
    def execute(self, tup, collector):
        pass

def topology(name: str = "readings", delivery: str = "at_least_once"):
    settings = {"attempts": 1} if delivery == "at_least_once" else {"checkpoint_interval": "2s"}
    builder = TopologyBuilder(name).config(delivery=delivery, **settings)
    strategy = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="at_ms")
    builder.set_spout("source", IterableSpout(readings, fields=("value", "key", "at_ms")), watermarks=strategy)
    builder.set_bolt("parse", Parse(), 2).shuffle_grouping("source")
    window = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("2s"), aggregate=aggregates.Count())
    builder.set_bolt("per-key", window).fields_grouping("parse", "key")
    builder.set_spout("behind", Behind(), watermarks=strategy)
    builder.set_bolt("meet", End()).shuffle_grouping("parse").shuffle_grouping("behind")
    builder.set_spout("odd", Odd())
    builder.set_bolt("twice", Twice()).shuffle_grouping("odd")
    builder.set_bolt("end", End()).shuffle_grouping("twice")
    return builder.build()
"""


@dataclass(frozen=True, slots=True)
class Served:
    """The process that serves the page, its address with the token, and the state folder."""

    process: subprocess.Popen[str]
    link: str
    home: Path

    @property
    def address(self) -> str:
        return self.link.partition("#")[0]


def at_the_end(*command: str) -> Callable[[], object]:
    """Run a command when the returned function is called, or when this process has ended, in whatever way."""
    guard = "import subprocess, sys; sys.stdin.read(); subprocess.run(sys.argv[1:])"
    waiting = subprocess.Popen([sys.executable, "-c", guard, *command], stdin=subprocess.PIPE, start_new_session=True)
    return lambda: waiting.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The page of a home in which `readings` has errors, late inputs and dead letters, and `exact` takes checkpoints."""
    if CHROMIUM is None:
        pytest.skip("needs chromium-headless-shell: make browser")
    folder = tmp_path_factory.mktemp("page")
    home, file = ["--home", str(folder / "home")], folder / "readings.py"
    file.write_text(SOURCE)
    exact = ["-p", "name=exact", "-p", "delivery=exactly_once"]
    with ExitStack() as ends:
        for name, options in (("readings", []), ("exact", exact)):
            ends.callback(at_the_end(*TOPO, "kill", *home, name, "--yes"))
            subprocess.run([*TOPO, "submit", *home, str(file), "--workers", "1", *options], check=True, timeout=PATIENCE_S)
        server = subprocess.Popen([*TOPO, "ui", *home, "--port", "0"], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        ends.callback(server.wait, PATIENCE_S)
        ends.callback(at_the_end("kill", str(server.pid)))
        yield Served(server, server.stdout.readline().strip(), folder / "home")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * PATIENCE_S)


Open = Callable[..., Any]


@pytest.fixture
def open_tab(served: Served, browser: Any) -> Iterator[Open]:
    """Opens a page: `open_tab("t/readings/errors", width=420, theme="dark")`."""
    wrong: list[str] = []
    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE_S)

    def open_tab(path: str = "t/readings", *, width: int = 1280, theme: str = "light") -> Any:
        tab = context.new_page()
        tab.set_viewport_size({"width": width, "height": 900})
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("requestfailed", lambda request: wrong.append(f"{request.failure} {request.url}"))
        tab.on("response", lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
        tab.add_init_script(f"localStorage.setItem('topo.theme', '{theme}')")
        tab.goto(f"{served.address}{path}#token={served.link.partition('=')[2]}")
        return tab

    yield open_tab
    context.close()
    # A request that a page was left during is no failure, nor is an answer that a busy machine has no time for.
    assert [one for one in wrong if not re.search(r"ERR_ABORTED|\b(429|504)\b", one)] == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core."""
    return (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
