"""Programs of streams in real processes: each result is published once, whichever worker is killed.

`KILL_SECONDS=60 pytest -s tests/integration/test_streams_killed.py` kills workers of all programs for a minute.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests import streams_programs as plain
from tests.integration.random_kills import SECONDS, SETTINGS, Killer
from tests.integration.support import Scene, eventually, kill, pid_of
from tests.streams_programs import rows, text
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.master.outcome import OutcomeKind
from topologies.streams import enrich

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


@pytest.mark.parametrize("component", ["items", "count", "out"])
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


PACED = """

import time as _time
from pathlib import Path as _Path
from topo import JsonLinesSink

def _pause(line):
    _time.sleep(float(_Path({pace!r}).read_text()))

class StreamBuilder(StreamBuilder):
    '''Takes its time with each line.'''

    def from_files(self, path, **options):
        return super().from_files(path, **options).tap(_pause)
"""
PROGRAMS = Path(enrich.__file__).parent
RECORDS = 300
KILL_S = SECONDS / 2
"""As this test runs nine programs at once, each process takes its time to start."""


class Service(BaseHTTPRequestHandler):
    """Knows the country of each user; of each seventh it does not the first time."""

    busy: Counter[str] = Counter()

    def do_GET(self) -> None:
        user = self.path.rpartition("/")[2]
        self.busy[user] += 1
        is_busy = int(user) % 7 == 0 and self.busy[user] == 1
        self.send_response(503 if is_busy else 200)
        self.end_headers()
        self.wfile.write(b"" if is_busy else json.dumps({"country": plain.country_of(user)}).encode())

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def service() -> Iterator[str]:
    """The address of a server that `enrich` asks."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        Service.busy.clear()
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Programs:
    """Programs of topologies/streams that run at the same time, each with its input as files."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._killers: list[Killer] = []
        self._set_pause(0.5)

    def _set_pause(self, seconds: float) -> None:
        """Set how long all programs wait at each line."""
        new = self._scene.folder / "pace.new"
        new.write_text(str(seconds))
        new.rename(self._scene.folder / "pace")

    def start(self, name: str, inputs: dict[str, Sequence[str]], **parameters: str) -> Path:
        """Start a program over lines by parameter; return the file that its results go to."""
        folder = self._scene.folder
        out = folder / f"{name}.out"
        for parameter, lines in inputs.items():
            (folder / f"{name}.{parameter}").write_text("".join(f"{line}\n" for line in lines))
            parameters[parameter] = str(folder / f"{name}.{parameter}")
        source = (PROGRAMS / f"{name}.py").read_text()
        if ".to(print)" in source:  # a printed line may be printed twice
            source = source.replace(".to(print)", f".to(JsonLinesSink({str(out)!r}), name='out')")
        else:
            parameters["out"] = str(out)
        (folder / f"{name}.py").write_text(source + PACED.format(pace=str(folder / "pace")))
        request = RunRequest(
            str(folder / f"{name}.py"),
            parameters=parameters,
            settings={**SETTINGS, "delivery": "exactly_once", "workers": 2, "spare_workers": 0},
            home=self._scene.home,
            foreground=True,
        )
        self._killers.append(Killer(self._scene, submit_background(request)))
        return out

    def kill_each_second(self) -> None:
        """Kill a worker of each program each second, and let them come to an end."""
        for killer in self._killers:
            killer.running.wait_until(lambda status: status["checkpoints"]["complete"] > 0, timeout_s=120)
        self._set_pause(2 * KILL_S / RECORDS)
        until = time.monotonic() + KILL_S
        while (now := time.monotonic()) < until:
            for killer in self._killers:
                killer.strike("one")
            time.sleep(max(0.0, now + 1.0 - time.monotonic()))
        for killer in self._killers:
            # A strike finds no process while a recovery is under way.
            eventually(lambda killer=killer: killer.counts().get("strikes") or killer.strike("one"), what=str(killer))
        self._set_pause(0.0)
        for killer in self._killers:
            outcome = killer.finish()
            print(f"{killer.running.name}: {killer}")
            assert (outcome.kind, outcome.exit_code) == (OutcomeKind.DONE, 0), (killer.running.name, outcome.reason)
            assert killer.counts()["restores"] > 0, str(killer)


def values(out: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows(out))


@pytest.mark.timeout(600 + 3 * SECONDS)
def test_with_a_worker_killed_each_second_programs_give_what_plain_python_computes(scene: Scene, service: str) -> None:
    programs = Programs(scene)
    checks: list[Callable[[], object]] = []

    def expect(out: Path, wanted: Sequence[Any]) -> None:
        assert wanted
        checks.append(lambda: _same(out, wanted))

    lines = plain.words(1, RECORDS)
    expect(programs.start("word_count", {"path": lines}), plain.word_counts(lines))
    clicks = plain.clicks(1, RECORDS, 60 * 24)
    late = scene.folder / "late"
    expect(programs.start("sessions", {"path": text(clicks)}, late=str(late)), plain.visits(clicks))
    checks.append(lambda: _same(late, []))
    payments = plain.card_payments(1, RECORDS, 100)
    expect(programs.start("fraud", {"path": text(payments)}), plain.alerts(payments))
    asking = [enrich.Click(str(each % 50), f"/{each}") for each in range(RECORDS)]
    expect(programs.start("enrich", {"path": text(asking)}, service=service), plain.located(asking))
    orders, paid = plain.orders_and_payments(1, RECORDS)
    expect(programs.start("paid_orders", {"orders": text(orders), "payments": text(paid)}), plain.paid(orders, paid))
    ranked = programs.start("top_pages", {"path": text(clicks)})
    checks.append(lambda: plain.check_top_pages([_ranking(row) for row in rows(ranked)], clicks))
    doubled = plain.repeated_payments(1, RECORDS, RECORDS // 4)
    expect(programs.start("once", {"path": text(doubled)}), plain.first_payments(doubled))
    users, asked = plain.named_clicks(RECORDS)
    named = programs.start("cdc", {"changes": text(users), "clicks": text(asked)})
    checks.append(lambda: _check_names(named, RECORDS))
    logins = plain.attempts(1, RECORDS)
    expect(programs.start("logins", {"path": text(logins)}), [(one,) for one in plain.breaches(logins)])

    programs.kill_each_second()
    for check in checks:
        check()


def _same(out: Path, wanted: Sequence[Any]) -> None:
    assert values(out) == wanted, out.name


def _ranking(row: dict[str, Any]) -> tuple[int, list[tuple[str, int]]]:
    return row["end"], [(url, window[-1]) for url, window in row["value"]]


def _check_names(out: Path, number: int) -> None:
    """Each click has one row, with a name that its user has had; which name depends on the order of arrival."""
    found = rows(out)
    assert sorted(row["url"] for row in found) == sorted(f"/{each}" for each in range(number))
    for row in found:
        user = int(row["url"][1:]) % 7
        given, _, change = row["name"].partition("-")
        assert row["name"] == "?" or (int(given) == user and int(change) % 5 == user), row
