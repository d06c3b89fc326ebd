"""The outcome of a topology: a word, a sentence, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from topo.master.statistics import TopologyStatistics
from topo.plan.physical import PhysicalPlan


class OutcomeKind(Enum):
    """Kinds of outcomes."""

    DONE = "done"
    """Every source ended and every message went through."""
    FINALLY_FAILED = "finally failed"
    """Every source ended; messages failed that no spout emitted again."""
    REFUSED = "refused"
    """Every source ended; messages were not taken, since their ids cannot be used."""
    DEAD_LETTERS = "dead letters"
    """Every source ended; messages were given up and stored."""
    RESULTS_LOST = "results lost"
    """Every source ended; a component raised in a call that nothing repeats, or emitted rows that could not be sent; or a source
    raised and emitted nothing."""
    UNACCOUNTED = "unaccounted"
    """Every source ended; the engine does not know what became of messages."""
    DRAINED = "drained"
    """The operator ended it, and messages in flight were done."""
    CUT_SHORT = "cut short"
    """The operator ended it, and messages in flight were not done in time; the next run replays them."""
    KILLED = "killed"
    """The operator ended it at once."""
    CRASHED = "crashed"
    """It could not be started."""


_BY_ITSELF = (
    OutcomeKind.DONE,
    OutcomeKind.FINALLY_FAILED,
    OutcomeKind.DEAD_LETTERS,
    OutcomeKind.REFUSED,
    OutcomeKind.RESULTS_LOST,
    OutcomeKind.UNACCOUNTED,
)


class Outcome(Struct, frozen=True):
    """The outcome of a topology, its reason, and the counts at the end."""

    kind: OutcomeKind
    reason: str
    finally_failed: int = 0
    dead_letters: int = 0
    refused: int = 0
    unaccounted: int = 0
    """Messages that the engine has lost track of, however the topology ended."""

    @property
    def exit_code(self) -> int:
        """Zero only for a bounded topology that is done, with nothing dead-lettered, finally failed, refused or lost."""
        return 0 if self.kind is OutcomeKind.DONE else 1

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain values, as summaries and the status carry it."""
        return {
            "kind": self.kind.value,
            "reason": self.reason,
            "finally_failed": self.finally_failed,
            "dead_letters": self.dead_letters,
            "refused": self.refused,
            "exit_code": self.exit_code,
        }

    @property
    def has_ended_by_itself(self) -> bool:
        """Whether every source had ended, so that no input is left."""
        return self.kind in _BY_ITSELF


DRAINED = Outcome(OutcomeKind.DRAINED, "drained; nothing was left in flight")


class EndCounts(Struct, frozen=True, kw_only=True):
    """The counts that decide how a topology has ended.

    Attributes:
        finally_failed, dead_letters, refused: messages that did not go through.
        dropped: tuples that bolts failed without ackers: what `at_most_once` allows, so no failure of the topology.
        lost: calls without input that raised and are not repeated, and transactions whose staged rows are gone.
        unsent: rows that could not be sent, and that no spout emits again.
        fruitless: for each spout component that raised and emitted nothing: how often it raised.
        unaccounted: for each spout component, messages that it emitted less those that were acked or given up, if that is not 0.
        tracked: whether there are ackers.
    """

    finally_failed: int = 0
    dead_letters: int = 0
    refused: int = 0
    dropped: int = 0
    lost: int = 0
    unsent: int = 0
    fruitless: Mapping[str, int] = field(default_factory=dict)
    unaccounted: Mapping[str, int] = field(default_factory=dict)
    tracked: bool = True


