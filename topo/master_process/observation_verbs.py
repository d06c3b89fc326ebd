"""The verbs by which operators watch a topology: `observe`, `observed`, `unobserve`, `log_levels`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.master_process.loop import MasterLoop


def observation_verbs(loop: MasterLoop, clock: Callable[[], float]) -> dict[str, Callable[..., Any]]:
    """Return the verbs, each with a function of its arguments; see `topo.master.observations.Observations`."""
    known = loop.observations

    def observe(kind: str, component: str, spec: Mapping[str, Any], for_s: float) -> dict[str, Any]:
        answer = known.observe(kind, component, spec, float(for_s), clock())
        loop.pass_observations(clock())
        return answer | {"term": loop.master.term}

    def unobserve(id: int) -> dict[str, Any]:
        answer = known.unobserve(id, clock())
        loop.pass_observations(clock())
        return answer

    return {
        "observe": observe,
        "observed": lambda id, after=0: known.observed(id, clock(), after),
        "unobserve": unobserve,
        "log_levels": lambda: known.log_levels(clock()),
    }
