"""Takes requests to emit dead letters again: judges them by the files, notes them on disk, and gives them to the master.

There may be hundreds of thousands of dead letters, and the master has one thread: work is done in slices, between which its loop
turns. One request at a time, or a dead letter could be given twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from topo.dead_letters.records import letter_to_replay
from topo.dead_letters.replays import FAILED, UNDER_WAY, latest_replays, times_asked
from topo.errors import UserError
from topo.master.events import MasterEvent, ReplayAsked
from topo.master_process.recorder import replay_rows
from topo.plan.physical import PhysicalPlan
from topo.storage.state_folder import TopologyFolder, append_lines, json_lines
from topo.storage.submitted import SubmittedTopology
from topo.wire.control import LetterToReplay

SLICE = 500
"""Rows of a file that are read before the loop turns again."""


class ReplayDesk:
    """Replays of one topology's dead letters.

    Args:
        folder: of the topology.
        append: appends rows of `replay_rows` to its file of replays, durably. Raises TopoEnvironmentError when it cannot.
        handle: gives an event to the master.
    """

    def __init__(
        self,
        folder: TopologyFolder,
        plan: PhysicalPlan,
        append: Callable[[Iterable[bytes]], None],
        handle: Callable[[MasterEvent], None],
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._append = append
        self._handle = handle

    def resume(self, refuse: Callable[[dict[int, str]], None]) -> Generator[None, None, None]:
        """Continue with the dead letters that were under way when the last master ended; `refuse` stores why others fail."""
        latest, times = yield from self._replays()
        waiting = {number for number, row in latest.items() if row["state"] == UNDER_WAY}
        if waiting:
            dead_letters, refused = yield from self._judge(waiting, times)
            if refused:
                # Under way for ever, they could not be asked for again.
                refuse(refused)
            self._give(dead_letters)

    def answer(self, numbers: Iterable[int], dry_run: bool = False) -> Generator[None, None, dict[str, Any]]:
        """Have dead letters emitted again, by the numbers of their rows.

        Returns:
            `asked`: the numbers that are emitted; `known`: the states of those that are under way or done; `refused`: reasons.
            The last two by number, as text.

        Raises:
            UserError: the topology takes checkpoints.
        """
        if self._plan.config.delivery == "exactly_once":
            raise UserError(
                f"{self._plan.name} runs with delivery=exactly_once, and its dead letters are not replayed: a message from "
                "beside the sources is in no checkpoint, so a recovery would lose it or count it twice; feed the values in "
                "through a source"
            )
        wanted = set(numbers)
        latest, times = yield from self._replays()
        known = {number: str(latest[number]["state"]) for number in wanted if number in latest}
        known = {number: state for number, state in known.items() if state != FAILED}
        times.update(wanted)
        dead_letters, refused = yield from self._judge(wanted - known.keys(), times)
        asked = sorted(dead_letter.number for ones in dead_letters.values() for dead_letter in ones)
        if asked and not dry_run:
            rows = list[bytes]()
            for begin in range(0, len(asked), SLICE):
                rows += replay_rows((number, UNDER_WAY, "") for number in asked[begin : begin + SLICE])
                yield
            self._append(rows)
            self._give(dead_letters)
        return {"asked": asked, "known": _by_text(known), "refused": _by_text(refused)}

    def _give(self, dead_letters: dict[str, list[LetterToReplay]]) -> None:
        for component, ones in dead_letters.items():
            self._handle(ReplayAsked(component, tuple(ones)))

    def _replays(self) -> Generator[None, None, tuple[dict[int, Mapping[str, Any]], Counter[int]]]:
        """Return the last row of each dead letter that was asked for, and how often it was."""
        latest, times = dict[int, Mapping[str, Any]](), Counter[int]()
        for rows in _slices(self._folder.replays):
            latest |= latest_replays(rows)
            times.update(times_asked(rows))
            yield
        return latest, times

    def _judge(
        self, wanted: set[int], times: Mapping[int, int]
    ) -> Generator[None, None, tuple[dict[str, list[LetterToReplay]], dict[int, str]]]:
        spouts = {spout.id for spout in self._plan.components}
        dead_letters: dict[str, list[LetterToReplay]] = {}
        refused = dict.fromkeys(wanted, "there is no such dead letter")
        numbers = count(1)
        for rows in _slices(self._folder.dead_letters):
            for row, number in zip(rows, numbers, strict=False):
                if number not in wanted:
                    continue
                dead_letter = letter_to_replay(number, row)
                if row.get("component") not in spouts:
                    refused[number] = f"the topology has no component {row.get('component')!r} any more"
                elif isinstance(dead_letter, str):
                    refused[number] = dead_letter
                else:
                    del refused[number]
                    dead_letters.setdefault(row["component"], []).append(replace(dead_letter, asked=times[number]))
            yield
        return dead_letters, refused


def ask_for_resume(folder: TopologyFolder, numbers: Iterable[int], *, dry_run: bool = False) -> dict[str, Any]:
    """Have the next `topo resume` of a topology that does not run emit dead letters again; return as `ReplayDesk.answer`.

    Raises:
        TopologyIsRunning: its master has to be asked.
        UserError: the topology takes checkpoints.
        TopoEnvironmentError: the request cannot be written.
    """
    plan = SubmittedTopology.read(folder).plan
    with folder.lock():
        work = ReplayDesk(folder, plan, partial(append_lines, folder.replays), lambda _event: None).answer(numbers, dry_run)
        while True:
            try:
                next(work)
            except StopIteration as end:
                answer: dict[str, Any] = end.value
                return answer


def _slices(path: Path) -> Iterator[list[dict[str, Any]]]:
    rows = json_lines(path)
    while part := list(islice(rows, SLICE)):
        yield part


def _by_text(found: dict[int, str]) -> dict[str, str]:
    return {str(number): text for number, text in sorted(found.items())}
