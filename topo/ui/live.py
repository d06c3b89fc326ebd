"""What browsers look at: one overview a second of each master that somebody looks at, however many they are."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topo.errors import NotFoundError, TopoError, UserError
from topo.master.windows import WINDOWS
from topo.master_process.client import AnswerTimeout, LastingClient
from topo.operate.diagnosis import diagnose
from topo.operate.topology_index import list_row, row_of, stalled_row
from topo.operate.traces import Traces, rows_of
from topo.operate.view import Overview
from topo.storage.files import state_of
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.storage.submitted import last_run

LiveRow = dict[str, Any]

TICK_S = 1.0
"""A master is asked for one overview in this time."""
FINDINGS, FINDINGS_S = "10s", 5.0
"""The window whose overview has the findings, and how old it may be while another is shown."""
DEADLINE_S = 2.0
SHARED_S, UNCHANGED_S = 2.0, 60.0
"""How old the past may be: shorter than the time in which a browser asks again; and what files have that did not change."""
IDLE_S = 5.0
"""A window that was not shown for this time is not asked for."""
MOST_TUPLES = 10_000
"""Of messages of a trace without a verdict: up to 4 MB."""
MOST_SPANS = 100
"""Tuples of a message that a browser gets."""


class LiveTopology:
    """The newest overviews of one topology. All methods are of the event loop; requests are made on threads."""

    def __init__(self, folder: TopologyFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self._client = LastingClient.of(folder)
        self._clock = clock
        self._wanted: dict[str, float] = {}
        """Windows, and when they were last shown to somebody."""
        self._overviews: dict[str, tuple[float, Overview]] = {}
        """By window, when it was asked for, and the answer."""
        self._answers: dict[tuple[Any, ...], tuple[float, Any, Any]] = {}
        """By question, until when an answer is given to others, the state of its files, and the answer."""
        self._trace: _LiveTrace | None = None
        self._lock = asyncio.Lock()
        self._asked_at = -IDLE_S
        self._row: LiveRow = {}
        self._summary: Mapping[str, Any] | None = None
        """Of a topology that has ended."""
        self._texts: dict[str, tuple[float, str]] = {}
        """By window, of which request, and what browsers are sent of it."""
        self._questions = asyncio.Semaphore(1)
        self._waiting = 0
        self._place: tuple[Any, str] = None, ""
        """The state of `topology.json`, and where that has the topology run."""

    async def overview(self, window: str) -> str:
        """Return the newest overview as JSON: asked for at most once a second, and made once for all who look at the topology."""
        if window not in WINDOWS:
            raise UserError(f"there is no window {window!r}; there are {', '.join(WINDOWS)}")
        self._wanted[window] = self._clock()
        await self._refresh()
        if self._texts.get(window, (None, ""))[0] != self._asked_at:
            _, found = self._overviews.get(window) or self._overviews.get(FINDINGS) or (0.0, None)
            shown = {"type": "overview", "at_ms": int(time.time() * 1000), "topology": self.folder.name, "overview": found}
            ended = {"status": self._summary, "word": self._row.get("status", "LOST"), "reason": self._row.get("reason", "")}
            shown |= {"running": found is not None, "findings": self._findings()} | (ended if found is None else {})
            self._texts[window] = self._asked_at, as_text(shown)
        return self._texts[window][1]

    async def row(self) -> LiveRow:
        """Return the row of the list."""
        await self._refresh()
        if (state := state_of(self.folder.topology)) != self._place[0]:
            submitted = last_run(self.folder)
            self._place = state, "machine" if submitted is None or submitted.spark is None else submitted.spark.master
        row = row_of(self._overviews[FINDINGS][1]) if FINDINGS in self._overviews else self._row
        return row | {"findings": self._findings(), "place": self._place[1]}

    async def ask(self, verb: str, *, is_order: bool = False, **arguments: Any) -> Any:
        """Ask the master another question: one at a time, the same at most once a second unless it is an order.

        Raises:
            TooManyQuestions: others wait already.
            Unreachable, AnswerTimeout, UserError: as `Client.request`.
        """

        async def request() -> Any:
            answer = await asyncio.to_thread(self._client.request, verb, DEADLINE_S, **arguments)
            # However different the questions are, the master is asked a few a second.
            await asyncio.sleep(TICK_S / 8)
            return answer

        return await self._once(() if is_order else (verb, *sorted(arguments.items())), 0.0 if is_order else TICK_S, request)

    async def observe(self, kind: str, **asked: Any) -> Any:
        """Begin to watch. Raises as `ask`."""
        answer = await self.ask("observe", is_order=True, kind=kind, **asked)
        if kind == "trace":
            tasks = {int(task): (component, index) for task, (component, index) in answer["tasks"].items()}
            self._trace = _LiveTrace(answer["id"], Traces(tasks, MOST_TUPLES))
        return answer

    async def observed(self, id: int, after: int) -> Any:
        """Return what there was since row `after`; of a trace, the messages that are complete since the call before.

        Raises as `ask`.
        """
        trace = self._trace if self._trace is not None and self._trace.id == id else None
        after = after if trace is None else trace.last
        answer = await self.ask("observed", id=id, after=after)
        if trace is None:
            if answer["kind"] == "trace":
                raise UserError("the server of the page has restarted, and the trace with it; start another")
            return answer
        # Of two that ask at once, one takes the rows.
        messages = trace.take(answer) if trace.last == after else []
        if answer["ended"]:
            self._trace = None
        traces = trace.traces
        counts = {"open": traces.open, "forgotten": traces.forgotten, "dropped": answer["dropped"] + traces.dropped}
        return answer | {"rows": [], "messages": messages} | counts

    async def alone(self, read: Callable[[], Any], shared_as: str = "", state: Any = None) -> str:
        """Return as JSON what `read` finds in files of the topology, on a thread, one question at a time.

        Under a name it is read once in `SHARED_S`, for all who ask; with the state of the files, once in `UNCHANGED_S` while that
        stays. Raises TooManyQuestions, and the errors of `read`.
        """
        lasts_s = UNCHANGED_S if state else SHARED_S if shared_as else 0.0
        return str(await self._once(("", shared_as), lasts_s, lambda: asyncio.to_thread(lambda: as_text(read())), state))

    async def _once(self, key: tuple[Any, ...], lasts_s: float, make: Callable[[], Awaitable[Any]], state: Any = None) -> Any:
        """Return the answer that is known under a key, or make one and keep it for a time."""
        if self._waiting >= 8:
            raise TooManyQuestions(f"too many questions about {self.folder.name!r}; try again in a second")
        self._waiting += 1
        try:
            async with self._questions:
                now = self._clock()
                self._answers = {known: one for known, one in self._answers.items() if now < one[0]}
                if key not in self._answers or self._answers[key][1] != state:
                    answer = await make()
                    self._answers[key] = (self._clock() if lasts_s else now) + lasts_s, state, answer
                return self._answers[key][2]
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._client.close()

    async def _refresh(self) -> None:
        async with self._lock:
            now = self._clock()
            if now - self._asked_at < (TICK_S if self._overviews else 2 * TICK_S) * 0.95:
                return
            self._asked_at, window = now, self._next_window(now)
            try:
                answer = await asyncio.to_thread(self._client.request, "overview", DEADLINE_S, window=window)
                self._overviews = {of: one for of, one in self._overviews.items() if now - one[0] < 2 * IDLE_S}
                self._overviews[window] = now, answer
            except TopoError as error:
                self._overviews.clear()
                self._row, self._summary = await asyncio.to_thread(_row_without_master, self.folder, error)

    def _next_window(self, now: float) -> str:
        """Return the window that is shown; several share turns, and that of findings has one at least each 5 s."""
        asked = {window: at for window, (at, _) in self._overviews.items()}
        if now - asked.get(FINDINGS, -FINDINGS_S) >= FINDINGS_S:
            return FINDINGS
        shown = [window for window, at in self._wanted.items() if now - at < IDLE_S]
        return min(shown or [FINDINGS], key=lambda window: asked.get(window, -1.0))

    def _findings(self) -> list[LiveRow]:
        return [one.as_data() for one in diagnose(self._overviews[FINDINGS][1])] if FINDINGS in self._overviews else []


@dataclass(slots=True)
class _LiveTrace:
    """A trace whose rows are joined here: a browser gets each message once, complete."""

    id: int
    traces: Traces
    last: int = 0

    def take(self, answer: Mapping[str, Any]) -> list[LiveRow]:
        self.last = answer["last"]
        found = self.traces.settled(answer["rows"])
        if answer["ended"]:
            found += self.traces.settled(())
        messages = []
        for message in map(self.traces.shown, found):
            rows, left_out = rows_of(message, MOST_SPANS)
            messages.append(message | {"spans": rows, "unseen": [], "tuples": len(rows) + left_out})
        return messages


class TooManyQuestions(TopoError):
    """More questions wait for a master than it is asked in a moment."""


class LiveHome:
    """All topologies of a home."""

    def __init__(self, home: Path) -> None:
        self.state = StateFolder(home)
        self._topologies: dict[str, LiveTopology] = {}

    def find(self, name: str) -> LiveTopology:
        """Return a topology. Raises NotFoundError."""
        try:
            folder = self.state.find(name)
        except TopoError:
            if (gone := self._topologies.pop(name, None)) is not None:
                gone.close()
            raise
        if name not in self._topologies:
            self._topologies[name] = LiveTopology(folder)
        return self._topologies[name]

    async def rows(self) -> list[LiveRow]:
        """Return the rows of all topologies that are not removed meanwhile; those without a master are read now and then."""
        for gone in self._topologies.keys() - set(names := self.state.names()):
            self._topologies.pop(gone).close()
        return [row for row in await asyncio.gather(*map(self._row, names)) if row]

    async def _row(self, name: str) -> LiveRow:
        with suppress(NotFoundError, FileNotFoundError):
            return await self.find(name).row()
        return {}


def as_text(data: Any) -> str:
    """Return data as JSON; figures of user code that JSON has no word for, such as NaN, are null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(json.loads(json.dumps(data), parse_constant=lambda _: None), separators=(",", ":"))


def _row_without_master(folder: TopologyFolder, error: TopoError) -> tuple[LiveRow, Mapping[str, Any] | None]:
    if isinstance(error, AnswerTimeout):
        return stalled_row(folder, str(error)), None
    row = list_row(folder, DEADLINE_S)
    return row, folder.last_summary() if row["ended_ms"] is not None else None
