"""Programs of streams that a script runs: `flow.run()`, `run(function)`, `submit(function)`, `collect()`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = """
import msgspec

from topo import TopoError
from topo.streams import AT_END, StreamBuilder, run, submit


class Seen(msgspec.Struct):
    word: str
    times: int


flow = StreamBuilder("held")
words = flow.from_iterable(["a b", "b c"]).flat_map(str.split)
counts = words.key_by(lambda word: word).count(emit=AT_END)
pairs = counts.entries().collect()
seen = counts.map_keyed(lambda word, times: Seen(word, times), of=Seen).collect()


def topology(text: str, times: int = 1) -> StreamBuilder:
    made = StreamBuilder("made")
    made.from_iterable([text] * times).to(print)
    return made


def broken() -> StreamBuilder:
    made = StreamBuilder("broken").config(attempts=1)
    made.from_iterable([0]).map(lambda number: 1 // number).to(print)
    return made


if __name__ == "__main__":
    print(flow.run()["totals"]["acked"], sorted(pairs), sorted(seen, key=lambda one: one.word))
    print(run(topology, text="printed", times=2)["totals"]["acked"])
    print(submit(topology, text="x", name="other").wait(60).exit_code)
    inner = StreamBuilder("inner")
    kept = inner.from_iterable([(1, "one"), (2, None)]).collect()
    inner.run()
    print(kept)
    for wrong in (lambda: run(broken), lambda: run(topology, text=object())):
        try:
            wrong()
        except TopoError as error:
            print(type(error).__name__, str(error)[:40])
"""

BOLTS = """
from topo import IterableSpout, PrintBolt, Topology, TopologyBuilder
from topo.streams import run


def topology(times: int) -> Topology:
    builder = TopologyBuilder("bolts")
    builder.set_spout("lines", IterableSpout(["a"] * times, fields=("line",)))
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("lines")
    return builder.build()


if __name__ == "__main__":
    print(run(topology, times=2)["totals"]["acked"])
"""


def script(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py", *arguments],
        cwd=folder,
        env={**os.environ, "TOPO_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )


WITH_ARGUMENTS = """
import sys

from topo.streams import StreamBuilder

MOST = int(sys.argv[1])
flow = StreamBuilder("bounded")
numbers = flow.from_iterable(range(MOST), of=int).filter(lambda number: number < MOST - 1).collect()

if __name__ == "__main__":
    flow.run()
    print(numbers)
"""


@pytest.mark.timeout(120)
def test_a_program_made_of_arguments_of_the_script_reaches_the_workers_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    ran = script(tmp_path, WITH_ARGUMENTS, "4")
    assert ran.stdout.splitlines() == ["[0, 1, 2]"], ran.stderr


@pytest.mark.timeout(300)
def test_a_script_runs_programs_and_reads_their_results(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    ran = script(tmp_path, SCRIPT)
    assert ran.stdout.splitlines() == [
        "2 [('a', 1), ('b', 2), ('c', 1)] [Seen(word='a', times=1), Seen(word='b', times=2), Seen(word='c', times=1)]",
        "printed",
        "printed",
        "2",
        "0",
        "[(1, 'one'), (2, None)]",
        "TopoError broken has failed: 1 message was given u",
        "UserError the parameter 'text' is <object object a",
    ], ran.stderr
    assert "ZeroDivisionError" in ran.stderr and "script.py, line 28" in ran.stderr


def test_a_script_runs_a_topology_of_bolts(tmp_path: Path) -> None:
    """Promise of docs/streams.md: `run(function, **parameters)` runs a program, or a topology of spouts and bolts."""
    ran = script(tmp_path, BOLTS)
    assert ran.stdout.splitlines() == ["a", "a", "2"], ran.stderr


BELOW = """
from topo.streams import StreamBuilder, run

if __name__ == "__main__":
    text = "below"

    def program(times: int) -> StreamBuilder:
        flow = StreamBuilder("below")
        flow.from_iterable(["the line "]).map(lambda line: times * line + text).to(print)
        return flow

    run(program, times=2)
"""


def test_a_function_below_the_guard_of_the_script_reaches_the_workers_as_it_is(tmp_path: Path) -> None:
    """Promise of docs/streams.md: a program that importing its file does not create is sent to the workers with cloudpickle."""
    pytest.importorskip("cloudpickle")
    ran = script(tmp_path, BELOW)
    assert ran.stdout.splitlines() == ["the line the line below"], ran.stderr


TWO_THREADS = """
from threading import Thread

from topo import UserError
from topo.streams import StreamBuilder, run

if __name__ == "__main__":
    def attempt() -> None:
        try:
            run(lambda: StreamBuilder("second"))
        except UserError as error:
            print(error)

    def program() -> StreamBuilder:
        thread = Thread(target=attempt)
        thread.start()
        thread.join()
        flow = StreamBuilder("first")
        flow.from_iterable([1]).to(print)
        return flow

    run(program)
"""


def test_a_run_while_another_thread_runs_a_program_is_refused_with_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    ran = script(tmp_path, TWO_THREADS)
    refused = "another thread of this process runs or submits a program; call one after the other, or in two processes"
    assert ran.stdout.splitlines() == [refused, "1"], ran.stderr


def test_a_script_that_runs_a_program_while_it_is_imported_is_refused(tmp_path: Path) -> None:
    ran = script(tmp_path, SCRIPT.partition("if __name__")[0] + "flow.run()\n")
    assert ran.returncode == 1
    assert "put the call below `if __name__ == '__main__':`" in ran.stderr


@pytest.mark.timeout(120)
def test_a_program_that_a_worker_builds_otherwise_is_refused_with_the_first_operator_that_differs(tmp_path: Path) -> None:
    (tmp_path / "differs.py").write_text(
        "import sys\n"
        "from topo.streams import StreamBuilder\n"
        "def topology() -> StreamBuilder:\n"
        "    flow = StreamBuilder('differs')\n"
        "    words = flow.from_iterable(['a'], of=str)\n"
        "    words = words.map(str.lower) if 'topo_cli' in sys.modules else words.\\\n"
        "        filter(bool)\n"
        "    words.to(print)\n"
        "    return flow\n"
    )
    command = [Path(sys.executable).with_name("topo"), "run", "differs.py"]
    environment = {**os.environ, "TOPO_HOME": str(tmp_path / "home")}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode != 0
    expected = "the first difference is map at differs.py:6 in the master, filter at differs.py:7 in the worker"
    assert expected in (ran.stdout + ran.stderr).replace("\n", " ")
