"""The messages of a replaying spout that fail, time out or are lost, and when each is emitted again.

The book keeps every message from its emission until it is done (acked, or dead-lettered and stored). Each is in one state:

| state     | meaning                                                                | leaves it by                       |
| --------- | ---------------------------------------------------------------------- | ---------------------------------- |
| in flight | emitted; its verdict is awaited                                        | any report                         |
| delayed   | failed, waits for its backoff                                          | `due`                              |
| ready     | lost at an epoch reset, to be emitted again at once                    | `due`                              |
| suspect   | was processed by a task whose process died, waits to be tried          | `due`, when no trial is open       |
| on trial  | a suspect in flight, which no process has outlived yet                 | any report, or the end of its time |
| dead      | given up; waits until its dead letter is stored                        | `done`                             |

Two counts lead to a dead letter, each at `attempts`: *failures*, verdicts and timeouts; and *kills*, deaths of a process
while it was processing this message alone. A reset alone is no attempt. Which of several messages killed a process cannot
be known, so they become suspects and are tried one after the other, those never tried first: the innocent get through before
the guilty one strikes again. A trial that ends in a failure or an ack clears the message of suspicion, not of its kills.

A verdict may be long in coming: a bolt holds its inputs until a file or a batch is full, or a window until its end. So a trial
is over as well when the processes have outlived it by `Trials.patience_s`. Each trial that ends so doubles the number of the
suspects that are tried together, up to the next death: a thousand take ten trials. Bolts run suspects one by one, so a death
nearly always names one of them; when it names several that were suspects before, patience doubles, and becomes as long as need
be for one to be alone. A message that has killed alone is tried without others.

A message that waits does not hold back others, with one exception: while there is a suspect (`holds_back`), the task emits
only what `due` returns.

Order: replays of lost messages go first, in the order in which `lost` names them, then retries by the end of their back-off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, nsmallest
from itertools import count, repeat
from typing import Generic, TypeVar

from msgspec import Struct

from topo.errors import EmitError, TopoInternalError

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")


class Backoff(Struct, frozen=True):
    """How long to wait after the k-th failure, in seconds; the last wait repeats."""

    waits_s: tuple[float, ...] = (1.0, 4.0, 16.0)

    def delay_s(self, failures: int) -> float:
        """Return the wait after that many failures, from 1."""
        return self.waits_s[min(failures, len(self.waits_s)) - 1]


class Trials(Struct, frozen=True):
    """How suspects are tried.

    Attributes:
        patience_s: how long a trial waits for its verdict, in seconds.
        second_death: whether messages are tried only once they were in processing at two deaths. Those at the first are emitted
            again like the rest then, for killers from outside seldom meet a message twice.
    """

    patience_s: float = 1.0
    second_death: bool = False


@dataclass(frozen=True, slots=True)
class GivenUpMessage(Generic[K, M]):
    """The message is given up. Store it with `why`, then report it as done."""

    message_id: K
    message: M
    why: str
    attempts: int


class RetryBook(Generic[K, M]):
    """The messages of one spout task, by message id. M is the data with which the task emits a message again.

    Args:
        attempts: how many failures, or kills, make a dead letter; at least 1.
        backoff: the wait between a failure and the next emission.
        trials: how suspects are tried.

    Attributes:
        open_ids: a view of the ids of all messages that the book keeps.
        kills: of every message that is or was suspect, zero included; also of those restored and not emitted yet. To be
            stored: a spout that shares its process with the task that dies loses its book.

    Raises:
        ValueError: fewer than one attempt.
    """

    def __init__(self, attempts: int = 3, backoff: Backoff | None = None, trials: Trials | None = None) -> None:
        if attempts < 1:
            raise ValueError(f"a message needs at least 1 attempt, not {attempts}")
        self._attempts = attempts
        self._backoff = backoff or Backoff()
        self._messages: dict[K, M] = {}
        self.open_ids: KeysView[K] = self._messages.keys()
        self._failures: dict[K, int] = {}
        self.kills: dict[K, int] = {}
        self._delayed: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        """Ends of back-offs. An entry counts only while `_delayed` names the same moment."""
        self._heap_order = count()
        self._ready: deque[K] = deque()
        self._suspects: dict[K, None] = {}
        self._trials = trials or Trials()
        self._patience_s = self._trials.patience_s
        self._on_trial: dict[K, None] = {}
        self._together = 1
        """How many suspects the next trial may have."""
        self._trial_ends = 0.0
        self._first_trial_at: float | None = None
        """When suspects may be tried although messages from before are in flight; None until that is asked, or after a reset."""
        self._dead: set[K] = set()

    def emitted(self, message_ids: Sequence[K], messages: Iterable[M]) -> list[K]:
        """Take over messages that the spout has just emitted for the first time.

        Not called for those that `due` returned.

        Returns:
            The ids that must not be sent now: suspects known from before a restart. They come back from `due`, unless
            `condemned`, which is to be asked next, gives them up.

        Raises:
            EmitError: an id is still being processed, or is in the batch twice; a second message would replace the first one.
        """
        taken = dict(zip(message_ids, messages, strict=True))
        if len(taken) < len(message_ids) or not self._messages.keys().isdisjoint(taken):
            twice = next(m for place, m in enumerate(message_ids) if m in self._messages or m in message_ids[:place])
            raise EmitError(f"message id {twice!r} was emitted again before it was done; give every message its own id")
        self._messages.update(taken)
        if not self.kills:
            return []
        held = [message_id for message_id in message_ids if message_id in self.kills]
        self._suspects.update(dict.fromkeys(held))
        return held

    def done(self, message_ids: Sequence[K]) -> list[M | None]:
        """Forget messages that were acked, or are dead and stored; return them. Unknown ids are ignored, and give None."""
        # Acks of whole batches come here: without marked messages nothing is done per message in Python.
        messages: list[M | None] = list(map(self._messages.pop, message_ids, repeat(None)))
        if self._failures or self.kills or self._dead:
            # Those that were given up unsent are dead alone.
            marked = [m for m in message_ids if m in self._failures or m in self.kills or m in self._dead]
            self._unqueue(marked)
            for message_id in marked:
                self._failures.pop(message_id, None)
                self.kills.pop(message_id, None)
                self._dead.discard(message_id)
        return messages

    def failed(self, message_id: K, why: str, now: float) -> GivenUpMessage[K, M] | None:
        """Count a failure (a fail or a timeout) of a message in flight.

        Returns:
            The message if it is given up; None if `due` will return it after its back-off.

        Raises:
            TopoInternalError: the message is not in flight.
        """
        if message_id not in self._messages or message_id in self._dead or message_id in self._delayed:
            raise TopoInternalError(f"message {message_id!r} failed, but it is not being processed")
        self._unqueue((message_id,))
        failures = self._failures[message_id] = self._failures.get(message_id, 0) + 1
        if failures >= self._attempts:
            return self._give_up(message_id, why, failures)
        at = now + self._backoff.delay_s(failures)
        self._delayed[message_id] = at
        heappush(self._heap, (at, next(self._heap_order), message_id))
        return None

    def previously_failed(self, message_ids: Sequence[K]) -> list[int]:
        """Return the places of those messages that have failed. A reset is no failure."""
        return [place for place, message_id in enumerate(message_ids) if message_id in self._failures]

    def once_suspected(self, message_ids: Sequence[K]) -> list[int]:
        """Return the places of those messages that are suspects, or were."""
        return [place for place, message_id in enumerate(message_ids) if message_id in self.kills] if self.kills else []

    def lost(self, message_ids: Iterable[K]) -> None:
        """Take back messages that were in flight at an epoch reset, in order of emission. Not an attempt.

        Suspects on trial become suspects again, and the next trial is of one. Dead and unknown ids are ignored.
        """
        message_ids = [m for m in message_ids if m in self._messages and m not in self._dead and m not in self._suspects]
        on_trial = self._on_trial.copy()
        self._together, self._first_trial_at = 1, None
        self._unqueue(message_ids)
        self._suspects.update(dict.fromkeys(message_id for message_id in message_ids if message_id in on_trial))
        # Reversed, since each goes to the front: replays keep the order of emission.
        self._ready.extendleft(message_id for message_id in reversed(message_ids) if message_id not in on_trial)

    def suspect(self, message_ids: Sequence[K], alone: bool) -> list[GivenUpMessage[K, M]]:
        """Take the messages that a task was processing when its process died.

        Args:
            message_ids: in the order of the note; dead and unknown ids are ignored. Each may also be named to `lost`.
            alone: no other message was in processing, so the death counts as a kill.

        Returns:
            The message that is given up with this kill, if any.

        Raises:
            TopoInternalError: several messages, each of them alone.
        """
        if alone and len(set(message_ids)) > 1:
            raise TopoInternalError(f"{len(set(message_ids))} messages cannot each have been processed alone")
        message_ids = [m for m in dict.fromkeys(message_ids) if m in self._messages and m not in self._dead]
        self._unqueue(message_ids)
        given_up: list[GivenUpMessage[K, M]] = []
        if not alone and not self.kills.keys().isdisjoint(message_ids):
            self._patience_s *= 2
        for message_id in message_ids:
            is_known = message_id in self.kills
            kills = self.kills[message_id] = self.kills.get(message_id, 0) + alone
            if self._trials.second_death and not is_known and not alone:
                # The first death among others: noted by its entry in `kills`, and tried only after a second one.
                self._ready.append(message_id)
            elif kills < self._attempts:
                self._suspects[message_id] = None
            else:
                given_up.append(self._condemn(message_id, kills))
        return given_up

    def condemned(self, held: Iterable[K]) -> list[GivenUpMessage[K, M]]:
        """Give up those of the messages that `emitted` held back whose kills, counted before a restart, are enough."""
        condemned = [message_id for message_id in held if self.kills[message_id] >= self._attempts]
        self._unqueue(condemned)
        return [self._condemn(message_id, self.kills[message_id]) for message_id in condemned]

    def give_up(self, message_id: K, why: str) -> GivenUpMessage[K, M]:
        """Give up a message that was never sent."""
        self._unqueue((message_id,))
        return self._give_up(message_id, why, 1)

    def _condemn(self, message_id: K, kills: int) -> GivenUpMessage[K, M]:
        times = "once" if kills == 1 else f"{kills} times"
        return self._give_up(message_id, f"ended the process that worked on it, alone, {times}", kills)

    @property
    def is_waiting(self) -> bool:
        """Whether `waiting` would return anything."""
        return bool(self._delayed or self._ready or self._suspects)

    def waiting(self) -> list[M]:
        """Return the messages that have to be emitted again and have not been yet."""
        return [self._messages[message_id] for message_id in (*self._delayed, *self._ready, *self._suspects)]

    @property
    def holds_back(self) -> bool:
        """Whether suspects have to be tried: the task then emits nothing but what `due` returns."""
        return bool(self._suspects or self._on_trial)

    def due(self, now: float, in_flight: int, limit: int | None = None) -> list[tuple[K, M]]:
        """Return what to emit now; the task does so at once.

        Args:
            now: monotonic seconds.
            in_flight: how many messages of this task are pending.
            limit: the most to return; the rest stays due.
        """
        if self.holds_back:
            if limit == 0 or now < self._next_trial(now, in_flight):
                return []
            if self._on_trial:
                self._on_trial.clear()
                self._together *= 2
        if self._suspects:
            return self._try(now, self._together if limit is None else min(limit, self._together))
        room = len(self._messages) if limit is None else limit
        emit: list[K] = []
        while self._ready and len(emit) < room:
            emit.append(self._ready.popleft())
        while len(emit) < room and (at := self._next_retry()) is not None and at <= now:
            message_id = heappop(self._heap)[2]
            del self._delayed[message_id]
            emit.append(message_id)
        return [(message_id, self._messages[message_id]) for message_id in emit]

    def next_deadline(self, now: float, in_flight: int) -> float | None:
        """When `due` will next return something, in monotonic seconds; None if not before a report or an emission."""
        if self.holds_back:
            return self._next_trial(now, in_flight)
        return now if self._ready else self._next_retry()

    def _next_trial(self, now: float, in_flight: int) -> float:
        """Return when the open trial ends, or the next one begins: as soon as the messages in flight are outlived."""
        if self._on_trial:
            return self._trial_ends
        if not in_flight:
            return now
        if self._first_trial_at is None:
            self._first_trial_at = now + self._patience_s
        return max(now, self._first_trial_at)

    def _try(self, now: float, most: int) -> list[tuple[K, M]]:
        # Those with the fewest kills first: the innocent get through before the guilty one strikes again.
        chosen = nsmallest(most, self._suspects, key=self.kills.__getitem__)
        chosen = [message_id for message_id in chosen if not self.kills[message_id]] or chosen[:1]
        for message_id in chosen:
            del self._suspects[message_id]
        self._on_trial = dict.fromkeys(chosen)
        self._first_trial_at, self._trial_ends = now, now + self._patience_s
        return [(message_id, self._messages[message_id]) for message_id in chosen]

    @property
    def suspect_count(self) -> int:
        """How many suspects there are, those on trial included."""
        return len(self._suspects) + len(self._on_trial)

    def restore(self, record: Mapping[K, int]) -> None:
        """Take the record of an earlier life: when such a message is emitted it is held as a suspect."""
        self.kills.update(record)

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._messages

    def validate(self) -> None:
        """Assert the invariants: every message is known and in one state at most."""
        trial = self._on_trial
        states: list[Collection[K]] = [self._delayed, self._ready, self._suspects, trial, self._dead]
        listed = [message_id for state in states for message_id in state]
        assert len(listed) == len(set(listed)), "a message is in two states"
        assert self._messages.keys() >= set(listed), "a message is listed and not kept"
        assert self._messages.keys() >= self._failures.keys(), "failures of a message that is not kept"
        assert self.kills.keys() >= {*self._suspects, *trial}, "a suspect without a count"
        assert {(at, m) for m, at in self._delayed.items()} <= {(at, m) for at, _, m in self._heap}, "a back-off without an end"

    def _give_up(self, message_id: K, why: str, attempts: int) -> GivenUpMessage[K, M]:
        self._dead.add(message_id)
        return GivenUpMessage(message_id, self._messages[message_id], why, attempts)

    def _unqueue(self, message_ids: Collection[K]) -> None:
        """Take messages out of whatever they wait in."""
        leaving = set(message_ids)
        if not leaving.isdisjoint(self._ready):
            self._ready = deque(message_id for message_id in self._ready if message_id not in leaving)
        for message_id in leaving:
            self._delayed.pop(message_id, None)
            self._suspects.pop(message_id, None)
            self._on_trial.pop(message_id, None)

    def _next_retry(self) -> float | None:
        """Return the end of the first back-off that still counts."""
        heap = self._heap
        while heap and self._delayed.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None
