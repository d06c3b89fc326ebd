"""Small files of a store, over real processes: each task fetches several at a time, and each row is published once."""

from __future__ import annotations

import pytest

from tests.integration.support import Scene, eventually, flow, kill, pid_of

pytestmark = pytest.mark.integration

STORE = """
import threading
import fsspec
from fsspec.implementations.local import LocalFileSystem

class Store(LocalFileSystem):
    protocol = "store"
    async_impl = True
    together = threading.Barrier(4)

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(str(path).removeprefix("store://"))

    def cat_file(self, path, *args, **options):
        if not (HERE / "together").exists():
            self.together.wait(20)
            (HERE / "together").touch()
        return super().cat_file(path, *args, **options)

fsspec.register_implementation("store", Store, clobber=True)
""" + flow(
    'builder.set_spout("files", FilesSpout(f"store://{HERE / \'in\'}", settle="0s"))',
    'builder.set_bolt("out", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).shuffle_grouping("files")',
)
FILES, ROWS = 64, 20


def test_several_files_are_fetched_at_a_time_and_none_is_missing_or_read_twice_after_a_loss(scene: Scene) -> None:
    folder = scene.folder / "in"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.txt").write_text("".join(f"{number}:{row}\n" for row in range(ROWS)))
    running = scene.submit(scene.file(STORE), delivery="exactly_once", checkpoint_interval="200ms", checkpoint_pause="50ms")
    status = running.wait_until(lambda status: int(status["totals"]["emitted"]) > 0)
    kill(pid_of(status, "files"))
    wanted = sorted(f"{number}:{row}" for number in range(FILES) for row in range(ROWS))
    eventually(lambda: len(scene.lines()) >= len(wanted), timeout_s=60)
    running.kill()
    running.wait()
    assert sorted(scene.lines()) == wanted
