"""Sinks of third parties pass the contract in a folder of their own; with a planted fault they fail the test that is for it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest

# Their processes are killed a few hundred times.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs" / "connectors.md").read_text().partition("## Write a sink\n")[2].partition("\n## ")[0]
LEDGER = "\n".join(re.findall(r"^```python\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL))
"""The sink of docs/connectors.md, and its tests."""

OTHERS = '''
import asyncio
import os

from topo import AsyncBolt, Bolt
from topo.testing.contracts import AtLeastOnceSinkContract


class Upserts(TwoPhaseSink):
    """Rows with a key: writing one again changes nothing."""

    def __init__(self, path):
        self.path = path

    def open(self, context):
        self.db = sqlite3.connect(self.path)
        self.db.execute("create table if not exists ledger (n primary key)")

    def begin(self):
        self.numbers = []

    def write(self, tup):
        self.numbers.append((int(tup["n"]),))

    def pre_commit(self):
        with self.db:
            self.db.executemany("replace into ledger values (?)", self.numbers)

    def commit(self, token):
        pass

    def abort(self, token):
        pass

    def publish(self):
        self.pre_commit()

    def close(self):
        self.db.close()


class TestUpserts(ExactlyOnceSinkContract):
    publishes_by = PublishesBy.UPSERT

    def sink(self, folder):
        return Upserts(folder / "ledger.db")

    def rows(self, folder):
        return numbers(folder, "ledger")


class Log(Bolt):
    """A plain bolt that acks rows behind their flush."""

    def __init__(self, path):
        self.path = path

    def prepare(self, context, collector):
        self.collector, self.file = collector, open(self.path, "a")

    def execute(self, tup):
        if not tup.is_tick:
            self.file.write(f"{tup['n']}\\n")
            self.file.flush()
            self.collector.ack(tup)

    def cleanup(self):
        self.file.close()


class TestLog(AtLeastOnceSinkContract):
    def sink(self, folder):
        return Log(folder / "log")

    def rows(self, folder):
        path = folder / "log"
        return list(map(int, path.read_text().splitlines())) if path.exists() else []


class Sender(AsyncBolt):
    """Asynchronous calls, several at a time."""

    def __init__(self, path):
        super().__init__(capacity=3)
        self.path = path

    async def call(self, tup):
        await asyncio.to_thread(self.send, tup["n"])

    def send(self, number):
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{number}\\n".encode())
        os.close(file)


class TestSender(TestLog):
    def sink(self, folder):
        return Sender(folder / "log")

    def rows(self, folder):
        return sorted(super().rows(folder))
'''


@dataclass(frozen=True)
class Fault:
    """A fault, and the test that has to fail for it."""

    name: str
    test: str
    code: str
    base: str = "Ledger"


FAULTS = [
    Fault(
        "PublishesAtFlush",
        "test_rows_are_seen_when_their_checkpoint_is_complete_and_not_before",
        """
        def pre_commit(self):
            token = super().pre_commit()
            if token is not None:
                self.commit(token)
            return token
        """,
    ),
    Fault(
        "Forgets",
        "test_a_replacement_publishes_the_tokens_of_the_checkpoint_and_removes_the_rest",
        """
        def open(self, context):
            super().open(context)
            self.kept = {}

        def pre_commit(self):
            self.number += 1
            self.kept[self.number] = self.numbers
            return self.number if self.numbers else None

        def commit(self, token):
            with self.db:
                self.db.executemany("insert into ledger values (?)", [(n,) for n in self.kept.pop(token, ())])
        """,
    ),
    Fault(
        "PublishesTwiceAfterARestart",
        "test_a_commit_can_be_repeated_also_by_another_process_and_after_later_ones",
        """
        def commit(self, token):
            with self.db:
                self.db.execute("insert into ledger select n from staged where token = ?", [token])
        """,
    ),
    Fault(
        "CommitsInTwoSteps",
        "test_killed_before_any_step_a_sink_recovers_the_rows_of_the_checkpoint",
        """
        def commit(self, token):
            with self.db:
                self.db.execute("insert into ledger select n from staged where token = ?", [token])
            with self.db:
                self.db.execute("delete from staged where token = ?", [token])
        """,
    ),
    Fault(
        "StagesWithoutCommitting",
        "test_killed_before_any_step_a_sink_recovers_the_rows_of_the_checkpoint",
        """
        def pre_commit(self):
            rows, self.numbers = self.numbers, []
            self.number += 1
            token = f"{self.process}-{self.number}"
            self.db.executemany(
                "insert into staged values (?, ?, ?, ?)", [(self.owner, self.task, token, n) for n in rows]
            )
            return token if rows else None
        """,
    ),
    Fault(
        "PublishesAnAbortedEpoch",
        "test_a_surviving_process_returns_to_the_checkpoint_too",
        """
        def commit(self, token):
            with self.db:
                self.db.execute("insert into ledger select n from staged where owner = ?", [self.owner])
                self.db.execute("delete from staged where owner = ?", [self.owner])

        def abort(self, token):
            pass
        """,
    ),
    Fault(
        "RecoversItsOwnNumberAlone",
        "test_after_a_change_of_parallelism_each_row_is_there_once",
        """
        def open(self, context):
            super().open(context)
            self.tasks = 1_000_000
        """,
    ),
    Fault(
        "RemovesWhatOthersHaveStaged",
        "test_a_recovering_task_leaves_the_staged_rows_of_others_alone",
        """
        def recover(self, tokens):
            super().recover(tokens)
            with self.db:
                self.db.execute("delete from staged")
        """,
    ),
    Fault(
        "SwallowsErrors",
        "test_a_row_that_is_not_written_is_not_acked",
        """
        def publish(self):
            try:
                super().publish()
            except sqlite3.Error:
                self._token = None
        """,
    ),
    Fault(
        "StaysOpen",
        "test_a_closed_sink_leaves_nothing_open_and_can_be_closed_again",
        """
        def close(self):
            pass
        """,
    ),
    Fault(
        "ClosesOnce",
        "test_a_closed_sink_leaves_nothing_open_and_can_be_closed_again",
        """
        def close(self):
            super().close()
            del self.db
        """,
    ),
    Fault(
        "AcksWhatIsNotWritten",
        "test_a_killed_process_has_lost_no_acked_row",
        """
        def execute(self, tup):
            if not tup.is_tick:
                self.file.write(f"{tup['n']}\\n")
                self.collector.ack(tup)
        """,
        base="Log",
    ),
    Fault(
        "LosesARowInSilence",
        "test_a_topology_has_all_rows_whatever_crashes",
        """
        def execute(self, tup):
            if not tup.is_tick and tup["n"] == 7:
                self.collector.ack(tup)
            else:
                super().execute(tup)
        """,
        base="Log",
    ),
    Fault(
        "SendsWhatIsAcked",
        "test_a_killed_process_has_lost_no_acked_row",
        """
        async def call(self, tup):
            self.later = asyncio.ensure_future(self.send_later(tup))

        async def send_later(self, tup):
            await asyncio.sleep(1)
            await super().call(tup)
        """,
        base="Sender",
    ),
    Fault(
        "SendsInSilence",
        "test_a_row_that_is_not_written_is_not_acked",
        """
        async def call(self, tup):
            try:
                await super().call(tup)
            except OSError:
                pass
        """,
        base="Sender",
    ),
    Fault(
        "SendsAllOfItsLife",
        "test_a_row_that_was_acked_is_not_written_again_after_a_crash",
        """
        async def open(self, context):
            if self.path.exists():
                for number in self.path.read_text().split():
                    self.send(number)
        """,
        base="Sender",
    ),
    Fault(
        "LeavesASessionOpen",
        "test_a_closed_sink_leaves_nothing_open_and_can_be_closed_again",
        """
        async def open(self, context):
            self.session = open(os.devnull)
        """,
        base="Sender",
    ),
]


def ended(folder: Path, code: str, *options: str) -> tuple[str, str]:
    """Run a third party's test module, where nothing else finds it; returns the summary line and the whole output."""
    (folder / "test_sinks.py").write_text(code)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-rf", "--tb=short", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.rstrip().rpartition("\n")[2], done.stdout + done.stderr


def test_the_documented_sink_and_others_of_third_parties_keep_the_contract(tmp_path: Path) -> None:
    summary, output = ended(tmp_path, LEDGER + OTHERS, "--import-mode=importlib")
    assert re.match(r"\d+ passed in", summary), output
    assert int(summary.split()[0]) > 90


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of pytest for the tests of all planted faults."""
    code, tests = LEDGER + OTHERS, []
    for fault in FAULTS:
        file = "ledger.db" if fault.base == "Ledger" else "log"
        code += f"\n\nclass {fault.name}({fault.base}):{indent(dedent(fault.code), '    ')}"
        code += f"\n\nclass Test{fault.name}(Test{fault.base}):\n    def sink(self, folder):\n"
        code += f"        return {fault.name}(folder / {file!r})\n"
        tests.append(f"test_sinks.py::Test{fault.name}::{fault.test}")
    return ended(tmp_path_factory.mktemp("faults"), code, *tests)[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_fails_the_test_that_is_for_it(failures: str, fault: Fault) -> None:
    assert re.search(rf"^FAILED test_sinks.py::Test{fault.name}::{fault.test}\b.*$", failures, re.MULTILINE), failures
