"""Column batches through real processes: workers are killed at random, and the words of the batches are counted exactly."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.random_kills import SECONDS, SETTINGS, Killer, paced
from tests.integration.support import Scene
from topo.storage.state_folder import read_json_lines
from topologies import word_count_batches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300 + 2 * SECONDS)]

BLOCKS, LINES = 400, 30


@pytest.mark.parametrize(("workers", "arrow"), [(None, 0), (2, 1)])
def test_the_words_of_batches_are_counted_exactly(scene: Scene, workers: int | None, arrow: int) -> None:
    chance = random.Random(3)
    words = [f"word{number}" for number in range(400)]
    text = [" ".join(chance.choices(words, k=8)) for _ in range(BLOCKS * LINES)]
    folder = scene.folder / "text"
    folder.mkdir()
    (folder / "text.py").write_text("\n".join(text) + "\n")
    parameters = f"{str(folder)!r}, lines={LINES}, top=1000, splits=2, counts=2, arrow={arrow}"
    more = f"\n\ndef killed():\n    return topology({parameters})\n"
    path = paced(scene, Path(word_count_batches.__file__), "LineBlocks", BLOCKS, more)
    running = scene.submit_background(f"{path}:killed", **SETTINGS, workers=workers)
    killer = Killer(scene, running)
    outcome = killer.kill_for_a_while()
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed"), str(killer)
    assert killer.counts()["restores"] >= SECONDS / 15, str(killer)
    rows = [row for file in killer.running.folder.logs.glob("worker-*.log") for row in read_json_lines(file)]
    printed = [row["message"].split() for row in rows if row.get("logger") == "stdout" and "most frequent" not in row["message"]]
    assert {word: int(count.replace(",", "")) for count, word in printed} == Counter(" ".join(text).split())
    assert len(printed) == len(words), "a row was printed twice"
