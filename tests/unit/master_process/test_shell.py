"""The master's shell and its clients."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.submissions import submission
from tests.unit.master.playbook import LINES, SINK, small_plan
from topo.errors import TopoEnvironmentError
from topo.ids import Epoch, Incarnation, WorkerId
from topo.master.commands import MasterRecord, RecordError, SendTo
from topo.master.events import LaunchFailed, Started
from topo.master.links import WorkerEnd
from topo.master.membership import SlotState
from topo.master.outcome import Outcome, OutcomeKind
from topo.master_process.job import Job
from topo.master_process.replay_desk import SLICE
from topo.master_process.shell import MasterShell
from topo.storage.state_folder import StateFolder, StateFolderLost, TopologyFolder, append_lines, read_json_lines
from topo.transport.control_client import ControlClient
from topo.transport.zmq import IpcPlace, ZmqTransport
from topo.wire import control
from topo.worker.spec import WorkerSpec


class NoLauncher:
    """Starts nothing."""

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        pass

    def poll(self) -> list[WorkerEnd]:
        return []

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        pass

    def descriptors(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


def shell_of(folder: TopologyFolder) -> MasterShell:
    submitted = submission(folder, small_plan(), reference=str(folder.path / "small.py"), foreground=True)
    return MasterShell(Job(folder, submitted), NoLauncher())


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[MasterShell]:
    folder = StateFolder(tmp_path / "home").create("small")
    shell = MasterShell(
        Job(folder, submission(folder, small_plan(), reference=str(tmp_path / "small.py"), foreground=True)), NoLauncher()
    )
    yield shell
    shell.link.close()


def ask(shell: MasterShell, verb: str, **arguments: Any) -> control.Reply:
    """Ask as a client does."""
    asker = ControlClient(shell.link.client_endpoint)
    try:
        asker.ask(control.encode(control.Request(verb, arguments)))
        shell.link.wait(5.0)
        for identity, data in shell.link.from_clients():
            shell._from_client(identity, data)
        answer = asker.answer(5.0)
    finally:
        asker.close()
    assert answer is not None
    return control.decode_reply(answer)


def test_counters_whose_sum_cannot_be_sent_end_no_topology(shell: MasterShell) -> None:
    assert ask(shell, "status").ok
    # Each can be carried; the two together cannot.
    metrics = {"counters": {"bytes": 2**63}, "gauges": {}, "histograms": {}}
    figures = {"counters": {}, "levels": {}, "latencies": {}, "user": {"metrics": metrics}}
    shell.master.figures.add({LINES: figures}, 0.0)
    shell.master.figures.lost([LINES])
    shell.master.figures.add({LINES: figures, SINK: figures}, 0.0)
    reply = ask(shell, "status")
    assert not reply.ok and "OverflowError" in reply.error
    assert ask(shell, "ping").ok


def test_an_answer_that_is_too_long_is_refused_with_its_length(shell: MasterShell) -> None:
    counters = {f"{number:04}" + 1000 * "x": number for number in range(9000)}
    metrics = {"counters": counters, "gauges": {}, "histograms": {}}
    figures = {"counters": {}, "levels": {}, "latencies": {}, "user": {"metrics": metrics}}
    shell.master.figures.add({LINES: figures}, 0.0)
    reply = ask(shell, "status")
    assert not reply.ok and "and at most 16,777,216 can be sent: ask for a shorter time" in reply.error
    assert ask(shell, "ping").ok


def test_the_restart_of_a_worker_that_there_is_not_is_refused(shell: MasterShell) -> None:
    shell.loop.handle(Started())
    assert ask(shell, "restart", worker=1).ok
    reply = ask(shell, "restart", worker=99)
    assert (reply.ok, reply.error) == (False, "small has no worker 99; it has 0 to 2")


@pytest.mark.parametrize(("verb", "arguments"), [("drain", {"restarts": True}), ("activate", {}), ("deactivate", {})])
def test_requests_that_would_be_in_vain_while_the_topology_ends_are_refused(
    shell: MasterShell, verb: str, arguments: dict[str, Any]
) -> None:
    """A second rebalance beside the first would start the topology twice."""
    shell.loop.handle(Started())
    assert ask(shell, "drain", restarts=True).ok
    reply = ask(shell, verb, **arguments)
    assert not reply.ok and reply.error.startswith("small is ending, as by `topo kill` or `topo rebalance`")
    assert ask(shell, "drain").ok


def test_a_request_about_many_dead_letters_holds_up_no_other(shell: MasterShell) -> None:
    many = 20 * SLICE
    append_lines(shell._job.folder.dead_letters, [b'{"component": "lines"}'] * many)
    slow, quick = (ControlClient(shell.link.client_endpoint) for _ in range(2))

    def answer(client: ControlClient) -> tuple[int, Any]:
        """Turn until a client has its answer; return the number of turns, and the result."""
        for turns in range(1, 100):
            shell.link.wait(0.0)
            shell.turn()
            if (data := client.answer(0.5 if client is quick else 0.01)) is not None:
                return turns, control.decode_reply(data).result
        raise AssertionError("no answer")

    try:
        slow.ask(control.encode(control.Request("replay", {"numbers": [1, many]})))
        shell.link.wait(5.0)
        quick.ask(control.encode(control.Request("ping")))
        assert answer(quick)[1]["term"] == 1
        assert slow.answer(0.0) is None
        turns, found = answer(slow)
        why = "an earlier release stored it, without its packed values"
        assert found == {"asked": [], "known": {}, "refused": {"1": why, str(many): why}}
        assert turns > 5
    finally:
        slow.close()
        quick.close()


class Hosting:
    """A worker's end of the control link."""

    def __init__(self, shell: MasterShell, folder: Path) -> None:
        shell.loop.handle(Started())
        self._shell = shell
        self.worker = WorkerId(0)
        self.life = shell.master.membership.incarnations()[self.worker]
        folder.mkdir(mode=0o700)
        self._transport = ZmqTransport(IpcPlace(folder))
        self._outlet = self._transport.link("link", shell.link.worker_endpoint, f"{self.worker}:{self.life}".encode())

    def beat(self, sent_count: int) -> None:
        """Send a heartbeat with the count of messages before it."""
        beat = control.Heartbeat(self.worker, self.life, 1, Epoch(1), sent_count=sent_count)
        self._transport.send(self._outlet, control.encode(beat))
        self._shell.link.wait(5.0)
        self._shell.turn()

    def receives(self) -> control.FromMaster:
        """Return the next message of the master."""
        assert self._transport.wait(5.0)
        return control.decode_from_master(self._transport.receive("link", 1)[0])

    def close(self) -> None:
        self._transport.close()