def end_counts(plan: PhysicalPlan, figures: TopologyStatistics, dead_letters: int, unclosed: int) -> EndCounts:
    """Return the counts of a topology whose workers have ended.

    Args:
        dead_letters: messages given up and stored.
        unclosed: tasks that ended before they had closed, with results that they had not written.
    """
    of_spouts = figures.together(plan.spouts).counters
    of_all = figures.together([task.id for task in plan.tasks]).counters
    tracked = bool(plan.ackers)
    bolts = [] if tracked else [task.id for task in plan.tasks if task.id not in plan.spouts]
    # Rows that the chain of a spout has not sent count, where nothing is tracked, as those that a bolt behind it fails.
    chained = [] if tracked else [task for task in plan.spouts if plan.component_of(task).emits]
    dropped = int(figures.together(chained).counters.get("unsent", 0))
    unaccounted: Counter[str] = Counter()
    emitted: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for spout in plan.spouts:
        component, counters = plan.task(spout).component, figures.of(spout).counters
        unaccounted[component] += abs(int(counters.get("unaccounted", 0)))
        # An item that is a dead letter counts as such.
        emitted[component] += int(counters.get("emitted", 0) + counters.get("dead_lettered", 0))
        # A life that was lost may have emitted after its last heartbeat; its successor reads what no checkpoint covers again.
        errors[component] += int(counters.get("errors", 0)) - figures.lost_errors[spout]
    return EndCounts(
        finally_failed=int(of_spouts.get("finally_failed", 0)),
        dead_letters=dead_letters,
        refused=int(of_spouts.get("refused", 0)),
        dropped=int(figures.together(bolts).counters.get("failed", 0)) + dropped,
        lost=int(of_all.get("lost_results", 0)) + unclosed,
        unsent=int(of_all.get("unsent", 0)) - dropped,
        fruitless={component: count for component, count in errors.items() if count and not emitted[component]},
        unaccounted=+unaccounted,
        tracked=tracked,
    )


def final_outcome(decided: Outcome | None, counts: EndCounts) -> Outcome:
    """Return the outcome of a topology that has ended; `decided` is None where every source had ended."""
    outcome = decided or outcome_of_end(counts)
    if outcome.kind is OutcomeKind.DRAINED and (problems := [*_problems_of_engine(counts), *_problems_of_sources(counts)]):
        outcome = replace(outcome, reason="; ".join([outcome.reason, *problems]))
    return replace(
        outcome,
        finally_failed=counts.finally_failed,
        dead_letters=counts.dead_letters,
        refused=counts.refused,
        unaccounted=sum(counts.unaccounted.values()),
    )


def outcome_of_end(counts: EndCounts) -> Outcome:
    """Return the outcome of a topology whose sources have all ended; without ackers no message is tracked."""
    failed, dead_letters, refused, dropped = counts.finally_failed, counts.dead_letters, counts.refused, counts.dropped
    problems = []
    if failed:
        problems.append(f"{_messages(failed)} failed and {_were(failed)} not emitted again")
    if dead_letters:
        problems.append(f"{_messages(dead_letters)} {_were(dead_letters)} given up; see `topo dead-letters`")
    if refused:
        problems.append(f"{_messages(refused)} {_were(refused)} refused for {_ids(refused)}; see `topo errors`")
    problems += [*_problems_of_engine(counts), *_problems_of_sources(counts)]
    if counts.unaccounted:
        kind = OutcomeKind.UNACCOUNTED
    elif failed:
        kind = OutcomeKind.FINALLY_FAILED
    elif dead_letters:
        kind = OutcomeKind.DEAD_LETTERS
    elif refused:
        kind = OutcomeKind.REFUSED
    elif counts.lost or counts.unsent or counts.fruitless:
        kind = OutcomeKind.RESULTS_LOST
    else:
        kind = OutcomeKind.DONE
    well = "every message was processed" if counts.tracked else "every source has ended; nothing was tracked (ackers=0)"
    if dropped:
        well += f", and {dropped} tuple{'s'[: dropped > 1]} failed and {_were(dropped)} lost; see `topo errors`"
    return Outcome(kind, "; ".join(problems) or well)


def _problems_of_sources(counts: EndCounts) -> list[str]:
    return [
        f"source {component!r} raised in {count} call{'s'[: count > 1]} and emitted nothing; see `topo errors`"
        for component, count in counts.fruitless.items()
    ]


def _problems_of_engine(counts: EndCounts) -> list[str]:
    """Return, in sentences, faults of the engine that no run may show."""
    lost, unsent = counts.lost, counts.unsent
    problems = [
        f"{_messages(count)} of {component!r} {_were(count)} neither acked nor given up, a bug of topo"
        for component, count in counts.unaccounted.items()
    ]
    if lost:
        calls = "(tick, timer, action of an executor, call from another thread, end_of_input, cleanup, close) failed"
        what = f"{lost} call{'s'[: lost > 1]} without input {calls}, or what a sink had staged is gone"
        problems.append(f"{what}, so results may be missing; see `topo errors`")
    if unsent:
        why = "a value that tuples do not carry, a missing timestamp, or no task to send to"
        problems.append(f"{unsent} row{'s'[: unsent > 1]} could not be sent and {_were(unsent)} lost: {why}; see `topo errors`")
    return problems


def _messages(count: int) -> str:
    return f"{count} message" + ("" if count == 1 else "s")


def _ids(count: int) -> str:
    return "its id" if count == 1 else "their ids"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
