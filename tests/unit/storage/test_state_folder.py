from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full_disk import full_disk
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError, UserError
from topo.launch.savepoints import place_of
from topo.storage.files import open_files
from topo.storage.socket_folder import make_socket_folder, remove_socket_folder
from topo.storage.state_folder import (
    StateFolder,
    StateFolderLost,
    TopologyIsRunning,
    TopologyLock,
    append_lines,
    home_folder,
    read_json_lines,
    rotate,
    write_atomically,
)
from topo.user_code.copy import find_file, parse_reference


def test_the_home_is_topo_home_or_the_xdg_state_folder(tmp_path: Path) -> None:
    assert home_folder({"TOPO_HOME": str(tmp_path)}) == tmp_path
    assert home_folder({"XDG_STATE_HOME": "/state"}) == Path("/state/topo")
    assert home_folder({}) == Path.home() / ".local/state/topo"
    # The specification of XDG has relative paths ignored: each working folder would have its own topologies.
    assert home_folder({"XDG_STATE_HOME": "state"}) == Path.home() / ".local/state/topo"


def test_a_user_without_a_name_or_home_has_to_give_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that runs as any number."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(UserError, match="user 54321 has no home folder; set TOPO_HOME to a folder for the state of topologies"):
        home_folder({})
    assert home_folder({"XDG_STATE_HOME": "/state"}) == Path("/state/topo")


def test_the_home_of_a_user_that_there_is_not_is_a_name_like_any_other(tmp_path: Path) -> None:
    assert home_folder({"TOPO_HOME": "~no-such-user/topo"}) == Path("~no-such-user/topo").absolute()
    assert open_files("~no-such-user/save").url == str(Path("~no-such-user/save").absolute())
    folder = StateFolder(tmp_path).create("counts")
    assert place_of(folder, "~no-such-user/save") == str(Path("~no-such-user/save").absolute())
    with pytest.raises(NotFoundError, match=r"there is no file ~no-such-user/counts\.py"):
        find_file(parse_reference("~no-such-user/counts.py"))


def test_everything_that_is_made_is_private(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "home").create("words")
    write_atomically(folder.topology, b"{}")
    append_lines(folder.errors, [b"{}"])
    folder.lock().release()
    for path in (tmp_path / "home").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_home_that_others_can_look_into_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topologies").mkdir()
    (tmp_path / "topologies").chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        StateFolder(tmp_path)


def test_a_home_of_another_user_is_refused_and_chmod_not_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StateFolder(tmp_path)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(
        ConfigError, match=f"belongs to the user of id {own}, .* runs as {own + 1}: become that user, or set TOPO_HOME"
    ):
        StateFolder(tmp_path)


def test_a_home_that_cannot_be_made_is_the_environments_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TopoEnvironmentError, match="TOPO_HOME"):
        StateFolder(tmp_path / "file" / "home")


@pytest.mark.parametrize("name", ["", "Words", "a_b", "../evil", "a" * 64, "a/b", "words\n", "."])
def test_names_are_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed; use 1 to 63 of a-z, 0-9"):
        StateFolder(tmp_path).create(name)
    with pytest.raises(NotFoundError):
        StateFolder(tmp_path).find(name)


def test_an_unknown_name_brings_near_misses(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.create("word-count")
    state.create("top-words")
    assert state.names() == ["top-words", "word-count"]
    with pytest.raises(NotFoundError, match="Did you mean 'word-count'") as caught:
        state.find("wordcount")
    assert caught.value.suggestions[0] == "word-count"
    state.find("word-count").remove()
    assert state.names() == ["top-words"]


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "master.json"
    write_atomically(path, b"old")
    with full_disk(4096), pytest.raises(TopoEnvironmentError, match="the file is unchanged"):
        write_atomically(path, bytes(10_000))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["master.json"]


def test_a_full_disk_appends_all_lines_or_none(tmp_path: Path) -> None:
    path = tmp_path / "dead_letters.jsonl"
    append_lines(path, [b'{"n":1}'])
    with full_disk(4096), pytest.raises(TopoEnvironmentError, match="cannot append"):
        append_lines(path, [b'{"n":2}', b'{"x":"' + b"x" * 5000 + b'"}'])
    append_lines(path, [b'{"n":3}'])
    assert read_json_lines(path) == [{"n": 1}, {"n": 3}]


def test_a_file_is_durable_with_the_first_lines_that_are_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, int]] = []
    path = tmp_path / "dead_letters.jsonl"
    monkeypatch.setattr("topo.storage.state_folder.sync_folder", lambda folder: synced.append((folder, path.stat().st_size)))
    append_lines(path, [b'{"n":1}'])
    append_lines(path, [b'{"n":2}'])
    assert synced == [(tmp_path, 8)]


def test_a_file_is_on_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps = tmp_path / "master.json", []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append(("synced", synced == tmp_path, path.exists(), synced.stat().st_size if synced.is_file() else 0))
        sync(descriptor)

    def noted_replace(source: Path, target: Path) -> None:
        steps.append(("named", target == path))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomically(path, b"record")
    assert steps == [("synced", False, False, 6), ("named", True), ("synced", True, True, 0)]


