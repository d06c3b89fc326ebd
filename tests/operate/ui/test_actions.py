"""Actions of the page as the commands that they run, which take as long as they take."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import eventually
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.ui import actions

WAITING = """
import os, time
from pathlib import Path

from topo import IterableSpout, TopologyBuilder

here = Path(__file__).parent
(here / "begun").write_text(f"{os.getsid(0)}")
while not (here / "go").exists():
    time.sleep(0.01)
print("going", flush=True)
(here / "done").touch()
builder = TopologyBuilder("flow")
builder.set_spout("numbers", IterableSpout(range(3)))
topology = builder.build()
"""


@pytest.fixture
def folder(tmp_path: Path) -> TopologyFolder:
    (tmp_path / "flow.py").write_text(WAITING)
    return StateFolder(tmp_path / "home").create("flow")


def begin(folder: TopologyFolder, tmp_path: Path) -> asyncio.Task[dict[str, Any]]:
    """Begin a command that ends when it may go."""
    arguments = ["graph", str(tmp_path / "flow.py")]
    return asyncio.create_task(actions.run(folder, tmp_path / "home", "graph", arguments))


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, condition)


@pytest.mark.integration
def test_an_action_may_take_hours(folder: TopologyFolder, tmp_path: Path) -> None:
    async def act() -> dict[str, Any]:
        action = begin(folder, tmp_path)
        await until((tmp_path / "begun").exists)
        loop = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + 86_400  # type: ignore[method-assign]
        await until((tmp_path / "begun").exists)
        (tmp_path / "go").touch()
        return await action

    answer = asyncio.run(act())
    assert answer["exit"] == 0 and "spout numbers" in answer["output"], answer
    assert b'"action": "graph"' in folder.operator.read_bytes()


@pytest.mark.integration
def test_an_action_outlives_the_page(folder: TopologyFolder, tmp_path: Path) -> None:
    """The page may be ended by Ctrl-C while a topology is rebalanced: its processes would be gone, and nothing start it again."""

    async def act() -> None:
        action = begin(folder, tmp_path)
        await until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text())
        action.cancel()

    asyncio.run(act())
    assert int((tmp_path / "begun").read_text()) != os.getsid(0), "Ctrl-C reaches the group of the terminal"
    (tmp_path / "go").touch()
    eventually((tmp_path / "done").exists)
