"""Why a topology is slow or in trouble, in words: from its overview to findings. Pure.

A rule looks at one overview, and at that of the last minute for things that grow, and returns findings: the cause, the
component, the figures that show it, and the command or change that mends it. `RULES` is the order in which findings are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from topo.operate import load_rules, trouble_rules
from topo.operate.view import FindingRow, Overview, View

RULES: tuple[Callable[[View], Iterator[FindingRow]], ...] = (
    trouble_rules.lost_workers,
    trouble_rules.failing,
    trouble_rules.given_up,
    load_rules.timeouts,
    load_rules.too_many_processes,
    load_rules.bottlenecks,
    load_rules.hot_keys,
    load_rules.messages_held,
    trouble_rules.held_back,
    trouble_rules.late_data,
    trouble_rules.slow_checkpoints,
    load_rules.slow_sources,
)


def diagnose(overview: Overview, minute: Overview | None = None) -> list[FindingRow]:
    """Return the findings about a topology that runs, in the order of `RULES`; notes only where nothing else is found.

    Args:
        overview: of the last 10 s.
        minute: of the last minute, for counts that grow; the same by default.
    """
    view = View(overview, overview if minute is None else minute)
    found = [one for rule in RULES for one in rule(view)]
    return [one for one in found if one.severity != "note"] or found
