"""Answers of the server of the page to browsers that ask again, and beside each other."""

from __future__ import annotations

import asyncio
import json
import shutil
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from topo import IterableSpout, TopologyBuilder
from topo.errors import UserError
from topo.launch.request import RunRequest
from topo.launch.submission import new_job
from topo.operate.log_files import moment
from topo.operate.overviews import ask_overview, look_at
from topo.storage.state_folder import StateFolder
from topo.storage.submitted import SparkCluster
from topo.ui.live import SHARED_S, LiveHome, LiveTopology
from topo.ui.reading import dead_letters, logs


class Files:
    """Counts how often it is read."""

    reads = 0

    def __call__(self) -> int:
        self.reads += 1
        return self.reads


def run(tmp_path: Path, ask: Callable[[LiveTopology, Files, list[float]], Awaitable[Any]]) -> Any:
    """Return what `ask` returns, which is given a topology, its files, and the time as a list of one number."""
    folder, now = StateFolder(tmp_path).create("words"), [10.0]

    async def body() -> Any:
        return await ask(LiveTopology(folder, lambda: now[0]), Files(), now)

    return asyncio.run(body())


def test_all_who_ask_for_the_same_within_a_moment_share_one_answer(tmp_path: Path) -> None:
    async def ask(topology: LiveTopology, files: Files, now: list[float]) -> list[str]:
        found = list(await asyncio.gather(*[topology.alone(files, "a") for _ in range(3)], topology.alone(files, "b")))
        now[0] += 0.9 * SHARED_S
        found.append(await topology.alone(files, "a"))
        now[0] += 0.2 * SHARED_S
        return [*found, await topology.alone(files, "a"), await topology.alone(files, "b")]

    assert run(tmp_path, ask) == ["1", "1", "1", "2", "1", "3", "4"]


def test_a_topology_whose_files_cannot_be_read_leaves_the_list_to_the_others(tmp_path: Path) -> None:
    closed, words = (StateFolder(tmp_path).create(name) for name in ("closed", "words"))
    (closed.path / "lock").symlink_to("lock")

    async def body() -> list[Any]:
        return await LiveHome(tmp_path).rows()

    rows = asyncio.run(body())
    assert [(row["topology"], row["status"]) for row in rows] == [(closed.name, "UNKNOWN"), (words.name, "LOST")]
    assert rows[0]["reason"] == f"cannot read {closed.path / 'lock'}: Too many levels of symbolic links"
    assert look_at(StateFolder(tmp_path), [], ask_overview) == ({}, {closed.name: "", words.name: ""})


def test_what_has_no_name_is_read_each_time(tmp_path: Path) -> None:
    async def ask(topology: LiveTopology, files: Files, now: list[float]) -> list[str]:
        return [await topology.alone(files), await topology.alone(files)]

    assert run(tmp_path, ask) == ["1", "2"]


def test_an_error_is_for_him_alone_who_asked(tmp_path: Path) -> None:
    async def ask(topology: LiveTopology, files: Files, now: list[float]) -> str:
        def refuse() -> None:
            raise UserError("too many points")

        with pytest.raises(UserError):
            await topology.alone(refuse, "a")
        return await topology.alone(files, "a")

    assert run(tmp_path, ask) == "1"


def test_the_list_shows_where_a_topology_runs_that_was_submitted_again_elsewhere(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    builder = TopologyBuilder("words")
    builder.set_spout("lines", IterableSpout(["a"]))
    last = new_job(RunRequest(topology=builder.build(), home=tmp_path)).submitted
    home = LiveHome(tmp_path)

    def places() -> list[str]:
        return [row["place"] for row in asyncio.run(home.rows())]

    assert places() == ["machine"]
    replace(last, spark=SparkCluster(master="spark://m:7077")).save(folder)
    assert places() == ["spark://m:7077"]


class Removing(StateFolder):
    """Names a topology that is removed before it is looked at."""

    def names(self) -> list[str]:
        return ["removed", *super().names()]


def test_a_topology_that_is_removed_meanwhile_leaves_the_list_of_the_others(tmp_path: Path) -> None:
    StateFolder(tmp_path).create("words")
    home = LiveHome(tmp_path)
    home.state = Removing(tmp_path)
    assert [row["topology"] for row in asyncio.run(home.rows())] == ["words"]


def test_the_connection_to_a_topology_that_is_removed_is_closed(tmp_path: Path) -> None:
    folder, home = StateFolder(tmp_path).create("words"), LiveHome(tmp_path)
    assert len(asyncio.run(home.rows())) == 1
    client = home.find("words")._client
    with client._connected(f"ipc://{tmp_path}/client"):
        assert client._kept is not None
    shutil.rmtree(folder.path)
    assert asyncio.run(home.rows()) == []
    assert client._kept is None


def test_lines_that_are_written_late_in_the_same_moment_are_in_the_next_answer(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    folder.logs.mkdir(exist_ok=True)
    at = moment(0.0)

    def write(worker: int, text: str) -> None:
        with (folder.logs / f"worker-{worker}.log").open("a") as file:
            file.write(json.dumps({"time": at, "level": "INFO", "message": text, "worker": worker}) + "\n")

    write(2, "first")
    found = logs(folder, {})
    write(1, "late")
    write(2, "second")
    again = logs(folder, {"after": found["next"]})
    assert [row["message"] for row in found["rows"]] == ["first"]
    assert sorted(row["message"] for row in again["rows"]) == ["first", "late", "second"]
    later = moment(-5.0)
    assert logs(folder, {"after": later}) == {"rows": [], "next": later}


def test_only_the_shown_of_many_dead_letters_are_kept(tmp_path: Path) -> None:
    folder, many = StateFolder(tmp_path).create("words"), 5_000
    row = json.dumps({"component": "lines", "values": ["x" * 1000]})
    folder.dead_letters.write_text(f"{row}\n" * many)
    tracemalloc.start()
    try:
        found = dead_letters(folder, {"number": "10"})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found["total"], [one["id"] for one in found["dead_letters"]]) == (many, list(range(many - 9, many + 1)))
    assert peak < 1_000_000


def test_only_the_shown_of_many_rows_of_logs_are_kept(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    names = ["worker-0.log.2", "worker-0.log.1", "worker-0.log", "worker-1.log.1", "worker-1.log"]
    for place, name in enumerate(names):
        row = {"time": f"2026-11-28T10:0{place % 3}", "level": "INFO", "message": "x" * 50}
        texts = (json.dumps(row | {"message": f"{name} {number}"}) for number in range(2000))
        (folder.logs / name).write_text("".join(f"{text}\n" for text in texts))
    size = sum((folder.logs / name).stat().st_size for name in names)
    tracemalloc.start()
    try:
        found = logs(folder, {"lines": "3"})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row["message"] for row in found["rows"]] == [f"worker-0.log {number}" for number in (1997, 1998, 1999)]
    assert peak < size


def test_long_values_of_a_dead_letter_are_cut_for_a_browser(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    rows = [{"component": "lines", "values": values} for values in (["x" * 1_000_000, {"y": 1}], ["short"], "no values")]
    folder.dead_letters.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    long, short, text = [row["values"] for row in dead_letters(folder, {})["dead_letters"]]
    assert long.startswith('["xxx') and long.endswith("x… (1,000,014 characters)") and len(long) < 3_000
    assert (short, text) == (["short"], "no values")
