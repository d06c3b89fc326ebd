"""Makes the pictures in docs/images: python scripts/pictures.py

A topology with errors and late data runs for two minutes; then Chromium opens its page. Needs the extras `ui` and `browser`. Look
at the pictures before you commit them.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from topo import BasicBolt, IterableSpout, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.launch.local_cluster import LocalCluster

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SHOTS = {"overview-light.png": ("t/sensors", "light", 1236), "component-dark.png": ("t/sensors/c/enrich", "dark", 760)}
"""By picture: its page, theme and height."""
RUNS_S = 120


def readings() -> Iterator[tuple[int, str, float, int]]:
    """Yield number, sensor, value and time; each fiftieth is two minutes late."""
    for number in itertools.count(1):
        time.sleep(0.02)
        late_ms = 120_000 if number % 50 == 0 else 0
        yield number, f"s{number % 7}", 20 + number % 13 / 2, int(time.time() * 1000) - late_ms


class Parse(BasicBolt):
    outputs = ("number", "sensor", "value", "at_ms")

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["number"] % 60 == 0:
            raise ValueError("a reading without a unit")
        collector.emit(tup.values)


class Enrich(BasicBolt):
    outputs = ("sensor", "value", "at_ms")

    def execute(self, tup: Any, collector: Any) -> None:
        time.sleep(0.03)
        collector.emit(tup.values[1:])


class Take(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Take a tuple."""


def sensors() -> Topology:
    """Return the topology of the pictures."""
    builder = TopologyBuilder("sensors").config(delivery="at_least_once", attempts=1, workers=2)
    times = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="at_ms")
    builder.set_spout("sensor", IterableSpout(readings, fields=("number", "sensor", "value", "at_ms")), watermarks=times)
    builder.set_bolt("parse", Parse(), 2).shuffle_grouping("sensor")
    builder.set_bolt("enrich", Enrich(), 2).shuffle_grouping("parse")
    window = WindowBolt(key="sensor", window=windows.TumblingEventTimeWindows.of("2s"), aggregate=aggregates.Max("value"))
    builder.set_bolt("window", window).fields_grouping("enrich", "sensor")
    builder.set_bolt("store", Take()).shuffle_grouping("enrich")
    builder.set_bolt("alarm", Take()).shuffle_grouping("window")
    return builder.build()


def main() -> None:
    """Run the topology, and take the pictures."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory(ignore_cleanup_errors=True) as home, LocalCluster(Path(home)) as cluster:
        running = cluster.submit(f"{Path(__file__).absolute()}:sensors")
        command = [sys.executable, "-m", "topo_cli", "ui", "--home", home, "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address, _, token = server.stdout.readline().strip().partition("#")
        time.sleep(RUNS_S)
        with sync_playwright() as driver:
            chromium = driver.chromium.launch(executable_path=shutil.which("chromium-headless-shell"), args=["--no-sandbox"])
            for name, (page, theme, height) in SHOTS.items():
                tab = chromium.new_page(viewport={"width": 1280, "height": height})
                tab.add_init_script(f"localStorage.setItem('topo.theme', '{theme}')")
                tab.goto(f"{address}{page}#{token}")
                tab.get_by_text("Components" if theme == "light" else "Tasks, the busiest first").first.wait_for()
                tab.wait_for_timeout(5000)
                tab.screenshot(path=IMAGES / name)
            chromium.close()
        server.terminate()
        server.wait()
        running.kill()
        running.wait()


if __name__ == "__main__":
    main()
