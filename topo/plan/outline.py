"""What a plan consists of, in order, and where two builds of one topology part. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from topo.plan.physical import PhysicalPlan


def outline(plan: PhysicalPlan) -> list[str]:
    """Return the components, each with the operators of a program of streams that run in it and their places."""
    found = []
    for component in plan.components:
        body, *fused = component.operators or (component.code,)
        found += [f"{body} ({component.kind} {component.id} x{component.parallelism})", *fused]
    return found


def first_difference(here: Sequence[str], there: Sequence[str]) -> tuple[str, str] | None:
    """Return the first entries of two outlines that differ; None where they do not."""
    pairs = zip_longest(here, there, fillvalue="nothing")
    return next(((one, other) for one, other in pairs if one != other), None)
