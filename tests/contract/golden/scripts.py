"""Fixed scripts of events for one task of each kind.

A script is a function `(rig) -> None`; `SCRIPTS` names each with the topology, the component under test and who sends to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.contract.golden.components import (
    MODES,
    Alarm,
    Basic,
    Batches,
    Lookup,
    Manual,
    Note,
    Replayed,
    Sink,
    Source,
    Stateful,
    bolt,
    session,
    spout,
    tumbling,
)
from tests.contract.golden.rig import Rig
from topo import Topology
from topo.ids import SUSPECT_BIT


class Script(NamedTuple):
    """How a task is made, and what happens to it."""

    build: Callable[[Note], Topology]
    component: str
    senders: Sequence[str]
    play: Callable[[Rig], None]


def checkpointed(rig: Rig) -> bool:
    return rig.plan.config.delivery == "exactly_once"


def tracked(rig: Rig) -> bool:
    return rig.plan.config.delivery == "at_least_once"


def play_spout(rig: Rig) -> None:
    rig.open()
    rig.confirm_all()
    rig.wait(2.0)
    if tracked(rig):
        rig.ids("ACKED", ["r2"])
        rig.ids("FAILED", ["r1", "r3"])
        rig.wait(7.0)
        rig.ids("TOUCHED", ["r4"])
        rig.wait(2.0)
        rig.confirm_all()
        rig.wait(15.0)
    rig.deactivate()
    rig.activate()
    if checkpointed(rig):
        rig.begin_checkpoint(1)
        rig.store()
        rig.confirm_all()
        rig.ids("ACKED", ["r1"])
        rig.complete(1)
        rig.settle()
    rig.open(2, 1 if checkpointed(rig) else 0)
    rig.confirm_all()
    rig.restart(3, 1 if checkpointed(rig) else 0)
    rig.confirm_all()
    rig.probe()
    rig.close()


def bolt_script(*batches: Sequence[Any], keyed: bool = False, last: int = 5) -> Callable[[Rig], None]:
    """Rows with event times; a barrier, which comes on one edge first; watermarks; a recovery; a new process; the end.

    Args:
        batches: values of the rows before the barrier, by frame.
        keyed: whether rows have a key.
        last: value of the row that comes before the second edge's barrier.
    """

    def rows(rig: Rig, values: Sequence[Any], start: int, index: int = 0, run: bool = True) -> None:
        stamps = [start + 10 * number for number in range(len(values))]
        rig.rows(*((f"k{value % 2}", value) if keyed else value for value in values), index=index, stamps=stamps, run=run)

    def ends(rig: Rig) -> None:
        while rig.coroutines.waiting:
            rig.call_ends(len(rig.coroutines.waiting) - 1)

    def play(rig: Rig) -> None:
        rig.open()
        ends(rig)
        for number, values in enumerate(batches):
            rows(rig, values, 100 * number, number % 2)
            ends(rig)
        rig.wait(1.5)
        rig.watermark(150)
        rig.watermark(180, index=1)
        rig.confirm_all()
        if checkpointed(rig):
            rig.barrier(1)
            rows(rig, [4], 200)
            rows(rig, [last], 200, 1)
            rig.barrier(1, index=1)
            ends(rig)
            rig.store()
            rig.complete(1)
            rig.confirm_all()
        rig.watermark(400)
        rig.watermark(400, index=1)
        if not checkpointed(rig):
            rig.wait(12.0)
        rows(rig, [6, 8], 50)
        rows(rig, [2, 4], 420)
        rig.open(2, 1 if checkpointed(rig) else 0)
        ends(rig)
        rows(rig, [2, 6], 500)
        ends(rig)
        rig.restart(3, 1 if checkpointed(rig) else 0)
        ends(rig)
        rows(rig, [2], 600)
        rig.signal("IDLE")
        rig.signal("END", index=1)
        rig.signal("ACTIVE")
        rows(rig, [4], 610)
        ends(rig)
        rig.signal("END")
        rig.confirm_all()
        if checkpointed(rig):
            rig.barrier(2)
            rig.barrier(2, index=1)
            rig.store()
            rig.complete(2)
            rig.letters_stored()
        rig.probe()
        rig.close()
        ends(rig)

    return play


def play_tracked_window(rig: Rig) -> None:
    """Firings of a tracked window are messages: their verdicts decide on the inputs."""
    rig.open()
    rig.rows(("k", 1), ("k", 2), ("l", 6), stamps=[10, 20, 30])
    rig.rows(("l", 7), ("k", 5), index=1, stamps=[40, 110])
    rig.watermark(99)
    rig.watermark(120, index=1)
    rig.confirm_all()
    rig.ids("ACKED", rig.drawn[-1:])
    rig.rows(("k", 9), stamps=[15])
    rig.watermark(300)
    rig.watermark(300, index=1)
    rig.confirm_all()
    rig.ids("FAILED", rig.drawn[-1:])
    rig.wait(12.0)
    rig.open(2)
    rig.rows(("k", 3), stamps=[410])
    rig.signal("END")
    rig.signal("END", index=1)
    rig.confirm_all()
    rig.ids("ACKED", rig.drawn[-1:])
    rig.probe()
    rig.close()


def play_suspects(rig: Rig) -> None:
    """A message was in flight when a process died: what may have killed it runs alone."""
    rig.open()
    if rig.plan.task(rig.id).component == "a":
        rig.confirm_all()
        rig.open(2, suspects=["r2"], alone=True)
        rig.confirm_all()
        rig.ids("ACKED", rig.drawn[-1:])
        rig.confirm_all()
        rig.open(3)
    else:
        rig.rows(2, 4, 6, stamps=[0, 10, 20])
        rig.open(2, suspects=["r2"], alone=True)
        rig.solo.mark = SUSPECT_BIT
        rig.rows(2, 4, 6, 8, stamps=[0, 10, 20, 30])
        rig.solo.mark = 0
        rig.open(3)
        rig.rows(2, 4, 6, 8, stamps=[0, 10, 20, 30])
    rig.confirm_all()
    rig.close()


def play_acker(rig: Rig) -> None:
    rig.open()
    rig.ids("INIT", [11, 12, 13, 14], [5, 6, 7, 8], sender="a")
    rig.ids("ACK", [11, 12], [5, 9], sender="b")
    rig.ids("ACK", [12], [6 ^ 9], sender="b")
    rig.ids("FAIL", [13], sender="b")
    rig.ids("RESET", [14], sender="b")
    rig.ids("ACK", [15], [3], sender="b")
    rig.ids("INIT", [15, 16], [3, 4], sender="a")
    rig.ids("FAIL", [17], sender="b")
    rig.ids("INIT", [17], [1], sender="a")
    rig.confirm_all()
    rig.wait(40.0)
    rig.ids("ACK", [16], [4], sender="b")
    rig.open(2)
    rig.ids("ACK", [14], [8], sender="b")
    rig.ids("INIT", [18], [2], sender="a")
    rig.ids("ACK", [18], [2], sender="b")
    rig.confirm_all()
    rig.probe()
    rig.close()


BATCHES = ([2, 4, 1], [6, 7, 13, 8])
BOLTS: dict[str, tuple[Callable[[Note], Any], bool, dict[str, Any]]] = {
    "basic_bolt": (Basic, False, {"tick_interval": "1s"}),
    "bolt": (Manual, False, {"tick_interval": "1s"}),
    "stateful_bolt": (Stateful, False, {}),
    "two_phase_sink": (Sink, False, {}),
    "process_bolt": (Alarm, True, {}),
    "batch_bolt": (Batches, False, {}),
    "async_bolt": (Lookup, True, {}),
    "window": (tumbling, True, {}),
    "session_window": (session, True, {}),
}

SCRIPTS: dict[str, Script] = {
    **{f"spout_{mode}": Script(spout(Source, mode), "a", ["__acker"], play_spout) for mode in MODES},
    **{f"retrying_spout_{mode}": Script(spout(Replayed, mode), "a", ["__acker"], play_spout) for mode in MODES},
    **{
        f"{name}_{mode}": Script(bolt(make, mode, **settings), "b", ["a"], bolt_script(*BATCHES, keyed=keyed))
        for name, (make, keyed, settings) in BOLTS.items()
        for mode in MODES
    },
    "held_inputs": Script(bolt(Manual, "checkpointed"), "b", ["a"], bolt_script(*BATCHES, last=1)),
    "retrying_spout_suspects": Script(spout(Replayed, "tracked"), "a", ["__acker"], play_suspects),
    "basic_bolt_suspects": Script(bolt(Basic, "tracked"), "b", ["a"], play_suspects),
    "bolt_suspects": Script(bolt(Manual, "tracked"), "b", ["a"], play_suspects),
    "batch_bolt_suspects": Script(bolt(Batches, "tracked"), "b", ["a"], play_suspects),
    "window_firings": Script(bolt(tumbling, "tracked"), "b", ["a", "__acker"], play_tracked_window),
    "acker": Script(bolt(Basic, "tracked"), "", ["a", "b"], play_acker),
    "acker_checkpointed": Script(bolt(Basic, "checkpointed"), "", ["a", "b"], play_acker),
}
