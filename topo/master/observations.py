"""What operators watch in a running topology: the observations, the workers that know of them, and their rows. Pure.

An observation has a lease: it ends when its rows have not been asked for during `LEASE_S`. Log levels have none: they end when
their time is up. Each life of a worker gets each observation once; a later life gets those that still last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.api.topology import ComponentKind
from topo.config import format_duration
from topo.errors import UserError
from topo.expressions import Expression
from topo.ids import TaskId
from topo.master.links import Life
from topo.plan.physical import PhysicalPlan
from topo.wire import control

LEASE_S = 10.0
MOST = 8
"""Observations at a time."""
MOST_ROWS = 2000
"""Rows that wait to be asked for; the oldest go."""
MOST_OUT = 20_000
"""Emitted tuples in those of a trace: each may have many."""
MOST_STACKS = 2000
LONGEST_S = {"tap": 24 * 3600.0, "trace": 3600.0, "profile": 600.0, "log-level": 24 * 3600.0}
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

Spec = Mapping[str, Any]


@dataclass(slots=True)
class _Observation:
    kind: str
    component: str
    spec: Spec
    tasks: tuple[TaskId, ...]
    until: float
    leased_until: float
    rows: deque[tuple[int, dict[str, Any]]] = field(default_factory=deque)
    out: int = 0
    """Emitted tuples in `rows`."""
    stacks: dict[tuple[TaskId, tuple[str, ...]], int] = field(default_factory=dict)
    last: int = 0
    """The number of the last row."""
    read: int = 0
    """That of the last row that was asked for."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("seen", "looked", "matched", "dropped"), 0))
    problem: str = ""
    informed: set[Life] = field(default_factory=set)

    def ends_at(self) -> float:
        return self.until if self.kind == "log-level" else min(self.until, self.leased_until)

    def add(self, row: dict[str, Any]) -> None:
        self.last += 1
        self.rows.append((self.last, row))
        self.out += len(row.get("out", ()))
        while len(self.rows) > MOST_ROWS or self.out > MOST_OUT:
            self.counts["dropped"] += self._remove_oldest() > self.read

    def forget(self, until: int) -> None:
        """Forget the rows up to a number: they have arrived."""
        while self.rows and self.rows[0][0] <= until:
            self._remove_oldest()

    def _remove_oldest(self) -> int:
        number, row = self.rows.popleft()
        self.out -= len(row.get("out", ()))
        return number


