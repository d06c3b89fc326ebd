"""How a topology ended, in a word and a sentence, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class OutcomeKind(Enum):
    """How a topology ended."""

    DONE = "done"
    """Every source ended and every message went through."""
    FINALLY_FAILED = "finally failed"
    """Every source ended; messages failed that no spout emitted again."""
    REFUSED = "refused"
    """Every source ended; messages were not taken, since their ids cannot be used."""
    DEAD_LETTERS = "dead letters"
    """Every source ended; messages were given up and stored."""
    RESULTS_LOST = "results lost"
    """Every source ended; a component raised in a call that nothing repeats, or emitted rows that could not be sent."""
    UNACCOUNTED = "unaccounted"
    """Every source ended; the engine does not know what became of messages."""
    DRAINED = "drained"
    """The operator ended it, and what was in flight went through."""
    CUT_SHORT = "cut short"
    """The operator ended it, and what was in flight did not get through in time; the next run replays it."""
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a topology ended, why, and what is left over."""

    kind: OutcomeKind
    reason: str
    finally_failed: int = 0
    dead_letters: int = 0
    refused: int = 0
    unaccounted: int = 0
    """Messages whose fate the engine does not know, however the topology ended."""

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
        """Whether every source had ended, so that nothing is left to go on with."""
        return self.kind in _BY_ITSELF


def outcome_of_end(
    finally_failed: int,
    dead_letters: int,
    *,
    tracked: bool = True,
    dropped: int = 0,
    refused: int = 0,
    lost: int = 0,
    unsent: int = 0,
    unaccounted: Mapping[str, int] | None = None,
) -> Outcome:
    """Return the outcome of a topology whose sources have all ended; without ackers nobody knows what became of a message.

    Args:
        finally_failed, dead_letters, refused: messages that did not go through.
        tracked: whether there are ackers.
        lost: calls without input that raised and are not repeated, and transactions whose staged rows are gone.
        unsent: rows that could not be sent, and that nobody emits again.
        unaccounted: for each spout component, messages that it emitted less those that were acked or given up, if that is not 0.
        dropped: tuples that bolts failed without ackers: what `at_most_once` allows, so no failure of the topology.
    """
    problems = []
    if finally_failed:
        problems.append(f"{_messages(finally_failed)} failed and {_were(finally_failed)} not emitted again")
    if dead_letters:
        problems.append(f"{_messages(dead_letters)} {_were(dead_letters)} given up; see `topo dead-letters`")
    if refused:
        problems.append(f"{_messages(refused)} {_were(refused)} refused for {_ids(refused)}; see `topo errors`")
    problems += problems_of_engine(lost, unsent, unaccounted or {})
    if unaccounted:
        kind = OutcomeKind.UNACCOUNTED
    elif finally_failed:
        kind = OutcomeKind.FINALLY_FAILED
    elif dead_letters:
        kind = OutcomeKind.DEAD_LETTERS
    elif refused:
        kind = OutcomeKind.REFUSED
    elif lost or unsent:
        kind = OutcomeKind.RESULTS_LOST
    else:
        kind = OutcomeKind.DONE
    well = "every message was processed" if tracked else "every source has ended; nothing was tracked (ackers=0)"
    if dropped:
        well += f", and {dropped} tuple{'s'[: dropped > 1]} failed and {_were(dropped)} lost; see `topo errors`"
    return Outcome(kind, "; ".join(problems) or well, finally_failed, dead_letters, refused)


def problems_of_engine(lost: int, unsent: int, unaccounted: Mapping[str, int]) -> list[str]:
    """Return, in sentences, what no run may show, whoever ended it; the arguments are those of `outcome_of_end`."""
    problems = [
        f"{_messages(count)} of {component!r} {_were(count)} neither acked nor given up, a bug of topo"
        for component, count in unaccounted.items()
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
