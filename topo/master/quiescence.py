"""Detects that a topology is quiescent: no task has work, and no frame is on an edge.

Each task knows whether it is quiet and how many frames it has sent and processed, but the tasks do not answer at the same moment:
a frame that one task sends before its answer may wake a task that has answered already. Mattern's four-counter method solves
this: ask every task, and when all have answered ask again. When both rounds find every task quiet, nothing pending, the same
counts in each task and as many frames processed as sent, then no frame was on its way at the moment between the two rounds, and
no task was left to send. (F. Mattern, "Algorithms for distributed termination detection", Distributed Computing 2, 1987.)

For the end of input every task must have ended, too; a task reports its end, and the last report starts a round. In a drain tasks
report nothing, so rounds follow each other, with pauses that grow.
"""

from __future__ import annotations

from topo.ids import Epoch, TaskId
from topo.wire.control import Quiet

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
ROUND_TIMEOUT_S = 5.0
"""An answer that takes longer is asked for again, under a new number."""


class Quiescence:
    """Probe rounds over the tasks of one epoch at a time.

    Attributes:
        is_still: two rounds have agreed; holds until the epoch is broken.
        facts: each task's last report in this epoch.
        refusal: of a sink, and its task, in the last round of a drain, in which nothing moved and nothing waited but for it.
    """

    def __init__(self, tasks: frozenset[TaskId]) -> None:
        self._tasks = tasks
        self._epoch = Epoch(0)
        self._breaks = 0
        self._number = 0
        self._answers: dict[TaskId, Quiet] | None = None
        self._agreed: dict[TaskId, tuple[int, int]] | None = None
        self._is_drain = False
        self._next_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self.facts: dict[TaskId, Quiet] = {}
        self.refusal: tuple[TaskId, str] | None = None
        self._asked = 0
        """The rounds of this epoch or drain."""
        self._answered: dict[TaskId, int] = {}
        """The last of them that each task has answered."""
        self._expecting = set(tasks)
        """Tasks that may get more input: they have not reported that it has ended."""
        self._holding = set(tasks)
        """Tasks whose last report does not permit the end, or is missing."""
        self._must_ask = False
        """Whether a round is due although tasks have not reported their end."""
        self.is_still = False

    def follow(self, epoch: Epoch, breaks: int) -> None:
        """Forget everything if another epoch has begun or the last one was broken since (`Epochs.breaks`)."""
        if (epoch, breaks) != (self._epoch, self._breaks):
            self._epoch, self._breaks = epoch, breaks
            self._forget()

    def _forget(self) -> None:
        self._answers = self._agreed = None
        self._next_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self.facts, self.refusal, self._asked, self._answered = {}, None, 0, {}
        self._expecting, self._holding = set(self._tasks), set(self._tasks)
        self.is_still = self._must_ask = False

    def drain(self) -> None:
        """From now on tasks need not have ended."""
        self._is_drain = True
        self._forget()

    def give_up_drain(self) -> None:
        """From now on tasks have to have ended. Their reports are forgotten, so all are asked once."""
        self._is_drain = False
        self._forget()
        self._must_ask = True

    def on_report(self, quiet: Quiet, now: float) -> None:
        """Take a task's report, requested or not. Reports of other epochs are ignored."""
        if quiet.epoch != self._epoch or quiet.task not in self._tasks or self.is_still:
            return
        self.facts[quiet.task] = quiet
        _keep(self._expecting, quiet.task, not self._has_ended(quiet))
        _keep(self._holding, quiet.task, not self._permits_end(quiet))
        # Counts from before the round began prove nothing about it: only answers to this very round are compared.
        if self._answers is not None and quiet.probe == self._number:
            self._answers[quiet.task] = quiet
            self._answered[quiet.task] = self._asked
            if len(self._answers) == len(self._tasks):
                self._conclude(self._answers, now)

    def begin_due(self, now: float) -> int | None:
        """Return the number of the round that begins now: every task is to be asked; None when none does."""
        if self.is_still or now < self._next_at:
            return None
        if self._waits_for_reports:
            return None
        # A round that is still open has timed out. It is repeated as a whole, since its first answers are old by now.
        self._number += 1
        self._asked += 1
        self._answers = {}
        self._next_at = now + ROUND_TIMEOUT_S
        return self._number

    def next_deadline(self) -> float | None:
        """When `begin_due` will begin a round, unless a report arrives first."""
        if self.is_still or self._waits_for_reports:
            return None
        return self._next_at

    @property
    def has_ended(self) -> bool:
        """Whether no task expects any more input."""
        return not self._expecting

    def pending(self) -> int:
        """The number of pending messages, by the tasks' last reports."""
        return sum(quiet.pending for quiet in self.facts.values())

    def silent(self) -> list[TaskId]:
        """Return the tasks that have answered neither of the last two rounds."""
        return sorted(task for task in self._tasks if self._asked and self._answered.get(task, 0) < max(1, self._asked - 1))

    def why_not(self) -> tuple[TaskId, str] | None:
        """Return a refusal, or the reason of a task that is not quiet, with the task: rather of a task without pending messages.

        A spout with messages pending waits for other tasks.
        """
        reasons = sorted((quiet.pending > 0, quiet.task, quiet.why) for quiet in self.facts.values() if quiet.why)
        return self.refusal or (reasons[0][1:] if reasons else None)

    def validate(self) -> None:
        ended = {task for task, quiet in self.facts.items() if self._has_ended(quiet)}
        permitting = {task for task, quiet in self.facts.items() if self._permits_end(quiet)}
        assert self._expecting == set(self._tasks - ended) and self._holding == set(self._tasks - permitting)
        assert self._answers is None or self._answers.keys() < self._tasks
        assert all(quiet.epoch == self._epoch for quiet in self.facts.values())
        assert not self.is_still or self._answers is None

    @property
    def _waits_for_reports(self) -> bool:
        return self._answers is None and bool(self._holding) and not (self._is_drain or self._must_ask)

    def _has_ended(self, quiet: Quiet) -> bool:
        return quiet.ended or self._is_drain

    def _permits_end(self, quiet: Quiet) -> bool:
        return quiet.quiet and not quiet.pending and self._has_ended(quiet)

    def _conclude(self, answers: dict[TaskId, Quiet], now: float) -> None:
        self._answers, self._must_ask = None, False
        counts = {task: (quiet.sent, quiet.received) for task, quiet in answers.items()}
        sent = sum(counted[0] for counted in counts.values())
        received = sum(counted[1] for counted in counts.values())
        refused = next(((task, quiet.refused) for task, quiet in answers.items() if quiet.refused), None)
        rests = sent == received and all(quiet.quiet or quiet.pending or quiet.refused for quiet in answers.values())
        self.refusal = refused if self._is_drain and rests else None
        if sent != received or not all(map(self._permits_end, answers.values())):
            # Something moved after an earlier agreement, which therefore counts for nothing: two new rounds are needed.
            self._agreed = None
            self._next_at = now + self._pause_s
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        elif self._agreed == counts:
            self.is_still = True
        else:
            # One round is no proof: a task that answered early may have been woken by a later one. The second follows at once.
            self._agreed = counts
            self._next_at = now


def _keep(tasks: set[TaskId], task: TaskId, is_in: bool) -> None:
    (tasks.add if is_in else tasks.discard)(task)
