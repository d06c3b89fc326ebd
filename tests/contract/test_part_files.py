"""The promises of part files to workers, wherever they are; and the requests that the master's end refuses."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest
import zmq

from topo.errors import FrameError, TopoEnvironmentError
from topo.master_process.control_link import ControlLink
from topo.master_process.part_server import PartServer
from topo.storage.checkpoint_store import CheckpointStore, open_store
from topo.storage.files import LocalFiles, PartFiles, open_files
from topo.storage.part_service import LONGEST_MESSAGE, LONGEST_PIECE, Get, PartService, Put, Refused, decode_answer, encode
from topo.transport.part_client import MasterFiles
from topo.transport.zmq import new_key_pair
from topo.worker.process import files_for
from topo.worker.spec import WorkerSpec

PART = "0000000007/task-00003.part"
SILENCE_S = 0.5
"""How long those wait who get no answer."""


@dataclass
class Master:
    """A master's end, with one worker's key on the list."""

    folder: Path
    most_writes: int = 4

    def __post_init__(self) -> None:
        self.keys, self.worker = new_key_pair(), new_key_pair()
        self._sockets = Path(tempfile.mkdtemp(prefix="tp-"))
        self.link = ControlLink(self._sockets, self.keys)
        self.link.allow_list.replace([self.worker.public])
        LocalFiles(self.folder).make_root()
        self.desk = PartService([str(self.folder)], self.most_writes)
        self.server = PartServer(self.link, "127.0.0.1", self.desk)

    def files(self, folder: Path | None = None, answer_s: float = 10.0) -> MasterFiles:
        """The folder as the worker sees it."""
        return MasterFiles(str(folder or self.folder), self.server.endpoint, self.keys.public, self.worker, answer_s)

    def close(self) -> None:
        """Close everything; a second time is fine."""
        if self._sockets.exists():
            self.server.close()
            self.link.close()
            shutil.rmtree(self._sockets)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    made = Master(tmp_path / "checkpoints")
    yield made
    made.close()


@pytest.fixture(params=["local", "remote", "master"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PartFiles]:
    if request.param == "local":
        yield LocalFiles(tmp_path)
    elif request.param == "remote":
        yield open_files(f"memory://{tmp_path.name}/checkpoints")
        fsspec.filesystem("memory").store.clear()
    else:
        yield request.getfixturevalue("master").files()


# -- everywhere --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [b"", b"one"],
        [b"head", bytes(3 * LONGEST_PIECE + 1), b"tail"],
        [bytes([number]) * (LONGEST_PIECE // 3) for number in range(7)],
        [b"x" * LONGEST_PIECE, b"y" * LONGEST_PIECE],
    ],
    ids=["empty", "small", "one large chunk", "uneven chunks", "whole pieces"],
)
def test_a_part_is_read_whole_and_in_ranges(files: PartFiles, chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    files.write(PART, chunks)
    assert files.read(PART) == whole
    for start, length in ((0, 0), (0, 2), (1, LONGEST_PIECE), (3, len(whole)), (len(whole), 5), (0, len(whole))):
        assert files.read(PART, start, length) == whole[start : start + length]


def test_a_part_that_is_not_there_is_said_to_be_missing(files: PartFiles) -> None:
    files.write(PART, [b"here"])
    with pytest.raises(FileNotFoundError):
        files.read("0000000007/task-00004.part", 0, 10)
    with pytest.raises(FileNotFoundError):
        files.read("0000000008/task-00003.part")


def test_a_part_whose_making_fails_is_not_there(files: PartFiles) -> None:
    def chunks() -> Iterator[bytes]:
        yield bytes(LONGEST_PIECE + 1)
        raise ValueError("no more")

    with pytest.raises((ValueError, TopoEnvironmentError), match="no more"):
        files.write(PART, chunks())
    with pytest.raises(FileNotFoundError):
        files.read(PART)


def test_many_threads_write_and_read_at_the_same_time(tmp_path: Path) -> None:
    master = Master(tmp_path, most_writes=8)
    files, names = master.files(), [f"0000000001/task-{task:05d}.part" for task in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: files.write(name, [name.encode()] * 10_000), names))
        assert list(pool.map(files.read, names)) == [name.encode() * 10_000 for name in names]
    master.close()


# -- the master's end --------------------------------------------------------------------------------------------------------


def test_the_master_finds_the_parts_of_a_worker_in_its_own_store(master: Master) -> None:
    master.files().write(PART, [b"a", b"b"])
    assert (master.folder / PART).read_bytes() == b"ab"
    assert open_store(str(master.folder), "words").highest() == 7
    assert (master.folder / PART).stat().st_mode & 0o077 == 0


def test_a_part_that_is_there_is_never_replaced(master: Master) -> None:
    master.files().write(PART, [b"what a manifest names"])
    with pytest.raises(TopoEnvironmentError, match=r"task-00003\.part exists already"):
        master.files().write(PART, [b"a zombie's part"])
    assert master.files().read(PART) == b"what a manifest names"
    assert [path.name for path in (master.folder / PART).parent.iterdir()] == ["task-00003.part"]


def test_of_two_that_write_the_same_part_at_once_one_is_refused(master: Master) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield bytes(LONGEST_PIECE)
        yield b"slow"
        begun.set()
        go_on.wait(10)

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(master.files().write, PART, slowly())
        assert begun.wait(10)
        master.files().write(PART, [b"quick"])
        go_on.set()
        with pytest.raises(TopoEnvironmentError, match="exists already"):
            slow.result(10)
    assert master.files().read(PART) == b"quick"


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "0000000007/../../task-00003.part",
        "/0000000007/task-00003.part",
        "0000000007/manifest.json",
        "0000000007/task-00003.part\n",
        "0000000007/task-00003.part/",
        "\uff17000000000/task-00003.part",
        "",
    ],
)
def test_a_name_that_is_no_part_is_neither_written_nor_read(master: Master, tmp_path: Path, name: str) -> None:
    for attempt in (lambda: master.files().write(name, [b"bad"]), lambda: master.files().read(name)):
        with pytest.raises(TopoEnvironmentError, match="is no part that the master has"):
            attempt()
    assert list(tmp_path.rglob("*")) == [master.folder]


def test_a_folder_that_the_master_does_not_serve_is_refused(master: Master, tmp_path: Path) -> None:
    LocalFiles(tmp_path / "other").write(PART, [b"private"])
    with pytest.raises(TopoEnvironmentError, match="is no part that the master has"):
        master.files(tmp_path / "other").read(PART)


def test_a_stranger_and_a_worker_whose_key_was_taken_back_get_no_answer(master: Master, tmp_path: Path) -> None:
    stranger = MasterFiles(str(master.folder), master.server.endpoint, master.keys.public, new_key_pair(), SILENCE_S)
    with pytest.raises(TopoEnvironmentError, match=r"has not answered for 0\.5 s about .*task-00003"):
        stranger.write(PART, [b"strange"])
    master.files().write(PART, [b"here"])
    master.link.allow_list.replace([])
    with pytest.raises(TopoEnvironmentError, match="has not answered"):
        master.files(answer_s=SILENCE_S).read(PART)
    assert master.link.allow_list.denied >= 2
    assert master.files().url == str(master.folder)


def test_a_master_that_is_gone_is_an_environment_fault(master: Master) -> None:
    master.close()
    with pytest.raises(TopoEnvironmentError, match="has not answered"):
        master.files(answer_s=SILENCE_S).write(PART, [b"late"])


def test_a_message_that_is_too_long_is_dropped_with_its_connection_alone(master: Master) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.curve_serverkey = master.keys.public.encode()
    socket.curve_publickey, socket.curve_secretkey = master.worker.public.encode(), master.worker.secret.encode()
    socket.connect(master.server.endpoint)
    socket.send(bytes(LONGEST_MESSAGE + 1))
    assert not socket.poll(int(SILENCE_S * 1000))
    socket.send(b"\xc1 no message")
    assert socket.poll(10_000)
    assert isinstance(decode_answer(socket.recv()), Refused)
    context.destroy(linger=0)
    master.files().write(PART, [b"served"])
    assert master.files().read(PART) == b"served"


def test_a_disk_that_fails_is_said_with_the_part(master: Master) -> None:
    master.folder.rmdir()
    master.folder.write_bytes(b"a file where the folder should be")
    with pytest.raises(TopoEnvironmentError, match=r"the master: .*checkpoints"):
        master.files().write(PART, [b"x"])


# -- the desk, without sockets -----------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path) -> PartService:
    return PartService([str(tmp_path)], 2)


def put(tmp_path: Path, task: int = 3, start: int = 0, data: bytes = b"abc", *, is_last: bool = False) -> bytes:
    return encode(Put(str(tmp_path), f"0000000007/task-{task:05d}.part", start, data, is_last))


def refusal(answer: object) -> str:
    assert isinstance(answer, Refused)
    return answer.why


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.rglob("*") if path.is_file())


def test_a_worker_that_dies_within_a_write_leaves_nothing_after_a_while(desk: PartService, tmp_path: Path) -> None:
    desk.answer(b"torn", put(tmp_path), 0.0)
    desk.answer(b"torn", put(tmp_path, start=3), 20.0)
    desk.sweep(45.0)
    assert len(left(tmp_path)) == 1
    desk.sweep(51.0)
    assert left(tmp_path) == []
    assert "do not follow 0" in refusal(desk.answer(b"torn", put(tmp_path, start=6, is_last=True), 52.0))


def test_pieces_that_do_not_follow_each_other_are_refused_and_the_part_dropped(desk: PartService, tmp_path: Path) -> None:
    for wrong in (put(tmp_path, start=2), put(tmp_path, start=0), put(tmp_path, task=4, start=3)):
        desk.answer(b"a", put(tmp_path), 0.0)
        assert "do not follow 3" in refusal(desk.answer(b"a", wrong, 0.0))
        assert left(tmp_path) == []


def test_a_piece_that_is_too_long_is_refused(desk: PartService, tmp_path: Path) -> None:
    assert "do not follow" in refusal(desk.answer(b"a", put(tmp_path, data=bytes(LONGEST_PIECE + 1)), 0.0))
    assert left(tmp_path) == []


def test_more_writes_than_there_may_be_are_refused_until_one_is_done(desk: PartService, tmp_path: Path) -> None:
    desk.answer(b"a", put(tmp_path, task=1), 0.0)
    desk.answer(b"b", put(tmp_path, task=2), 0.0)
    assert "2 parts are being written already" in refusal(desk.answer(b"c", put(tmp_path, task=3), 0.0))
    desk.answer(b"a", put(tmp_path, task=1, start=3, is_last=True), 0.0)
    assert not isinstance(desk.answer(b"c", put(tmp_path, task=3, is_last=True), 0.0), Refused)
    desk.close()
    assert left(tmp_path) == ["task-00001.part", "task-00003.part"]


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (0, -1), (0, LONGEST_PIECE + 1), (2**63, 1)])
def test_a_range_that_cannot_be_is_refused(desk: PartService, tmp_path: Path, start: int, length: int) -> None:
    desk.answer(b"a", put(tmp_path, is_last=True), 0.0)
    assert refusal(desk.answer(b"a", encode(Get(str(tmp_path), "0000000007/task-00003.part", start, length)), 0.0))


def test_bytes_that_are_no_answer_are_a_frame_error() -> None:
    with pytest.raises(FrameError, match="not a message about a part"):
        decode_answer(b"\x93\x01\x02\x03")


# -- which way a worker goes -------------------------------------------------------------------------------------------------


def test_a_worker_asks_the_master_for_the_folders_that_it_serves_alone(master: Master) -> None:
    spec = WorkerSpec(
        topology="words",
        worker=0,
        incarnation=1,
        term=1,
        reference="words.py",
        digest="",
        master_endpoint="",
        master_key=master.keys.public,
        public_key=master.worker.public,
        secret_key=master.worker.secret,
        served=[str(master.folder)],
        parts_endpoint=master.server.endpoint,
    )
    files_for(spec, str(master.folder)).write(PART, [b"through the master"])
    assert isinstance(files_for(spec, str(master.folder)), MasterFiles)
    assert isinstance(files_for(spec, "/elsewhere"), LocalFiles)
    assert CheckpointStore(LocalFiles(master.folder), "words").highest() == 7
