"""Files and sinks whose machine loses its power between any two of their steps: nothing reported as durable is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.killing import Report, run_child
from tests.contract.power import Loss, PowerCut
from tests.contract.test_killed_sinks import Master, check_recovery, life_of, spill_early
from tests.contract.two_phase_sinks import KINDS, SEVERAL_FILES, SinkKind, started
from tests.unit.connectors.drive import tracked
from topo import JsonLinesSink
from topo.storage.state_folder import StateFolder, append_lines, write_atomically

pytestmark = pytest.mark.integration

KINDS_ON_FILES = [kind for kind in [*KINDS, SEVERAL_FILES] if not kind.name.startswith(("rows", "files in a store"))]
"""SQLite syncs by calls that are not seen here, and a store keeps all that it has taken."""


@pytest.fixture(params=Loss, ids=lambda loss: loss.name.lower())
def loss(request: pytest.FixtureRequest) -> Loss:
    found: Loss = request.param
    return found


def lives(
    tmp_path: Path, loss: Loss, work_in: Callable[[Path], Callable[[Report], None]], stride: int = 1
) -> Iterator[tuple[Path, list[Any]]]:
    """Yield the folder and the reports of a process whose power fails before its steps, every third one, and after the last.

    stride: of those steps, the power fails before each `stride`-th.
    """
    step, is_done = list(Loss).index(loss), False
    while not is_done:
        folder = tmp_path / str(step)
        folder.mkdir()
        is_done, reports = run_child(work_in(folder), step, PowerCut(folder, loss))
        yield folder, reports
        shutil.rmtree(folder)
        step += stride * len(Loss)
    assert step > 10


@pytest.mark.parametrize("kind", KINDS_ON_FILES, ids=lambda kind: kind.name)
def test_a_sink_recovers_the_rows_of_the_last_complete_checkpoint(
    kind: SinkKind, loss: Loss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill_early(monkeypatch.setattr)
    masters: dict[Path, Master] = {}

    def work_in(folder: Path) -> Callable[[Report], None]:
        masters[folder] = Master()
        return life_of(kind, folder, masters[folder])

    for folder, reports in lives(tmp_path, loss, work_in, max(1, kind.stride // 8)):
        masters[folder].note(reports)
        check_recovery(kind, folder, masters[folder])


def test_lines_of_acked_tuples_are_in_the_file(loss: Loss, tmp_path: Path) -> None:
    def work_in(folder: Path) -> Callable[[Report], None]:
        def work(report: Report) -> None:
            sink = JsonLinesSink(folder / "new" / "out", max_batch=2)
            collector = started(sink, delivery="at_least_once")
            for number in range(8):
                sink.execute(tracked(n=number))
                report(len(collector.acked))

        return work

    for folder, reports in lives(tmp_path, loss, work_in):
        acked = max(reports, default=0)
        path = folder / "new" / "out"
        found = [json.loads(line)["n"] for line in path.read_text().split("\n")[:-1]] if acked else []
        assert found[:acked] == list(range(acked))


def test_the_state_folder_has_the_written_files(loss: Loss, tmp_path: Path) -> None:
    def work_in(home: Path) -> Callable[[Report], None]:
        def work(report: Report) -> None:
            folder = StateFolder(home / "topo").create("words")
            for number in range(1, 4):
                write_atomically(folder.master, str(number).encode())
                report(("record", number))
                append_lines(folder.dead_letters, [f"line {number}".encode()])
                report(("lines", number))

        return work

    for home, reports in lives(tmp_path, loss, work_in):
        done = dict(reports)
        folder = home / "topo" / "topologies" / "words"
        if "record" in done:
            assert int((folder / "master.json").read_bytes()) in (done["record"], done["record"] + 1)
        if "lines" in done:
            lines = (folder / "dead_letters.jsonl").read_text().split("\n")
            assert lines[: done["lines"]] == [f"line {number}" for number in range(1, done["lines"] + 1)]
