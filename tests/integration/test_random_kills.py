"""Random kills of workers, of two at once, and of everything at once with the master: the rows of an undisturbed
run are published, each once.

`KILL_SECONDS=60 pytest -s tests/integration/test_random_kills.py` kills for a minute each, and shows the counts.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.integration.random_kills import SECONDS, SETTINGS, Killer, paced
from tests.integration.support import Scene
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.storage.state_folder import read_json_lines
from topo_cli import workloads
from topologies import word_count

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300 + 2 * SECONDS)]


def killed_at_random(scene: Scene, topology: str) -> Killer:
    """Run a topology to its end with kills; return who has killed."""
    running = submit_background(RunRequest(topology, settings=SETTINGS, home=scene.home))
    killer = Killer(scene, running)
    outcome = killer.kill_for_a_while()
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed"), str(killer)
    counts = killer.counts()
    assert all(counts[kind] for kind in ("one", "two", "all")) and counts["masters"] >= 2, str(killer)
    assert counts["restores"] >= counts["strikes"] / 3, str(killer)
    return killer


LINES = 1500
"""A second."""


def test_the_words_of_a_text_are_counted_exactly(scene: Scene) -> None:
    chance = random.Random(3)
    words = [f"word{number}" for number in range(400)]
    text = [" ".join(chance.choices(words, k=8)) for _ in range(1000)]
    file = scene.folder / "text.txt"
    file.write_text("\n".join(text) + "\n")
    repeat = round(LINES * SECONDS / len(text))
    more = f"\n\ndef killed():\n    return topology({str(file)!r}, repeat={repeat}, top=1000, splits=2, counts=2)\n"
    path = paced(scene, Path(word_count.__file__), "TextFileSpout", repeat * len(text), more)
    killer = killed_at_random(scene, f"{path}:killed")
    rows = [row for file in killer.running.folder.logs.glob("worker-*.log") for row in read_json_lines(file)]
    printed = [row["message"].split() for row in rows if row.get("logger") == "stdout" and "most frequent" not in row["message"]]
    found = Counter({word: int(count.replace(",", "")) for count, word in printed})
    print(f"\nword count: {killer}; {found.total()} words, {len(printed)} rows")
    assert found == {word: count * repeat for word, count in Counter(" ".join(text).split()).items()}
    assert len(printed) == len(found), "a row was printed twice"


EVENTS = 25_000
"""A second."""
SUMS = """

from itertools import cycle as _cycle
from topo import JsonLinesSink

_names = _cycle(("out", "late"))


def Total():
    return JsonLinesSink({folder!r} + "/" + next(_names) + ".jsonl")


class ReadableEvents(ReadableEvents):
    def _is_over(self):
        return self.number >= {count}


def killed():
    return windowed_sum(splits=2, counts=2, delivery="exactly_once")
"""


def test_the_windows_of_the_windowed_sum_are_those_of_a_plain_computation(scene: Scene) -> None:
    count = round(EVENTS * SECONDS / 256) * 256
    more = SUMS.format(folder=str(scene.folder), count=count)
    path = paced(scene, Path(workloads.__file__), "ReadableEvents", count, more)
    killer = killed_at_random(scene, f"{path}:killed")
    rows = [json.loads(line) for line in (scene.folder / "out.jsonl").read_text().splitlines()]
    expected = windows_of(count)
    print(f"\nwindowed sum: {killer}; {count} events, {len(rows)} rows")
    assert {(row["key"], row["window_start"]): row["sum"] for row in rows} == expected
    assert len(rows) == len(expected), "a row was published twice"
    assert not (scene.folder / "late.jsonl").exists() or (scene.folder / "late.jsonl").read_text() == ""


def windows_of(count: int) -> dict[tuple[str, int], int]:
    """Return the sums by key and begin of the window, computed without topo."""
    events = workloads.events()
    sums: dict[tuple[str, int], int] = defaultdict(int)
    keys = [(json.loads(f"{begin}0{end}")["key"], late, value) for begin, late, end, value in events]
    for number in range(count):
        key, late, value = keys[number % len(keys)]
        stamp = 1_700_000_000_000 + number // 10 - late
        sums[key, stamp - stamp % 10_000] += value
    return dict(sums)
