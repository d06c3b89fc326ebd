"""The thread of actions beside a task."""

from __future__ import annotations

import threading

from topo.worker.helper_thread import HelperThread


def test_an_action_that_exits_does_not_end_the_thread() -> None:
    helper, is_run = HelperThread(), threading.Event()

    def leave() -> None:
        raise SystemExit("enough")

    helper.run(leave)
    helper.run(is_run.set)

    assert is_run.wait(20)
