"""Programs of streams in real processes: each running result is published once, whichever worker is killed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.integration.support import Scene, kill, pid_of

pytestmark = pytest.mark.integration

PROGRAM = """
    import time

    import msgspec

    from topo.streams import StreamBuilder


    class Seen(msgspec.Struct):
        word: str
        times: int


    def topology():
        flow = StreamBuilder("killed")
        pause = 0.004
        words = flow.from_iterable([f"w{n % 7}" for n in range(500)]).tap(lambda word: time.sleep(pause))
        counts = words.key_by(lambda word: word, parallelism=2).count(name="count")
        counts.map_keyed(lambda word, times: Seen(word, times), of=Seen).to(JsonLinesSink(HERE / "out.jsonl"), name="out")
        return flow
"""


@pytest.mark.parametrize("component", ["items-steps", "count", "out"])
def test_each_running_count_is_published_once_when_a_worker_is_killed(scene: Scene, component: str) -> None:
    killed: list[int] = []

    def on_status(status: dict[str, Any]) -> None:
        pid = pid_of(status, component)
        if status["totals"]["emitted"] > 150 * (len(killed) + 1) and len(killed) < 2 and pid and pid not in killed:
            killed.append(pid)
            kill(pid)

    ran = scene.run(scene.file(PROGRAM), on_status, checkpoint_interval="100ms")

    assert (ran.outcome.exit_code, len(killed)) == (0, 2), ran.errors
    times = defaultdict(list)
    for word, number in scene.lines():
        times[word].append(number)
    wanted = {f"w{n}": list(range(1, 500 // 7 + (2 if n < 500 % 7 else 1))) for n in range(7)}
    assert {word: sorted(found) for word, found in times.items()} == wanted