class Observations:
    """The observations of one topology."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._known: dict[int, _Observation] = {}
        self._ended: dict[int, _Observation] = {}
        """Those whose time is up, until their last rows have been read or the lease ends."""
        self._to_end: list[tuple[Life, control.Unobserve]] = []
        self._last = 0

    # -- operators -------------------------------------------------------------------------------------------------------

    def observe(self, kind: str, component: str, spec: Spec, for_s: float, now: float) -> dict[str, Any]:
        """Begin an observation of a component, or with "" of all; return its `id`, and `left_s`.

        Raises:
            UserError: there is no such component, or it may not be watched so, or there are too many observations.
        """
        if kind not in LONGEST_S:
            raise UserError(f"there is no observation {kind!r}; there are {', '.join(LONGEST_S)}")
        if not 0 < for_s <= LONGEST_S[kind]:
            raise UserError(f"a {kind} lasts up to {format_duration(LONGEST_S[kind])}; got {format_duration(for_s)}")
        self._expire(now)
        if len(self._known) >= MOST:
            raise UserError(f"{self._plan.name} is observed {MOST} times already; end one, or wait {LEASE_S:g} s")
        tasks = self._tasks_of(component, spec.get("index"), allows_all=kind in ("log-level", "trace"))
        kinds = {"tap": self._tap, "trace": self._trace, "profile": _profile, "log-level": _log_level}
        spec = kinds[kind](component, dict(spec), tasks)
        self._last += 1
        self._known[self._last] = _Observation(kind, component, spec, tasks, now + for_s, now + LEASE_S)
        answer: dict[str, Any] = {"id": self._last, "left_s": for_s}
        if kind == "trace":
            answer["tasks"] = {str(task.id): [task.component, task.index] for task in self._plan.tasks}
        return answer

    def observed(self, id: int, now: float, after: int = 0) -> dict[str, Any]:
        """Return the rows behind number `after`, and the counts; renews the lease. Raises UserError when it has ended."""
        self._expire(now)
        known = self._known.get(id) or self._ended.get(id)
        if known is None:
            raise UserError(f"observation {id} of {self._plan.name} has ended: it was not asked for during {LEASE_S:g} s")
        known.leased_until = now + LEASE_S
        known.read = known.last
        known.forget(after)
        answer: dict[str, Any] = {
            "id": id,
            "kind": known.kind,
            "component": known.component,
            "last": known.last,
            "rows": [row for _, row in known.rows],
            **known.counts,
            "problem": known.problem,
            "left_s": max(0.0, known.until - now),
            "ended": id in self._ended,
        }
        if known.kind == "profile":
            answer["stacks"] = [
                {"task": task, "index": self._plan.task(task).index, "frames": list(frames), "count": count}
                for (task, frames), count in known.stacks.items()
            ]
        return answer

    def unobserve(self, id: int, now: float) -> dict[str, Any]:
        """End an observation, if it has not ended."""
        self._end(id)
        self._ended.pop(id, None)
        return {}

    def log_levels(self, now: float) -> list[dict[str, Any]]:
        """Return the log levels that are changed."""
        self._expire(now)
        return [
            {"id": number, "logger": logger, "level": level, "component": known.component, "left_s": known.until - now}
            for number, known in self._known.items()
            if known.kind == "log-level"
            for logger, level in known.spec["levels"].items()
        ]

    # -- workers ---------------------------------------------------------------------------------------------------------

    def messages(self, lives: Collection[Life], now: float) -> list[tuple[Life, control.FromMaster]]:
        """Return the messages that present lives of workers have to get."""
        if not self._known and not self._to_end and not self._ended:
            return []
        self._expire(now)
        found: list[tuple[Life, control.FromMaster]] = [end for end in self._to_end if end[0] in lives]
        self._to_end.clear()
        for number, known in self._known.items():
            for life in lives:
                mine = [task for task in known.tasks if task in self._plan.workers[life[0]]]
                if mine and life not in known.informed:
                    known.informed.add(life)
                    spec = dict(known.spec)
                    found.append((life, control.Observe(number, known.kind, mine, spec, max(0.01, known.until - now))))
        return found

    def took(self, message: control.Observed, now: float) -> None:
        """Take the rows and counts of a task."""
        known = self._known.get(message.id) or self._ended.get(message.id)
        if known is None or message.task not in known.tasks:
            return
        for name in known.counts:
            known.counts[name] += getattr(message, name)
        known.problem = message.problem or known.problem
        for row in message.rows:
            if known.kind == "profile":
                key = message.task, tuple(row["frames"])
                if key in known.stacks or len(known.stacks) < MOST_STACKS:
                    known.stacks[key] = known.stacks.get(key, 0) + row["count"]
                else:
                    known.counts["dropped"] += row["count"]
            else:
                known.add(row)

    # -- what may be watched ---------------------------------------------------------------------------------------------

    def _tasks_of(self, component: str, index: int | None, *, allows_all: bool) -> tuple[TaskId, ...]:
        plan = self._plan
        if not component and allows_all:
            return tuple(task.id for task in plan.tasks)
        names = [one.id for one in plan.components if one.kind is not ComponentKind.ACKER or allows_all]
        if component not in names:
            raise UserError(f"{plan.name} has no component {component!r}; it has {', '.join(names)}")
        tasks = tuple(plan.tasks_of(component))
        if index is None:
            return tasks
        if not 0 <= index < len(tasks):
            known = f"{len(tasks)} tasks, 0 to {len(tasks) - 1}" if tasks[1:] else "1 task, 0"
            raise UserError(f"{component} has {known}; there is no task {index}")
        return (tasks[index],)

    def _tap(self, component: str, spec: dict[str, Any], tasks: tuple[TaskId, ...]) -> Spec:
        plan, is_in = self._plan, spec.get("direction") == "in"
        read = {(one.source, one.stream) for one in plan.subscriptions if one.target == component}
        sources = sorted(read) if is_in else [(component, stream.name) for stream in plan.streams(component)]
        if not sources:
            other = "leave out --in, to see its output" if is_in else "--in shows its input"
            raise UserError(f"{component} {'takes' if is_in else 'emits'} nothing; {other}")
        for source, _ in sources:
            if plan.config_of(source).tap is None:
                raise UserError(f"the tuples of {source} are not shown: its setting is tap=off")
        wanted = spec.get("stream") or ""
        names = [f"{source}:{stream}" if is_in else stream for source, stream in sources]
        chosen = [place for place, name in enumerate(names) if wanted in ("", name, name.rpartition(":")[2])]
        if not chosen:
            raise UserError(f"{component} has no stream {wanted!r}; it has {', '.join(names)}")
        rate = float(spec.get("rate", 5.0))
        if not 0 < rate <= 1000:
            raise UserError(f"a tap shows up to 1,000 tuples a second; {rate:g} were asked for")
        if where := spec.get("where") or "":
            condition = Expression(where)
            fields = {
                field
                for place in chosen
                for stream in plan.streams(sources[place][0])
                if stream.name == sources[place][1]
                for field in stream.fields
            }
            condition.check_fields(fields, component)
            if secret := sorted(condition.names & plan.secret_fields):
                raise UserError(f"field {secret[0]!r} is secret (setting secret_fields): no condition may read it")
        workers = {plan.worker_of(task) for task in tasks}
        # Each worker limits its own rows.
        return {"direction": "in" if is_in else "out", "stream": wanted, "where": where, "rate": rate / len(workers)}

    def _trace(self, component: str, spec: dict[str, Any], tasks: tuple[TaskId, ...]) -> Spec:
        plan, rate, settle_s = self._plan, float(spec.get("rate", 1.0)), float(spec.get("settle_s", 0.0))
        if component or spec.get("index") is not None:
            raise UserError("a trace follows messages through all components; leave the component out")
        if plan.config.delivery == "exactly_once":
            raise UserError(f"{plan.name} is exactly_once: only barriers are tracked there, so no message can be traced")
        if not plan.ackers:
            raise UserError(f"{plan.name} has ackers=0: no message has a root, so none can be traced; set ackers=1 or more")
        if not 0 < rate <= 100:
            raise UserError(f"a trace takes up to 100 messages a second; {rate:g} were asked for")
        if any(known.kind == "trace" for known in self._known.values()):
            raise UserError(f"{plan.name} is traced already: one trace at a time; end it, or wait {LEASE_S:g} s")
        wanted = spec.get("spout") or ""
        spouts = [task for task in plan.spouts if wanted in ("", plan.task(task).component)]
        if not spouts:
            names = dict.fromkeys(plan.task(task).component for task in plan.spouts)
            raise UserError(f"{plan.name} has no spout {wanted!r}; it has {', '.join(names)}")
        # Each spout task marks its own share.
        return {"rate": rate / len(spouts), "settle_s": settle_s, "spouts": spouts}

    # -- time ------------------------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        for number, known in list(self._known.items()):
            if now >= known.ends_at():
                self._end(number)
                if now < known.leased_until:
                    self._ended[number] = known
        for number, known in list(self._ended.items()):
            if now >= known.leased_until:
                del self._ended[number]

    def _end(self, number: int) -> None:
        if (known := self._known.pop(number, None)) is not None:
            self._to_end += [(life, control.Unobserve(number)) for life in sorted(known.informed)]


def _profile(component: str, spec: dict[str, Any], tasks: tuple[TaskId, ...]) -> Spec:
    rate, clock = float(spec.get("rate", 100.0)), spec.get("clock", "wall")
    if not 1 <= rate <= 1000:
        raise UserError(f"a profile takes 1 to 1,000 samples a second; {rate:g} were asked for")
    if clock not in ("wall", "cpu"):
        raise UserError(f"the clock of a profile is wall or cpu, not {clock!r}")
    return {"rate": rate, "clock": clock, "lines": bool(spec.get("lines"))}


def _log_level(component: str, spec: dict[str, Any], tasks: tuple[TaskId, ...]) -> Spec:
    levels = {str(logger): str(level).upper() for logger, level in dict(spec.get("levels") or {}).items()}
    for level in levels.values():
        if level not in LEVELS:
            raise UserError(f"{level.lower()!r} is not a log level; there are {', '.join(LEVELS).lower()}")
    if not levels:
        raise UserError("no level was given")
    return {"levels": levels}
