"""Seeds that run in chunks, each once, for all tests of a file that look at what occurred in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import pytest

from tests.simulator.checkpoint_scenarios import CheckpointRun

TotalsOf = Callable[[int], Counter[str]]
"""Runs the seeds of a chunk, once, and returns what occurred in them."""


def totals_by_chunk(draw: Callable[[int], Any], size: int, option: str) -> TotalsOf:
    """Return what runs a chunk of seeds. A violation fails the test.

    Args:
        draw: returns the scenario of a seed.
        size: seeds of a chunk.
        option: of `python -m tests.simulator`, which replays a seed with it.
    """

    @cache
    def totals_of(chunk: int) -> Counter[str]:
        totals: Counter[str] = Counter()
        for seed in range(chunk * size, (chunk + 1) * size):
            totals.update(_judged(draw(seed).run(), f"{option} --seed {seed}").counts())
        return totals

    return totals_of


def never_seen(names: Collection[str], totals_of: TotalsOf, chunks: int) -> list[str]:
    """Return the situations that no chunk of seeds has had."""
    return [name for name in names if not any(totals_of(chunk)[name] for chunk in range(chunks))]


def _judged(run: CheckpointRun, seed: str) -> CheckpointRun:
    if run.violations:
        violations = "\n".join(f"  {violation}" for violation in run.violations)
        pytest.fail(f"{violations}\nreplay it with: python -m tests.simulator {seed}", pytrace=False)
    return run
