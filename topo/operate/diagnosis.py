"""Why a topology is slow or in trouble, in words: from its overview to findings. Pure.

A rule looks at one overview and returns findings: the cause, the component, the figures that show it, and the command or change
that fixes it. `RULES` is the order in which findings are shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from topo.operate import load_rules, trouble_rules
from topo.operate.view import FindingRow, Overview, View

Rule = tuple[str, str, Callable[[View], Iterator[FindingRow]]]
"""Kind and severity of its findings, and what finds them."""

RULES: tuple[Rule, ...] = (
    ("worker lost again and again", "problem", trouble_rules.lost_workers),
    ("errors", "problem", trouble_rules.failing),
    ("dead letters", "problem", trouble_rules.given_up),
    ("timeouts", "problem", load_rules.timeouts),
    ("too many processes", "slow", load_rules.too_many_processes),
    ("bottleneck", "slow", load_rules.bottlenecks),
    ("hot key", "slow", load_rules.hot_keys),
    ("messages held", "slow", load_rules.messages_held),
    ("event time held back", "slow", trouble_rules.held_back),
    ("late data", "problem", trouble_rules.late_data),
    ("checkpoint slow", "slow", trouble_rules.slow_checkpoints),
    ("source slow", "note", load_rules.slow_sources),
)

_LOG = logging.getLogger(__name__)


def diagnose(overview: Overview, rules: tuple[Rule, ...] = RULES) -> list[FindingRow]:
    """Return the findings about a topology that runs, by its overview of the last 10 s, in the order of `rules`.

    Notes only where nothing else is found.
    """
    view = View(overview)
    found: list[FindingRow] = []
    for kind, severity, find in rules:
        try:
            found += [replace(one, kind=kind, severity=severity) for one in find(view)]
        except Exception:
            # It must not end `topo status`, or the scrape of all topologies.
            _LOG.exception("the rule about %s failed on %s, and is left out", kind, view.name)
    return [one for one in found if one.severity != "note"] or found
