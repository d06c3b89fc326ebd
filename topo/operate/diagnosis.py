"""Why a topology is slow or in trouble, in words: from its overview to findings. Pure.

A rule looks at one overview, and at that of the last minute for things that grow, and returns findings: the cause, the
component, the figures that show it, and the command or change that mends it. `RULES` is the order in which findings are shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from topo.operate import load_rules, trouble_rules
from topo.operate.view import FindingRow, Overview, View

Rule = Callable[[View], Iterator[FindingRow]]

RULES: tuple[Rule, ...] = (
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


_LOG = logging.getLogger(__name__)


def diagnose(overview: Overview, minute: Overview | None = None, rules: tuple[Rule, ...] = RULES) -> list[FindingRow]:
    """Return the findings about a topology that runs, in the order of `rules`; notes only where nothing else is found.

    Args:
        overview: of the last 10 s.
        minute: of the last minute, for counts that grow; the same by default.
    """
    view = View(overview, overview if minute is None else minute)
    found = [one for rule in rules for one in _by(rule, view)]
    return [one for one in found if one.severity != "note"] or found


def _by(rule: Rule, view: View) -> list[FindingRow]:
    """Return what a rule finds; an exception in it must not end `topo status`, or the scrape of all topologies."""
    try:
        return list(rule(view))
    except Exception:
        _LOG.exception("the rule %s failed on %s, and is left out", getattr(rule, "__name__", rule), view.name)
        return []