def test_a_worker_whose_words_were_lost_on_the_way_is_replaced(shell: MasterShell, tmp_path: Path) -> None:
    hosting = Hosting(shell, tmp_path / "sockets")
    for reported in (0, 1, -1, 2):
        hosting.beat(reported)
        assert shell.master.membership.is_current(hosting.worker, hosting.life)
    hosting.beat(6)
    hosting.close()
    assert not shell.master.membership.is_current(hosting.worker, hosting.life)
    (row,) = read_json_lines(shell._job.folder.errors)
    assert row["kind"] == "WorkerLost" and "it has sent 6, and 4 have arrived" in row["message"]


def test_a_worker_is_told_how_many_messages_it_was_sent(shell: MasterShell, tmp_path: Path) -> None:
    hosting = Hosting(shell, tmp_path / "sockets")
    hosting.beat(0)
    for message in (control.Go(Epoch(1)), control.Probe(1, Epoch(1))):
        shell.loop._perform(SendTo(hosting.worker, hosting.life, message))
    shell.master.membership.slots[hosting.worker].state = SlotState.LIVE
    shell.loop._alive_at = 0.0
    shell.turn()
    assert [hosting.receives() for _ in range(3)] == [control.Go(Epoch(1)), control.Probe(1, Epoch(1)), control.Alive(2)]
    hosting.close()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[MasterShell, TopologyFolder]]:
    """A shell whose caller holds the lock."""
    folder = StateFolder(tmp_path / "home").create("small")
    with folder.lock():
        shell = MasterShell(
            Job(folder, submission(folder, small_plan(), reference=str(tmp_path / "small.py"), foreground=True)), NoLauncher()
        )
        shell.loop.handle(Started())
        shell.turn()
        yield shell, folder
        shell.link.close()