def test_a_torn_line_spoils_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "errors.jsonl"
    assert read_json_lines(path) == []
    path.write_bytes(b'{"n":1}\n{"n":')
    append_lines(path, [json.dumps({"n": 2}).encode()])
    assert read_json_lines(path) == [{"n": 1}, {"n": 2}]


def test_errors_are_rotated_one_older_file_is_kept_and_both_are_read_in_order(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    row = {"at_ms": 1, "kind": "E", "message": "", "component": "", "task": None, "worker": None, "file": "", "count": 1}
    for number in range(50):
        append_lines(folder.errors, [json.dumps({**row, "line": number, "traceback": ""}).encode()])
        rotate(folder.errors, 1500)
    numbers = [row["line"] for row in folder.all_errors()]
    assert numbers == list(range(numbers[0], 50))
    assert 10 <= len(numbers) <= 20
    assert folder.errors.stat().st_size < 1500 and folder.older_errors.stat().st_size < 1700


def test_there_is_one_master_and_the_second_is_told_which(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    assert not folder.is_running()
    with folder.lock():
        assert folder.is_running()
        with pytest.raises(TopologyIsRunning, match=f"process {os.getpid()}"):
            folder.lock()
    assert not folder.is_running()
    folder.lock().release()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    program = (
        "import sys, os\nfrom pathlib import Path\nfrom topo.storage.state_folder import TopologyFolder\n"
        "lock = TopologyFolder(Path(sys.argv[1])).lock()\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        assert folder.is_running()
        child.kill()
        child.wait()
    assert not folder.is_running()


def test_a_socket_folder_is_private_short_and_goes_away(tmp_path: Path) -> None:
    folder = make_socket_folder({"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": "/nowhere"})
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "socket").touch()
    remove_socket_folder(folder)
    remove_socket_folder(folder)
    assert list(tmp_path.iterdir()) == []
    elsewhere = make_socket_folder({"TMPDIR": "/nowhere"})
    assert len(str(elsewhere)) < 60
    remove_socket_folder(elsewhere)


def test_a_socket_folder_below_a_relative_tmpdir_has_a_path_for_clients_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 makes a relative path of it, later ones an absolute one."""
    monkeypatch.chdir(tmp_path)
    assert make_socket_folder({"TMPDIR": "."}).parent == tmp_path


def test_sockets_without_a_place_that_can_be_written_to_are_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TopoEnvironmentError, match=r"cannot make a folder for sockets: .*; set TMPDIR to a folder of your own"):
        make_socket_folder({"TMPDIR": str(tmp_path / "file")})


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_lock_of_a_folder_that_was_removed_meanwhile_is_refused(tmp_path: Path, is_replaced: bool) -> None:
    """The lock of the removed folder excludes no process from the folder that takes its place."""
    state = StateFolder(tmp_path)
    folder = state.create("counts")
    first = folder.lock()

    def removed_meanwhile(_seconds: float) -> None:
        folder.remove()
        first.release()
        if is_replaced:
            state.create("counts").lock().release()

    with pytest.raises(StateFolderLost, match="removed or replaced while 'counts' used it"):
        TopologyLock(folder, removed_meanwhile)
    assert os.listdir(tmp_path / "topologies") == ["counts"] * is_replaced


def test_a_folder_that_is_gone_before_it_is_locked_is_refused(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("counts")
    folder.remove()
    with pytest.raises(StateFolderLost, match="counts was removed; try again"):
        folder.lock()
    folder.remove()


def test_a_lock_that_cannot_be_opened_is_the_environments_fault(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("counts")
    # An error as that of a file system that has become read-only.
    (folder.path / "lock").mkdir()
    with pytest.raises(TopoEnvironmentError, match=r"cannot lock .*counts: Is a directory"):
        folder.lock()


def test_a_home_that_was_removed_is_the_environments_fault(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "home")
    shutil.rmtree(tmp_path / "home")
    with pytest.raises(TopoEnvironmentError, match=r"cannot list .*topologies: No such file"):
        state.find("counts")


def test_an_error_below_a_removed_folder_is_explained_and_other_errors_are_not(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    folder = state.create("counts")
    with pytest.raises(FileNotFoundError), folder.lock():
        folder.topology.read_bytes()
    with pytest.raises(StateFolderLost), folder.lock():
        folder.remove()
        state.create("counts")
        folder.topology.read_bytes()
    with pytest.raises(KeyError), folder.lock():
        folder.remove()
        raise KeyError("counts")


def test_a_folder_that_topo_did_not_make_for_sockets_is_not_removed(tmp_path: Path) -> None:
    (mine := tmp_path / "mine").mkdir()
    remove_socket_folder(mine)
    assert mine.is_dir()
    made = make_socket_folder({"TMPDIR": str(tmp_path)})
    remove_socket_folder(made)
    assert not made.exists()


def test_a_removal_that_was_not_finished_hinders_no_other_and_is_finished_by_the_next_topology(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    folder = state.create("counts")
    # What a process with the same number has left: under the same name the folder could not be moved out of the way.
    leftover = folder.path.with_name(f".counts.{os.getpid()}.removed")
    (leftover / "code").mkdir(parents=True)
    folder.remove()
    assert state.names() == []
    state.create("words")
    assert os.listdir(tmp_path / "topologies") == ["words"]
