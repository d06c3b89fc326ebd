"""Processor time and memory of the workers' processes, from heartbeats; processor time over all lives of a slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from topo.ids import Incarnation, WorkerId

WINDOW_S = 10.0


@dataclass(slots=True)
class _ProcessBook:
    incarnation: Incarnation
    figures: Mapping[str, float] = field(default_factory=dict)
    earlier_cpu_s: float = 0.0
    samples: deque[tuple[float, Mapping[str, float]]] = field(default_factory=deque)
    """When, and the figures then."""


class ProcessCosts:
    """The processes of all workers."""

    def __init__(self) -> None:
        self._slots: dict[WorkerId, _ProcessBook] = {}

    def add(self, worker: WorkerId, incarnation: Incarnation, figures: Mapping[str, float], now: float) -> None:
        """Take the figures of a heartbeat; there are none where workers are no processes."""
        if not figures:
            return
        slot = self._slots.setdefault(worker, _ProcessBook(incarnation))
        if slot.incarnation != incarnation:
            slot.earlier_cpu_s += slot.figures.get("cpu_s", 0.0)
            slot.incarnation = incarnation
            slot.samples.clear()
        slot.figures = figures
        slot.samples.append((now, figures))
        while len(slot.samples) > 2 and slot.samples[1][0] <= now - WINDOW_S:
            slot.samples.popleft()

    def of(self, worker: WorkerId, incarnation: Incarnation | None) -> dict[str, float | None]:
        """Return the figures of a worker's process, those of the moment None while none have come.

        `cpu_s` is over all lives; `cpu` has the cores in use in the last 10 s, `starved` the share of them without a free core.
        """
        slot = self._slots.get(worker)
        is_current = slot is not None and slot.incarnation == incarnation
        figures = slot.figures if slot is not None and is_current else {}
        whole = 0.0 if slot is None else slot.earlier_cpu_s + slot.figures.get("cpu_s", 0.0)
        rates: dict[str, float | None] = {"cpu": None, "starved": None}
        if slot is not None and is_current and len(slot.samples) > 1:
            (began, first), (ended, last) = slot.samples[0], slot.samples[-1]
            for name in rates:
                if ended > began and f"{name}_s" in last:
                    rates[name] = (last[f"{name}_s"] - first.get(f"{name}_s", 0.0)) / (ended - began)
        moment = {name: figures.get(name) for name in ("rss_bytes", "gc_s", "open_files", "cores")}
        return {"cpu_s": whole, **rates, **moment}
