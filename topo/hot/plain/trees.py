"""The acker's book: which tuple trees are open, and the verdicts on those that are not.

Theory. A tuple tree is done when every edge in it has been acked. Each edge has a random non-zero 64-bit id, and each id
reaches the acker exactly twice: once by the task that emitted the tuple (a spout in its init, a bolt folded into the ack of
the input it anchored on) and once by the task that acked it. The XOR of all values that came for a root therefore is zero
when the tree is done and, but for a coincidence of 64 bits, never before. XOR is commutative, so inits, acks and fails
may arrive in any order. The method is Apache Storm's ("Guaranteeing message processing"); it needs ids that are independent in
all processes, and frames that are not repeated: a repetition that cancels all values before it looks like a done tree.

A root's record is one integer, its *word*:

    bits 0 to 63      XOR of all values so far
    bits 64 and up    the spout task of the init; 0 as long as there was none
    complemented      (so negative) once the tree has failed

XOR with a 64-bit value leaves the spout and the sign as they are, and a word equals `spout << 64` exactly if the init was
seen, the XOR is zero and nothing failed. That one comparison is the whole test for a done tree:

| word              | state     | init                      | ack        | fail                     | reset              |
| ----------------- | --------- | ------------------------- | ---------- | ------------------------ | ------------------ |
| none              | unknown   | open, or acked if zero    | early      | doomed                   | ignored            |
| spout 0           | early     | open, or acked if zero    | early      | doomed                   | made newest        |
| spout             | open      | refused, counted          | open, or acked if zero | failed, answered | made newest, answered |
| ~word, spout 0    | doomed    | failed, answered          | absorbed   | made newest              | made newest        |
| ~word, spout      | failed    | refused, counted          | absorbed   | made newest, no answer   | ignored            |

A failed tree stays, marked as answered, until it rotates out, so nothing is answered twice. An acked one leaves no record. A
value that comes for it later makes a record that rotates out: an ack or fail has no spout to answer to, and a repeated init opens
a tree that no ack can complete.
A reset of an unknown root is ignored: whether it came before the init or after the end cannot be known, in both cases it
has no answer, and a record made later by the init or an ack is younger anyway.

Age: records live in a rotating map of three buckets. An init or an ack makes a record but does not refresh it; a fail and a
reset do. What expires is dropped without a word, since the spout's own map is what times messages out.

It must not know: frames, epochs, edge numbers, message ids, time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from topo.hot.plain.rotating_map import RotatingMap
from topo.hot.plain.words import Column, pack_words, unpack_words
from topo.ids import TaskId

_SPOUT_SHIFT = 64


class Verdicts(NamedTuple):
    """The verdicts for one spout task: roots, packed, in the order in which they were decided."""

    acked: Column = b""
    failed: Column = b""
    reset: Column = b""


@dataclass(slots=True)
class _Decided:
    """The verdicts for one spout task that have not been taken."""

    acked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    reset: list[int] = field(default_factory=list)


class Trees:
    """Follows the tuple trees of one acker task. Single-threaded; every call takes a whole frame's columns."""

    def __init__(self, buckets: int = 3) -> None:
        """Start empty.

        Raises:
            ValueError: fewer than two buckets.
        """
        self._words: RotatingMap[int, int] = RotatingMap(buckets)
        self._decided: dict[TaskId, _Decided] = {}
        """By spout that has sent an init; empty ones included."""
        self._acked: dict[int, list[int]] = {}
        """The `acked` lists of `_decided`, by the word of a tree that is done."""

    def __len__(self) -> int:
        return len(self._words)

    def init(self, spout: TaskId, roots: Column, values: Column) -> None:
        """Take the inits of a frame: `values[i]` is the XOR of the edges that `spout` emitted for `roots[i]`.

        A root whose init is known keeps its word as it is: folding the same value in again would cancel it.
        """
        words = self._words.entries
        get = words.get
        done = spout << _SPOUT_SHIFT
        if done not in self._acked:
            self._begin(spout)
        acked = self._acked[done]
        for root, value in zip(unpack_words(roots), unpack_words(values), strict=True):
            word = get(root, 0)
            if word >> _SPOUT_SHIFT:
                self._init_marked(spout, root, word)
                continue
            word ^= value ^ done
            if word == done:
                words.pop(root, None)
                acked.append(root)
            else:
                words[root] = word

    def _init_marked(self, spout: TaskId, root: int, word: int) -> None:
        """Take an init for a root that has had one, or has failed."""
        if word < 0 and not ~word >> _SPOUT_SHIFT:
            self._words.entries[root] = word ^ spout << _SPOUT_SHIFT
            self._decided[spout].failed.append(root)

    def ack(self, roots: Column, values: Column) -> None:
        """Take the acks of a frame: `values[i]` is an acked edge XOR all edges anchored to it, for `roots[i]`."""
        words = self._words.entries
        get = words.get
        acked = self._acked
        for root, value in zip(unpack_words(roots), unpack_words(values), strict=True):
            word = get(root, 0) ^ value
            if word in acked:
                acked[word].append(root)
                del words[root]
            else:
                words[root] = word

    def fail(self, roots: Column) -> None:
        """Take the fails of a frame."""
        words = self._words.entries
        for root in unpack_words(roots):
            word = words.pop(root, 0)
            if word >= 0:
                spout = word >> _SPOUT_SHIFT
                if spout:
                    self._decided[TaskId(spout)].failed.append(root)
                word = ~word
            words[root] = word

    def reset(self, roots: Column) -> None:
        """Take the requests of a frame to start the timeouts of `roots` again."""
        for root in unpack_words(roots):
            word = self._words.get(root)
            if word is None:
                continue
            spout = word >> _SPOUT_SHIFT
            if word < 0 and spout != -1:
                continue
            self._words.touch(root)
            if spout > 0:
                self._decided[TaskId(spout)].reset.append(root)

    def verdicts(self) -> dict[TaskId, Verdicts]:
        """Return the verdicts reached since the last call, by spout; spouts without any are left out."""
        taken = {spout: own for spout, own in self._decided.items() if own.acked or own.failed or own.reset}
        for spout in taken:
            self._begin(spout)
        return {
            spout: Verdicts(pack_words(own.acked), pack_words(own.failed), pack_words(own.reset)) for spout, own in taken.items()
        }

    def rotate(self) -> Column:
        """Drop the oldest bucket. Returns the roots of open trees that expired with it."""
        dropped = self._words.rotate()
        return pack_words([root for root, word in dropped.items() if word >> _SPOUT_SHIFT > 0])

    def clear(self) -> None:
        """Forget every record and every verdict not taken: a new epoch has begun."""
        self._words.drain()
        self._decided = {}
        self._acked = {}

    def open_roots(self) -> Column:
        """Return the roots of open trees, oldest first."""
        return pack_words([root for root, word in self._words.items() if word >> _SPOUT_SHIFT > 0])

    def validate(self) -> None:
        """Assert the invariants: no record of a done tree, none without a known spout, roots that are 64-bit ids."""
        self._words.validate()
        for root, word in self._words.items():
            assert 0 < root < 1 << 64, f"{root} is not a root id"
            assert word not in self._acked, f"root {root:#x} is done and still recorded"
            owner = (~word if word < 0 else word) >> _SPOUT_SHIFT << _SPOUT_SHIFT
            assert owner == 0 or owner in self._acked, f"root {root:#x} belongs to a spout that has sent no init"

    def _begin(self, spout: TaskId) -> None:
        own = self._decided[spout] = _Decided()
        self._acked[spout << _SPOUT_SHIFT] = own.acked
