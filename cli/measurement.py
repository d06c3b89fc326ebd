"""The measurements of `topo bench`: counts at the moments of heartbeats, CPU time and memory of processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from topo.observability.status import StatusReport

MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a count grew, and in how many seconds."""

    amount: float = 0.0
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return self.amount / self.seconds if self.seconds > 0 else 0.0


class Counts:
    """Samples of each task's counts, taken when a heartbeat has brought new ones.

    A heartbeat comes about once a second while statuses are asked for more often. So a sample is dated by its worker's
    last heartbeat, not by the request for the status: a rate over two samples is exact to a few milliseconds.
    """

    def __init__(self) -> None:
        self._samples: dict[int, list[tuple[float, Mapping[str, float]]]] = {}
        self._looked_at = float("-inf")

    def add(self, status: StatusReport, now: float) -> None:
        """Take a status that was asked for at `now` (monotonic seconds)."""
        beat_at = {worker["worker"]: now - (worker["silent_s"] or 0.0) for worker in status["workers"]}
        for task in status["tasks"]:
            samples = self._samples.setdefault(task["task"], [])
            if not samples or samples[-1][1] != task["counters"]:
                samples.append((max(self._looked_at, beat_at.get(task["worker"], now)), dict(task["counters"])))
        self._looked_at = now

    def growth(self, tasks: Iterable[int], counter: str, since: float, until: float) -> Growth:
        """Return how much the tasks' counter grew between the first and the last heartbeat in that time, all tasks together."""
        amount, seconds, per_second = 0.0, 0.0, 0.0
        for task in tasks:
            inside = [(at, counts) for at, counts in self._samples.get(task, ()) if since <= at <= until]
            if len(inside) > 1:
                grown = Growth(inside[-1][1].get(counter, 0) - inside[0][1].get(counter, 0), inside[-1][0] - inside[0][0])
                amount += grown.amount
                seconds = max(seconds, grown.seconds)
                per_second += grown.per_second
        # Tasks beat at moments of their own, so rates add up and amounts do not.
        return Growth(per_second * seconds, seconds) if seconds else Growth(amount)


@dataclass(slots=True)
class Usage:
    """The resources that one process has used.

    Attributes:
        label: the tasks that run in it.
        cpu: (moment, CPU seconds so far), one for each look.
        peak_bytes: the most memory it ever had resident.
    """

    label: str
    cpu: list[tuple[float, float]] = field(default_factory=list)
    peak_bytes: int = 0

    def cpu_growth(self, since: float, until: float) -> Growth:
        """Return the CPU seconds between the first and the last look in that time."""
        inside = [(at, used) for at, used in self.cpu if since <= at <= until]
        return Growth(inside[-1][1] - inside[0][1], inside[-1][0] - inside[0][0]) if inside else Growth()


class Processes:
    """CPU time and peak memory of a topology's master and workers, by process id."""

    def __init__(self) -> None:
        self.usage: dict[int, Usage] = {}

    def look(self, status: StatusReport, now: float) -> None:
        """Read the resources that the processes of a status have used until `now`."""
        components = {task["task"]: task["component"] for task in status["tasks"]}
        found = {worker["pid"]: ", ".join(components[task] for task in worker["tasks"]) for worker in status["workers"]}
        found[status["master"]["pid"]] = "topology master"
        for pid, label in found.items():
            if not pid:
                continue
            usage = self.usage.setdefault(pid, Usage(label))
            try:
                process = psutil.Process(pid)
                times = process.cpu_times()
                usage.peak_bytes = max(usage.peak_bytes, _peak_bytes(pid) or process.memory_info().rss)
            except (psutil.Error, OSError):
                continue
            usage.cpu.append((now, times.user + times.system))


def _peak_bytes(pid: int) -> int:
    """Return the peak of a process's resident memory, by the kernel's own count where there is one; else 0."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """Return the 50th, 99th and 99.9th percentile, each the smallest value that bounds this share; None without values."""
    ordered = sorted(values)
    ranks = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    if not ordered:
        return dict.fromkeys(ranks)
    return {name: ordered[max(0, -int(-share * len(ordered) // 1) - 1)] for name, share in ranks.items()}