def look(shell: MasterShell) -> None:
    """Have the shell look at its files, as it does twice a second."""
    shell._look_at = 0.0
    shell._look_at_files(1.0)


@pytest.mark.parametrize("lost", ["folder", "lock", "replaced"])
def test_a_master_whose_folder_or_lock_is_gone_ends(locked: tuple[MasterShell, TopologyFolder], lost: str) -> None:
    shell, folder = locked
    look(shell)
    if lost == "folder":
        shutil.rmtree(folder.path)
    else:
        (folder.path / "lock").unlink()
    if lost == "replaced":
        folder.lock().release()
    with pytest.raises(StateFolderLost, match=r"removed or replaced while 'small' used it"):
        look(shell)


def test_a_master_whose_folder_was_replaced_writes_nothing_into_the_other(locked: tuple[MasterShell, TopologyFolder]) -> None:
    """It notices the loss twice a second; until then its record or positions would be taken for those of the other run."""
    shell, folder = locked
    shutil.rmtree(folder.path)
    StateFolder(folder.path.parents[1]).create("small")
    for file in (folder.path / "lock", folder.master, folder.positions, folder.dead_letters, folder.errors, folder.summary):
        file.write_text("the other run's")
    with pytest.raises(StateFolderLost):
        shell._recorder.persist(MasterRecord(1, Epoch(1), {}, True, 0))
    shell._recorder.store_positions({})
    assert not shell._recorder.store_dead_letters([])
    shell._recorder.record(RecordError("Odd", "text"))
    shell._recorder.write_summary({}, Outcome(OutcomeKind.KILLED, ""))
    launched = shell.loop._workers.start(WorkerId(1), Incarnation(7), term=1)
    assert isinstance(launched, LaunchFailed) and "removed or replaced" in launched.why
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) == 6 and {file.read_text() for file in files} == {"the other run's"}


def test_a_summary_that_cannot_be_written_is_recorded_with_the_outcome(locked: tuple[MasterShell, TopologyFolder]) -> None:
    shell, folder = locked
    folder.summary.mkdir()
    shell._recorder.write_summary({}, Outcome(OutcomeKind.DRAINED, "drained by the operator"))
    (row,) = folder.all_errors()
    assert row["kind"] == "SummaryNotStored" and f"cannot write {folder.summary}: Is a directory" in row["message"]
    assert "small has ended (drained by the operator)" in row["message"] and "`topo resume small`" in row["message"]


class Failing(NoLauncher):
    """Cannot make processes."""

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        raise TopoEnvironmentError("Resource temporarily unavailable")


def test_a_worker_that_could_not_be_launched_leaves_no_start_file(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "home").create("small")
    submitted = submission(folder, small_plan(transport="tcp"), reference=str(tmp_path / "small.py"), foreground=True)
    shell = MasterShell(Job(folder, submitted), Failing())
    launched = shell.loop._workers.start(WorkerId(1), Incarnation(7), term=1)
    assert isinstance(launched, LaunchFailed) and "unavailable" in launched.why
    # It has the secret key of the worker, whose public one is on the list of those who may connect.
    assert list(folder.workers.iterdir()) == []
    shell.link.close()


def test_a_folder_that_cannot_be_looked_at_for_the_moment_is_not_lost(
    locked: tuple[MasterShell, TopologyFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "stale")

    shell, _ = locked
    monkeypatch.setattr("topo.storage.state_folder.os.stat", stale)
    look(shell)


def test_removed_sockets_are_made_anew_and_recorded(locked: tuple[MasterShell, TopologyFolder]) -> None:
    shell, folder = locked
    shutil.rmtree(shell._sockets)
    look(shell)
    assert ask(shell, "ping").ok
    assert [row["kind"] for row in folder.all_errors()] == ["SocketsRemoved"]


def test_sockets_that_cannot_be_made_anew_end_the_run(locked: tuple[MasterShell, TopologyFolder]) -> None:
    shell, _ = locked
    shutil.rmtree(shell._sockets)
    shell._sockets.write_text("in the way")
    with pytest.raises(TopoEnvironmentError, match="cannot be made again"):
        look(shell)
    shell._sockets.unlink()
