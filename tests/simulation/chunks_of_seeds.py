"""Seeds that run in chunks, each once, for all tests of a file that look at what occurred in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TotalsOf = Callable[[int], Counter[str]]
"""Runs the seeds of a chunk, once, and returns what occurred in them."""


def totals_by_chunk(
    draw: Callable[[int], Any], size: int, option: str, counted: Callable[[Any], Mapping[str, int]] = lambda run: run.counts()
) -> TotalsOf:
    """Return what runs a chunk of seeds. A violation fails the test.

    Args:
        draw: returns the scenario of a seed.
        size: seeds of a chunk.
        option: of `python -m tests.simulator`, which replays a seed with it.
        counted: looks at a run, and returns what occurred in it.
    """

    @cache
    def totals_of(chunk: int) -> Counter[str]:
        totals: Counter[str] = Counter()
        for seed in range(chunk * size, (chunk + 1) * size):
            totals.update(counted(_judged(draw(seed).run(), f"{option} --seed {seed}".lstrip())))
        return totals

    return totals_of


def never_seen(names: Collection[str], totals_of: TotalsOf, chunks: int) -> list[str]:
    """Return the situations that no chunk of seeds has had."""
    return [name for name in names if not any(totals_of(chunk)[name] for chunk in range(chunks))]


def _judged(run: Any, seed: str) -> Any:
    if run.violations:
        violations = "\n".join(f"  {violation}" for violation in run.violations)
        pytest.fail(f"{violations}\nreplay it with: python -m tests.simulator {seed}", pytrace=False)
    return run


def output_elsewhere(option: str, seed: int, hash_seed: str, is_plain: str) -> str:
    """Return the output of a seed in another process, with a hash seed and a kind of the per-tuple path."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.simulator", *option.split(), "--seed", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "TOPO_PURE": is_plain},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return found.stdout
